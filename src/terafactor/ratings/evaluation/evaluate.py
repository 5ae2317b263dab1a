"""How well a model does on ratings that it has not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from terafactor.ratings.evaluation.metrics import mae, ndcg_at, recall_at, rmse
from terafactor.ratings.serving.output import as_known
from terafactor.ratings.serving.recommend import Seen
from terafactor.ratings.table.ids import Ids, as_ids
from terafactor.ratings.table.table import RatingTable

if TYPE_CHECKING:
    from terafactor.ratings.matrix_completion import MatrixCompletion


def evaluate_model(
    estimator: MatrixCompletion, table: RatingTable, n: int = 10, relevant: float | None = None
) -> dict[str, Any]:
    """Return RMSE and MAE of all ratings, and NDCG and recall at n over the users of the table that are known.

    An item is relevant for a user who rated it ``relevant`` or higher (by default the mean rating that the model
    learned from). Lists leave out what the model has seen of the user, which is not relevant, either; where nothing
    is, NDCG and recall are None.
    """
    table = _with_ids_as_known(estimator, table)
    user_ids, item_ids = table.user_ids.values, table.item_ids.values
    predicted = estimator.predict((user_ids[table.users], item_ids[table.items]))
    users, items = estimator._known[0].find(user_ids)[table.users], estimator._known[1].find(item_ids)[table.items]
    facts = {
        "ratings": len(table),
        "unknown_users": len(np.unique(table.users[users < 0])),
        "unknown_items": len(np.unique(table.items[items < 0])),
        "rmse": rmse(predicted, table.values),
        "mae": mae(predicted, table.values),
    }
    least = float(estimator.mean_rating_ if relevant is None else relevant)
    fresh = (users >= 0) & ~estimator._seen.holds(users, items, len(estimator.items_))
    return facts | _of_lists(estimator, table.take(fresh & (table.values >= least)), n)


def _of_lists(estimator: MatrixCompletion, liked: RatingTable, n: int) -> dict[str, float | None]:
    """Return NDCG and recall of the lists of the users who like something, None where there is none."""
    users = np.unique(liked.users)
    if not len(users):
        return {f"ndcg@{n}": None, f"recall@{n}": None}
    items, ratings = estimator.recommend(liked.user_ids.values[users], n)
    lists = np.where(np.isnan(ratings), -1, liked.item_ids.find(items.ravel()).reshape(items.shape))
    seen = Seen.of(liked).take(users)
    return {
        f"ndcg@{n}": ndcg_at(lists, seen.starts, seen.items),
        f"recall@{n}": recall_at(lists, seen.starts, seen.items),
    }


def _with_ids_as_known(estimator: MatrixCompletion, table: RatingTable) -> RatingTable:
    """Return the table with ids as the model has them: a file may hold only integers where another held text."""
    users, items = (
        Ids(as_ids(as_known(known, ids.values.tolist())))
        for known, ids in ((estimator.users_, table.user_ids), (estimator.items_, table.item_ids))
    )
    return replace(table, user_ids=users, item_ids=items)
