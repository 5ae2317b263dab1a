"""How well a model does on ratings that it has not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from terafactor.ratings.ids import Ids, as_ids
from terafactor.ratings.metrics import mae, ndcg_at, recall_at, rmse
from terafactor.ratings.recommend import Seen
from terafactor.ratings.table import RatingTable
from terafactor.ratings.tables import as_known

if TYPE_CHECKING:
    from terafactor.ratings.matrix_completion import MatrixCompletion


def evaluate_model(
    estimator: MatrixCompletion, table: RatingTable, n: int = 10, relevant: float | None = None
) -> dict[str, Any]:
    """Return RMSE and MAE of all ratings, and NDCG and recall at n over the users of the table that are known.

    An item is relevant for a user who rated it ``relevant`` or higher (by default the mean rating that the model
    learned from); lists leave out what the model has seen of the user.
    """
    table = _with_ids_as_known(estimator, table)
    ids = table.user_ids.values
    predicted = estimator.predict((ids[table.users], table.item_ids.values[table.items]))
    least = float(estimator.mean_rating_ if relevant is None else relevant)
    liked = table.take(table.values >= least)
    users = np.unique(liked.users)
    users = users[estimator._known[0].find(ids[users]) >= 0]
    facts = {"ratings": len(table), "rmse": rmse(predicted, table.values), "mae": mae(predicted, table.values)}
    if len(users):
        items, ratings = estimator.recommend(ids[users], n)
        lists = np.where(np.isnan(ratings), -1, table.item_ids.find(items.ravel()).reshape(items.shape))
        seen = Seen.of(liked).take(users)
        facts |= {f"ndcg@{n}": ndcg_at(lists, seen.starts, seen.items)}
        facts |= {f"recall@{n}": recall_at(lists, seen.starts, seen.items)}
    return facts


def _with_ids_as_known(estimator: MatrixCompletion, table: RatingTable) -> RatingTable:
    """Return the table with ids as the model has them: a file may hold only integers where another held text."""
    users, items = (
        Ids(as_ids(as_known(known, ids.values.tolist())))
        for known, ids in ((estimator.users_, table.user_ids), (estimator.items_, table.item_ids))
    )
    return replace(table, user_ids=users, item_ids=items)
