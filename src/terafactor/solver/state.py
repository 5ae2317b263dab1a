"""What the algorithm remembers between steps: plain data."""

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
    """All the arrays and counters of a fit: saved in checkpoints, sent to workers, averaged with others.

    Matrices over features have the logical shape (k, p). Their memory order is part of the state; a learner sets the
    one that it needs: F where steps gather some of the features at a time, C where they work on whole atoms.
    """

    dictionary: Array = field(metadata=array_of("k p"))
    """Atoms, D in the paper."""

    data_code: Array = field(metadata=array_of("k p"))
    """Weighted mean of code times value, per atom and feature, B in the paper."""

    code_gram: Array = field(metadata=array_of("k k", np.float64))
    """Weighted mean of the products of codes, C in the paper."""

    feature_counts: Indices = field(metadata=array_of("p", np.int64))
    """Rows in which each feature was observed, E in the paper."""

    sizes: Array = field(metadata=array_of("k", np.float64))
    """What the ball bounds, for each atom over all features."""

    multipliers: Array = field(metadata=array_of("k", np.float64))
    """Where the search for each atom's projection starts."""

    idle_rows: Indices = field(metadata=array_of("k", np.int64))
    """Rows since each atom last had a nonzero code."""

    mean_penalty: float = 0.0
    """Weighted mean of the penalty of the codes."""

    n_steps: int = 0
    """Steps done; t in the paper."""

    n_batches: int = 0
    """Batches drawn, which numbers the masks."""

    n_samples: int = 0
    """Rows seen."""

    n_reseeded: int = 0
    """Unused atoms that were re-initialized."""

    checks: list[tuple[int, float]] = field(default_factory=list, metadata={"parse": _checks})
    """Rows seen and objective on a sample of rows at the last evaluations, when the fit may stop by them."""

    intact: bool = field(default=True, metadata={"saved": False})
    """False while a step is writing, and for good after one that failed half-way."""

    @classmethod
    def start(cls, dictionary: Array, problem: Problem, *, masked: bool) -> Self:
        """Return the state before the first step. dictionary (k, p), inside the constraint, becomes part of it.

        masked: steps will work on some of the features at a time.
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
        """Keep each atom (C) or each feature (F) contiguous in memory from now on."""
        self.dictionary, self.data_code = (
            np.asarray(matrix, order=order) for matrix in (self.dictionary, self.data_code)
        )

    def copy(self) -> Self:
        """Return a state that shares no array with this one."""
        arrays = {
            each.name: getattr(self, each.name).copy(order="K") for each in fields(self) if "shape" in each.metadata
        }
        return replace(self, **arrays, checks=list(self.checks))

    def prefix(self, n_features: int, problem: Problem) -> Self:
        """Return a state restricted to the first features, which shares no array with this one."""
        state = self.copy()
        state.dictionary, state.data_code = (
            np.array(matrix[:, :n_features], order="K") for matrix in (self.dictionary, self.data_code)
        )
        state.feature_counts = self.feature_counts[:n_features].copy()
        state.sizes = problem.constraint.psi(state.dictionary)
        return state

    def state_dict(self) -> StateDict:
        """Return all of it by name; the arrays are shared, not copied."""
        return to_state_dict(self)

    @classmethod
    def from_state_dict(cls, state_dict: StateDict) -> Self:
        """Return the state of a state_dict, refusing one whose parts do not belong together."""
        return restore(cls, state_dict)


def average(states: Sequence[State], before: State, problem: Problem) -> State:
    """Merge states that went on from the same one, ``before``, each on rows of its own.

    Statistics are weighted by the rows that each state has seen since, per feature where these differ; atoms likewise,
    and stay inside the ball, which is convex. Counts add up.
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
