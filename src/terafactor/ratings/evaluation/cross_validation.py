"""Selection of alpha and of the number of factors by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from terafactor._random import resolve_seed
from terafactor._threads import Threads
from terafactor._typing import Array
from terafactor.errors import DataError, ParameterError
from terafactor.ratings.evaluation.curve import draw_curve
from terafactor.ratings.evaluation.metrics import rmse
from terafactor.ratings.matrix_completion import MatrixCompletion
from terafactor.ratings.parameters import method_of
from terafactor.ratings.table.splitters import SPLITTERS, Splitter
from terafactor.ratings.table.table import RatingTable
from terafactor.ratings.task import oriented
from terafactor.solver.state_dict import StateDict

GRIDS: dict[str, list[float | None]] = {
    "per_feature": [None, *np.geomspace(0.3, 0.01, 14).tolist()],
    "masked": (2 * np.geomspace(10, 1e-2, 15)).tolist(),
}
"""Default values of alpha, the strongest first: each fit starts from the previous one. The second is the grid of the
paper, whose lambda is half of alpha."""

WARM_START_SHARE = 0.4
"""Share of the passes that a fit does if it starts from the previous alpha."""


@dataclass(frozen=True)
class CrossValidationResult:
    """Errors of one choice of parameters on held-out ratings."""

    alpha: float | None
    """Strength of the ridge penalty; None if learned."""

    n_components: int
    """Number of factors."""

    errors: tuple[float, ...]
    """RMSE of each split."""

    @property
    def mean(self) -> float:
        """Mean RMSE."""
        return float(np.mean(self.errors))


class MatrixCompletionCV(BaseEstimator):
    """Matrix completion with ``alpha`` and the number of factors selected by the error on held-out ratings.

    Parameters
    ----------
    estimator : MatrixCompletion or None, default=None
        Estimator with all other parameters; None uses the defaults.
    alphas : sequence of float or None, default=None
        Values of alpha to try; None as an element learns the regularization. By default a grid of 15 values.
    n_components : sequence of int or None, default=None
        Numbers of factors to try; None uses that of the estimator.
    n_splits : int, default=3
        Number of train/test splits.
    test_share : float, default=0.33
        Share of the ratings held out in each split.
    splitter : {"random", "per_user", "by_time"} or callable, default="random"
        How to split: :func:`split_randomly`, :func:`split_per_user`, :func:`split_by_time`, or a function of a table,
        a share and a seed.

    Attributes
    ----------
    results_ : list of CrossValidationResult
        One per choice of parameters.
    best_ : CrossValidationResult
        The choice with the lowest mean error.
    alpha_ : float or None
        Value used for the final fit, ``(1 - test_share) * best_.alpha``. alpha multiplies the number of ratings: the
        final fit has more of them, and the total regularization of a user stays the same.
    estimator_ : MatrixCompletion
        Fitted to all ratings with the best choice.

    Notes
    -----
    Values of alpha are tried in decreasing order. Each fit starts from the previous one, does 40 % of the passes and,
    with ``statistics="masked"``, reuses its biases.

    Examples
    --------
    >>> from scipy.sparse import random_array
    >>> from terafactor import MatrixCompletion, MatrixCompletionCV
    >>> X = random_array((60, 40), density=0.3, rng=0)
    >>> search = MatrixCompletionCV(MatrixCompletion(2, random_state=0), alphas=[0.3, 0.1], n_splits=2).fit(X)
    >>> search.best_.alpha
    0.3
    """

    def __init__(
        self,
        estimator: MatrixCompletion | None = None,
        *,
        alphas: Sequence[float | None] | None = None,
        n_components: Sequence[int] | None = None,
        n_splits: int = 3,
        test_share: float = 0.33,
        splitter: str | Splitter = "random",
    ) -> None:
        self.estimator = estimator
        self.alphas = alphas
        self.n_components = n_components
        self.n_splits = n_splits
        self.test_share = test_share
        self.splitter = splitter

    def fit(self, X: Any, y: Any = None) -> Self:
        """Evaluate every choice on every split, then fit the best one to all ratings.

        Parameters
        ----------
        X : ratings
            Any type that :meth:`MatrixCompletion.fit` accepts.
        y : ignored
        """
        base = MatrixCompletion() if self.estimator is None else clone(self.estimator)
        table, seed, split = base._open_rated(X), resolve_seed(base.random_state), self._splitter()
        alphas, sizes = self._choices(base)
        errors: dict[tuple[float | None, int], list[float]] = {}
        for number in range(self.n_splits):
            train, test = split(table, self.test_share, seed + number)
            self._check_split(train, test)
            for size in sizes:
                for alpha, error in path_errors(base, train, test, alphas, size, seed):
                    errors.setdefault((alpha, size), []).append(error)
        self.results_ = [CrossValidationResult(*choice, tuple(found)) for choice, found in errors.items()]
        self.best_ = min(self.results_, key=lambda result: result.mean)
        self.alpha_ = None if self.best_.alpha is None else (1 - self.test_share) * self.best_.alpha
        base.set_params(alpha=self.alpha_, n_components=self.best_.n_components, random_state=seed)
        self.estimator_ = base.fit(table)
        return self

    def plot(self, path: Path | str) -> Path:
        """Plot the error against alpha, one curve per number of factors; return the path of the file."""
        check_is_fitted(self, "results_")
        return draw_curve(self.results_, Path(path))

    def predict(self, X: Any) -> Any:
        """Return the predicted ratings (n,) of the pairs in X, see :meth:`MatrixCompletion.predict`."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(X)

    def transform(self, X: Any) -> Array:
        """Return codes (n_users, n_components) for the ratings in X, see :meth:`MatrixCompletion.transform`."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.transform(X)

    def recommend(self, users: Any = None, n: int = 10, **options: Any) -> tuple[Array, Array]:
        """Return items and predicted ratings, (n_users, n) each, for ``users``; None for all.

        The ``options`` are those of :meth:`MatrixCompletion.recommend`.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.recommend(users, n, **options)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the negative RMSE on the ratings in X, as :meth:`MatrixCompletion.score`."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.score(X)

    def _splitter(self) -> Splitter:
        if callable(self.splitter):
            return self.splitter
        if self.splitter not in SPLITTERS:
            raise ParameterError(f"splitter must be callable or one of {', '.join(SPLITTERS)}, got {self.splitter!r}")
        return SPLITTERS[self.splitter]

    def _check_split(self, train: RatingTable, test: RatingTable) -> None:
        """Refuse a split without training or without test ratings."""
        if len(train) and len(test):
            return
        per_user = " of a user" if self.splitter == "per_user" else ""
        enough = f": pass at least {math.ceil(1 / self.test_share)} ratings{per_user}, or a larger test_share"
        raise DataError(
            f"{len(train) + len(test)} ratings split with test_share={self.test_share} give {len(train)} training "
            f"and {len(test)} test ratings, but a split needs some of both{'' if callable(self.splitter) else enough}"
        )

    def _choices(self, base: MatrixCompletion) -> tuple[list[float | None], list[int]]:
        """Return the values of alpha, None first and then in decreasing order, and the numbers of factors."""
        given = GRIDS.get(base.statistics, [None]) if self.alphas is None else list(self.alphas)
        sizes = [base.n_components] if self.n_components is None else list(self.n_components)
        if not given or not sizes or self.n_splits < 1:
            raise ParameterError(
                "alphas and n_components must not be empty, and n_splits must be >= 1, got "
                f"alphas={given}, n_components={sizes}, n_splits={self.n_splits}"
            )
        return sorted(given, key=lambda alpha: -np.inf if alpha is None else -alpha), sizes


def path_errors(
    base: MatrixCompletion, train: RatingTable, test: RatingTable, alphas: Sequence[float | None], size: int, seed: int
) -> list[tuple[float | None, float]]:
    """Return the RMSE on ``test`` for each alpha, with fits on ``train`` that each start from the previous one."""
    train, test = oriented(train, base.stream), oriented(test, base.stream)
    low, high = float(train.values.min()), float(train.values.max())
    found: list[tuple[float | None, float]] = []
    start: StateDict | None = None
    for alpha in alphas:
        method: Any = method_of(clone(base).set_params(alpha=alpha, n_components=size), seed)
        if start is not None:
            method = replace(method, n_epochs=max(1.0, WARM_START_SHARE * method.n_epochs))
        state = method.learn(train, start=start)
        with Threads(method.n_threads) as threads:
            model = method.item_model(state).with_users(method.codes(state, train, threads))
            predicted = model.predict(test.users, test.items, threads)
        found.append((alpha, rmse(np.clip(predicted, low, high) if base.clip else predicted, test.values)))
        start = state.warm_start() if alpha is not None else None  # without alpha, the state has other priors
    return found
