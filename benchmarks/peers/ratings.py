"""Contests on ratings: error of predictions, and order of recommendations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.coordinate_descent import coordinate_descent
from benchmarks.paper.completion import MOVIELENS, products, read_movielens, synthetic
from benchmarks.paper.sizes import ML_1M, RatingsShape
from benchmarks.peers.contest import Contest, Contestant
from terafactor.ratings import MatrixCompletion, RatingTable, split_randomly
from terafactor.ratings.evaluation.metrics import ndcg_at, rmse
from terafactor.ratings.methods.biases import Biases

THREADS = 2


@dataclass(frozen=True)
class RatingsSize:
    """Sizes of the contests."""

    shape: RatingsShape = ML_1M
    n_components: int = 30
    real: bool = True
    """Whether to use real ratings if there are any."""

    amounts: tuple[int, ...] = (1, 2, 4, 8, 15)


TINY = RatingsSize(RatingsShape("tiny", 100, 60, 2_500), 3, False, (1, 2))
LIKED = 4.0
"""Lowest rating that counts as liked."""


def ratings(size: RatingsSize) -> tuple[str, RatingTable, RatingTable]:
    """Return the name of the ratings, those to learn from and those to test on."""
    real = size.real and MOVIELENS.exists()
    name, table = ("MovieLens-1M", read_movielens(MOVIELENS)) if real else ("synthetic ratings", synthetic(size.shape))
    return name, *split_randomly(table, 0.25, seed=0)


def error_of_predictions(size: RatingsSize) -> Contest:
    """Which method predicts held-out ratings best, and fastest."""
    name, train, test = ratings(size)
    low, high = float(train.values.min()), float(train.values.max())

    def judge(predicted: np.ndarray) -> float:
        return rmse(np.clip(predicted, low, high), test.values)

    k, amounts = size.n_components, size.amounts
    contestants = [
        Contestant("terafactor", _ours(train, test, k), amounts),
        Contestant("terafactor, the paper's method", _ours(train, test, k, statistics="masked"), amounts),
        Contestant("cmfrec CMF", _cmfrec(train, test, k), amounts, "cmfrec", "cmfrec"),
        Contestant("Surprise SVD", _surprise(train, test, k), [2 * amount for amount in amounts], "surprise",
                   "scikit-surprise"),
        Contestant("coordinate descent", _descent(train, test, k), amounts, "numba", "coordinate descent"),
    ]  # fmt: skip
    return Contest(
        "rating_error", "Ratings: error of predictions",
        f"{name}, {train.shape[0]:,} users, {train.shape[1]:,} items, {len(train):,} ratings to learn from and "
        f"{len(test):,} to test on, {k} factors, {THREADS} threads (Surprise uses one). A time includes the view of "
        "the matrix and the predictions, not the reading of files. Settings: cmfrec with lambda 0.08 scaled by counts "
        "and conjugate gradients, Surprise with a rate of 0.01 and a penalty of 0.06, not searched, so a search may "
        "improve them; coordinate descent with 0.1, the best of 0.02, 0.04, 0.06 and "
        "0.1; ours has none. Predictions are clipped to the range of ratings for all.",
        contestants, judge, "RMSE on held-out ratings", n_threads=THREADS,
    )  # fmt: skip


def _ours(train: RatingTable, test: RatingTable, k: int, **changes: Any) -> Callable[[float], np.ndarray]:
    X = train.as_matrix()

    def fit(amount: float) -> np.ndarray:
        model = MatrixCompletion(k, n_epochs=amount, random_state=0, n_threads=THREADS, **changes).fit(X)
        return model.predict((test.users, test.items))

    return fit


def _cmfrec(train: RatingTable, test: RatingTable, k: int) -> Callable[[float], np.ndarray]:
    X = sparse.coo_matrix((train.values, (train.users, train.items)), shape=train.shape)

    def fit(amount: float) -> np.ndarray:
        from cmfrec import CMF

        model = CMF(
            k=k, lambda_=0.08, scale_lam=True, method="als", use_cg=True, niter=int(amount), nthreads=THREADS,
            use_float=True, random_state=0, verbose=False,
        )  # fmt: skip
        return model.fit(X).predict(user=test.users, item=test.items)

    return fit


def _surprise(train: RatingTable, test: RatingTable, k: int) -> Callable[[float], np.ndarray]:
    prepared: list[Any] = []

    def fit(amount: float) -> np.ndarray:
        from surprise import SVD, Dataset, Reader

        if not prepared:
            prepared.append(_trainset(train, Dataset, Reader))
        trainset = prepared[0]
        model = SVD(n_factors=k, n_epochs=int(amount), lr_all=0.01, reg_all=0.06, random_state=0).fit(trainset)
        users, items = (_numbers(known, ids) for known, ids in (
            (trainset._raw2inner_id_users, test.users), (trainset._raw2inner_id_items, test.items)))  # fmt: skip
        user_factors, item_factors = (np.vstack([part, np.zeros(k)]) for part in (model.pu, model.qi))
        biases = np.append(model.bu, 0)[users] + np.append(model.bi, 0)[items]
        return trainset.global_mean + biases + np.einsum("ij,ij->i", user_factors[users], item_factors[items])

    return fit


def _trainset(train: RatingTable, dataset: Any, reader: Any) -> Any:
    import pandas

    frame = pandas.DataFrame({"user": train.users, "item": train.items, "rating": train.values})
    scale = (float(train.values.min()), float(train.values.max()))
    return dataset.load_from_df(frame, reader(rating_scale=scale)).build_full_trainset()


def _numbers(known: dict[Any, int], ids: np.ndarray) -> np.ndarray:
    """Return the peer's indices of ids; -1, the row of zeros at the end, for unknown ids."""
    table = np.full(int(ids.max()) + 1, -1)
    for name, number in known.items():
        if name < len(table):
            table[name] = number
    return table[ids]


