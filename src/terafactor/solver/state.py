"""The state of the algorithm between steps: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Self

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.problem import Problem
from terafactor.solver.state_dict import StateDict, array_of, restore, to_state_dict


def _checks(given: Sequence[Sequence[float]]) -> list[tuple[int, float]]:
    return [(int(rows), float(value)) for rows, value in given]


@dataclass
class State:
    """All arrays and counters of a fit. It is saved in checkpoints, sent to workers and averaged with other states.

    Matrices over features have the logical shape (k, p). The learner sets their memory order: F if steps gather some
    of the features, C if they work on whole atoms.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> from terafactor.solver import SolverOptions, fit
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> state = fit(open_source(X), Problem(0.1), SolverOptions(n_components=3))
    >>> state.dictionary.shape, state.code_gram.shape, state.n_batches
    ((3, 10), (3, 3), 5)
    """

    dictionary: Array = field(metadata=array_of("k p"))
    """Atoms, D in the paper."""

    data_code: Array = field(metadata=array_of("k p"))
    """Weighted mean of code times value per atom and feature, B in the paper."""

    code_gram: Array = field(metadata=array_of("k k", np.float64))
    """Weighted mean of the products of codes, C in the paper."""

    feature_counts: Indices = field(metadata=array_of("p", np.int64))
    """Number of rows in which each feature was observed, E in the paper."""

    sizes: Array = field(metadata=array_of("k", np.float64))
    """psi of each atom over all features: the quantity that the ball bounds."""

    multipliers: Array = field(metadata=array_of("k", np.float64))
    """Lagrange multiplier of each atom's last projection, where the next search starts."""

    idle_rows: Indices = field(metadata=array_of("k", np.int64))
    """Rows since each atom last had a nonzero code."""

    mean_penalty: float = 0.0
    """Weighted mean of Omega of the codes."""

    n_steps: int = 0
    """Steps done, t in the paper."""

    n_batches: int = 0
    """Batches drawn; also the number of the next mask."""

    n_samples: int = 0
    """Rows seen."""

    n_reseeded: int = 0
    """Unused atoms that were re-initialized."""

    checks: list[tuple[int, float]] = field(default_factory=list, metadata={"parse": _checks})
    """(rows seen, objective on a sample of rows) of the last convergence checks."""

    intact: bool = field(default=True, metadata={"saved": False})
    """False while ``partial_fit`` changes the state of a model in place, and forever after a failure."""

    @classmethod
    def start(cls, dictionary: Array, problem: Problem, *, masked: bool) -> Self:
        """Return the state before the first step.

        dictionary (k, p): inside the constraint; the state takes ownership. masked: whether steps update the
        statistics of some of the features at a time.
        """
        k, p = dictionary.shape
        state = cls(
            dictionary=dictionary,
            data_code=np.zeros((k, p), dictionary.dtype, order="F" if masked else "C"),
            code_gram=np.zeros((k, k)),
            feature_counts=np.zeros(p, np.int64),
            sizes=problem.constraint.psi(dictionary),
            multipliers=np.zeros(k),
            idle_rows=np.zeros(k, np.int64),
        )
        state.set_order("F" if masked else "C")
        return state

    def set_order(self, order: Literal["C", "F"]) -> None:
        """Store the matrices with contiguous atoms (C) or contiguous features (F)."""
        self.dictionary, self.data_code = (
            np.asarray(matrix, order=order) for matrix in (self.dictionary, self.data_code)
        )

    def copy(self) -> Self:
        """Return a copy that shares no array with this state."""
        arrays = {
            each.name: getattr(self, each.name).copy(order="K") for each in fields(self) if "shape" in each.metadata
        }
        return replace(self, **arrays, checks=list(self.checks))

    def prefix(self, n_features: int, problem: Problem) -> Self:
        """Return a copy restricted to the first ``n_features`` features."""
        state = self.copy()
        state.dictionary, state.data_code = (
            np.array(matrix[:, :n_features], order="K") for matrix in (self.dictionary, self.data_code)
        )
        state.feature_counts = self.feature_counts[:n_features].copy()
        state.sizes = problem.constraint.psi(state.dictionary)
        return state

    def state_dict(self) -> StateDict:
        """Return all fields by name. Arrays are shared, not copied."""
        return to_state_dict(self)

    @classmethod
    def from_state_dict(cls, state_dict: StateDict) -> Self:
        """Return the state that a state dict holds; refuse arrays whose shapes or types do not fit each other."""
        return restore(cls, state_dict)


def average(states: Sequence[State], before: State, problem: Problem) -> State:
    """Merge states that were advanced from the same state, ``before``, each on its own rows.

    Statistics are weighted by the rows that each state has seen since ``before``, per feature where these differ. So
    are the atoms: they stay inside the ball, which is convex. Counts are summed.
    """
    rows = np.array([state.n_samples - before.n_samples for state in states], np.float64)
    counts = np.stack([state.feature_counts - before.feature_counts for state in states])
    by_rows = rows / rows.sum() if rows.any() else np.full(len(states), 1 / len(states))
    by_feature = np.where(counts.any(axis=0), counts / np.maximum(counts.sum(axis=0), 1), 1 / len(states))
    merged = before.copy()
    merged.dictionary[:] = _weighted(by_rows, [state.dictionary for state in states])
    merged.data_code[:] = _weighted(by_feature, [state.data_code for state in states])
    merged.code_gram[:] = _weighted(by_rows, [state.code_gram for state in states])
    merged.multipliers[:] = _weighted(by_rows, [state.multipliers for state in states])
    merged.mean_penalty = float(by_rows @ [state.mean_penalty for state in states])
    merged.idle_rows[:] = np.min([state.idle_rows for state in states], axis=0)
    merged.feature_counts += counts.sum(axis=0)
    merged.sizes = problem.constraint.psi(merged.dictionary)
    merged.n_steps = max(state.n_steps for state in states)
    for name in ("n_samples", "n_batches", "n_reseeded"):
        start = getattr(before, name)
        setattr(merged, name, start + sum(getattr(state, name) - start for state in states))
    return merged


def _weighted(weights: Array, matrices: Sequence[Array]) -> Array:
    return sum(weight * matrix for weight, matrix in zip(weights, matrices, strict=True))
