"""What the algorithm remembers between steps: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Self

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.problem import Problem
from terafactor.solver.position import Position, array_of, position_of, restore


def _checks(given: Sequence[Sequence[float]]) -> list[tuple[int, float]]:
    return [(int(rows), float(value)) for rows, value in given]


@dataclass
class State:
    """All the arrays and counters of a fit: saved in checkpoints, sent to workers, averaged with others.

    Matrices over features have the logical shape (k, p). Their memory order is part of the state: order F where
    steps work on some of the features at a time, order C where on all of them.
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
        self.dictionary = np.asarray(self.dictionary, order=order)
        self.data_code = np.asarray(self.data_code, order=order)

    def copy(self) -> Self:
        """Return a state that shares no array with this one."""
        arrays = {
            each.name: getattr(self, each.name).copy(order="K") for each in fields(self) if "shape" in each.metadata
        }
        return replace(self, **arrays, checks=list(self.checks))

    def prefix(self, n_features: int) -> Self:
        """Return the state restricted to the first features; matrices are views of those here."""
        return replace(
            self,
            dictionary=self.dictionary[:, :n_features],
            data_code=self.data_code[:, :n_features],
            feature_counts=self.feature_counts[:n_features],
        )

    def position(self) -> Position:
        """Return all of it by name; the arrays are shared, not copied."""
        return position_of(self)

    @classmethod
    def at(cls, position: Position) -> Self:
        """Return the state of a position, refusing one whose parts do not belong together."""
        return restore(cls, position)


def average(states: Sequence[State], problem: Problem) -> State:
    """Return the mean of states that went on from the same one, each on rows of its own.

    Statistics are weighted by the rows that each state has seen, per feature where these differ; atoms likewise, and
    stay inside the ball, which is convex.
    """
    rows = np.array([state.n_samples for state in states], np.float64)
    by_rows = rows / rows.sum()
    counts = np.stack([state.feature_counts for state in states]).astype(np.float64)
    by_feature = counts / np.maximum(counts.sum(axis=0), 1)
    first = states[0].copy()
    first.dictionary[:] = sum(w * state.dictionary for w, state in zip(by_rows, states, strict=True))
    first.data_code[:] = sum(w * state.data_code for w, state in zip(by_feature, states, strict=True))
    first.code_gram[:] = sum(w * state.code_gram for w, state in zip(by_rows, states, strict=True))
    first.idle_rows[:] = np.min([state.idle_rows for state in states], axis=0)
    first.mean_penalty = float(by_rows @ [state.mean_penalty for state in states])
    first.sizes = problem.constraint.psi(first.dictionary)
    return first