def _descent(train: RatingTable, test: RatingTable, k: int) -> Callable[[float], np.ndarray]:
    def fit(amount: float) -> np.ndarray:
        biases = Biases.of(train)
        centered = RatingTable(train.users, train.items, biases.remove(train), train.user_ids, train.item_ids)
        last: list[np.ndarray] = []

        def keep(users: np.ndarray, items: np.ndarray) -> None:
            last[:] = [users, items]

        coordinate_descent(centered.as_matrix(), k, 0.1, int(amount), keep, n_threads=THREADS)
        return products(*last, test) + test.values - biases.remove(test)

    return fit


def order_of_recommendations(size: RatingsSize) -> Contest:
    """Which method ranks liked items first, the purpose of implicit."""
    name, train, test = ratings(size)
    liked = test.take(test.values >= LIKED)
    starts, items, _ = liked.by_user()
    asked = np.flatnonzero(np.diff(starts))

    def judge(lists: np.ndarray) -> float:
        relevant = np.concatenate([items[starts[user] : starts[user + 1]] for user in asked])
        bounds = np.concatenate([[0], np.cumsum(np.diff(starts)[asked])])
        return ndcg_at(lists, bounds, relevant)

    k, amounts = size.n_components, size.amounts
    contestants = [
        Contestant("terafactor", _our_lists(train, asked, k), amounts[:-1]),
        Contestant("implicit AlternatingLeastSquares", _implicit(train, asked, k), amounts, "implicit", "implicit"),
    ]
    return Contest(
        "rating_order", "Ratings: order of recommendations",
        f"{name}: ten items for each user out of those not seen, judged by held-out ratings of {LIKED:g} and more. "
        "implicit learns from the ratings as confidences (times 5, penalty 0.05, not searched further) what was "
        f"watched at all; terafactor predicts ratings, a different aim. {THREADS} threads, the lists included.",
        contestants, judge, "NDCG at 10", lower_is_better=False, n_threads=THREADS,
    )  # fmt: skip


def _our_lists(train: RatingTable, asked: np.ndarray, k: int) -> Callable[[float], np.ndarray]:
    X = train.as_matrix()

    def fit(amount: float) -> np.ndarray:
        model = MatrixCompletion(k, n_epochs=amount, random_state=0, n_threads=THREADS).fit(X)
        return model.recommend(asked, n=10)[0]

    return fit


def _implicit(train: RatingTable, asked: np.ndarray, k: int) -> Callable[[float], np.ndarray]:
    X = sparse.csr_matrix(train.as_matrix())
    X.sort_indices()

    def fit(amount: float) -> np.ndarray:
        from implicit.cpu.als import AlternatingLeastSquares

        model = AlternatingLeastSquares(
            k, regularization=0.05, alpha=5.0, iterations=int(amount), num_threads=THREADS, random_state=0
        )
        model.fit(X, show_progress=False)
        return model.recommend(asked, X[asked], N=10, filter_already_liked_items=True)[0]

    return fit
