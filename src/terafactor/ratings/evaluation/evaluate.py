"""Evaluation of a fitted model on test ratings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from terafactor.ratings.evaluation.metrics import mae, ndcg_at, recall_at, rmse
from terafactor.ratings.table.history import RatingHistory
from terafactor.ratings.table.ids import Ids, as_ids, match_id_types
from terafactor.ratings.table.table import RatingTable

if TYPE_CHECKING:
    from terafactor.ratings.matrix_completion import MatrixCompletion


def evaluate_model(
    estimator: MatrixCompletion, table: RatingTable, n: int = 10, relevant: float | None = None
) -> dict[str, Any]:
    """Return RMSE and MAE over all ratings, and NDCG and recall at n over the known users.

    An item is relevant for a user who rated it ``relevant`` or higher (by default the mean training rating). Ratings
    that the model has learned from are neither recommended nor relevant. NDCG and recall are None if nothing is
    relevant.
    """
    table = _with_matching_ids(estimator, table)
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
    threshold = float(estimator.mean_rating_ if relevant is None else relevant)
    unseen = (users >= 0) & ~estimator._history.learned().contains(users, items, len(estimator.items_))
    return facts | _ranking_metrics(estimator, table.take(unseen & (table.values >= threshold)), n)


def _ranking_metrics(estimator: MatrixCompletion, liked: RatingTable, n: int) -> dict[str, float | None]:
    """Return NDCG and recall of the lists of the users with relevant items, None if there are none."""
    users = np.unique(liked.users)
    if not len(users):
        return {f"ndcg@{n}": None, f"recall@{n}": None}
    numbers = estimator._known[0].find(liked.user_ids.values[users])
    learned = estimator._history.take(numbers).learned()  # without held-out ratings, which may be recommended
    items, ratings = estimator._recommend(estimator._model.codes_of(numbers), learned, n)
    lists = np.where(np.isnan(ratings), -1, liked.item_ids.find(items.ravel()).reshape(items.shape))
    relevant = RatingHistory.of(liked).take(users)
    return {
        f"ndcg@{n}": ndcg_at(lists, relevant.starts, relevant.items),
        f"recall@{n}": recall_at(lists, relevant.starts, relevant.items),
    }


def _with_matching_ids(estimator: MatrixCompletion, table: RatingTable) -> RatingTable:
    """Return the table with ids of the model's type: a test file may have integers only, and the model text ids."""
    users, items = (
        Ids(as_ids(match_id_types(known, ids.values.tolist())))
        for known, ids in ((estimator.users_, table.user_ids), (estimator.items_, table.item_ids))
    )
    return replace(table, user_ids=users, item_ids=items)
