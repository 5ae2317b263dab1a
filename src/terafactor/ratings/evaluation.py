"""How well a model does on ratings that it has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from terafactor.ratings.metrics import mae, ndcg_at, recall_at, rmse
from terafactor.ratings.recommend import Seen
from terafactor.ratings.table import RatingTable

if TYPE_CHECKING:
    from terafactor.ratings.matrix_completion import MatrixCompletion


def evaluate_model(
    estimator: MatrixCompletion, table: RatingTable, n: int = 10, relevant: float | None = None
) -> dict[str, Any]:
    """Return RMSE and MAE of all ratings, and NDCG and recall at n over the users of the table that are known.

    An item is relevant for a user who rated it ``relevant`` or higher (by default the mean rating that the model
    learned from); lists leave out what the model has seen of the user.
    """
    ids = table.user_ids.values
    predicted = estimator.predict((ids[table.users], table.item_ids.values[table.items]))
    least = float(estimator.mean_rating_ if relevant is None else relevant)
    liked = table.take(table.values >= least)
    users = np.unique(liked.users)
    users = users[np.isin(ids[users], estimator.users_)]
    facts = {"ratings": len(table), "rmse": rmse(predicted, table.values), "mae": mae(predicted, table.values)}
    if len(users):
        items, ratings = estimator.recommend(ids[users], n)
        lists = np.where(np.isnan(ratings), -1, table.item_ids.find(items.ravel()).reshape(items.shape))
        seen = Seen.of(liked).take(users)
        facts |= {f"ndcg@{n}": ndcg_at(lists, seen.starts, seen.items)}
        facts |= {f"recall@{n}": recall_at(lists, seen.starts, seen.items)}
    return facts
