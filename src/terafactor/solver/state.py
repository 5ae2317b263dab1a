"""The state of the algorithm between steps: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.problem import Problem
from terafactor.solver.state_dict import StateDict, array_of, restore, to_state_dict


def _parse_checks(given: Sequence[Sequence[float]]) -> list[tuple[int, float]]:
    return [(int(rows), float(value)) for rows, value in given]


@dataclass
class State:
    """All arrays and counters of a fit. It is saved in checkpoints, sent to workers and merged with other states.

    Matrices over features have the logical shape (k, p). The learner sets their memory order: F if its steps read and
    write only some of the features, C if they work on whole atoms.

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
    """Last positive Lagrange multiplier of each atom's projection, where searches start; not used for the l2 ball."""

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

    checks: list[tuple[int, float]] = field(default_factory=list, metadata={"parse": _parse_checks})
    """(rows seen, objective on a sample of rows) of the last convergence checks."""

    intact: bool = field(default=True, metadata={"saved": False})
    """False while ``partial_fit`` changes the state in place; it stays False if ``partial_fit`` fails."""

    @classmethod
    def start(cls, dictionary: Array, problem: Problem) -> Self:
        """Return the state before the first step, in order C.

        dictionary (k, p): inside the constraint; the state takes ownership.
        """
        k, p = dictionary.shape
        return cls(
            dictionary=np.ascontiguousarray(dictionary),
            data_code=np.zeros((k, p), dictionary.dtype),
            code_gram=np.zeros((k, k)),
            feature_counts=np.zeros(p, np.int64),
            sizes=problem.constraint.psi(dictionary),
            multipliers=np.zeros(k),
            idle_rows=np.zeros(k, np.int64),
        )

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

    def become(self, other: Self) -> None:
        """Replace the fields with those of another state, which must not be used afterwards."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

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


def merge(left: State, right: State, before: State, problem: Problem) -> State:
    """Merge two states that were advanced from the same state, ``before``, on different rows; change neither.

    Atoms and C are averaged by the rows that each state has seen since ``before``, B per feature by its own counts;
    atoms stay inside the ball, which is convex. Counters are added up. The result can be merged again, so a
    tree of merges combines any number of states.
    """
    rows = np.array([left.n_samples - before.n_samples, right.n_samples - before.n_samples])
    share = rows[1] / max(rows.sum(), 1)
    counts = np.stack([left.feature_counts - before.feature_counts, right.feature_counts - before.feature_counts])
    by_feature = (counts[1] / np.maximum(counts.sum(axis=0), 1)).astype(left.data_code.dtype)
    unused = (left.idle_rows == before.idle_rows + rows[0]) & (right.idle_rows == before.idle_rows + rows[1])
    dictionary = _between(left.dictionary, right.dictionary, left.dictionary.dtype.type(share))
    return replace(
        left,
        dictionary=dictionary,
        data_code=_between(left.data_code, right.data_code, by_feature),
        code_gram=_between(left.code_gram, right.code_gram, share),
        multipliers=_between(left.multipliers, right.multipliers, share),
        mean_penalty=float(_between(left.mean_penalty, right.mean_penalty, share)),
        sizes=problem.constraint.psi(dictionary),
        feature_counts=left.feature_counts + counts[1],
        idle_rows=np.where(unused, before.idle_rows + rows.sum(), np.minimum(left.idle_rows, right.idle_rows)),
        n_steps=left.n_steps + right.n_steps - before.n_steps,
        n_batches=left.n_batches + right.n_batches - before.n_batches,
        n_samples=left.n_samples + right.n_samples - before.n_samples,
    )


def _between(left: Any, right: Any, share: Any) -> Any:
    """Return ``(1 - share) * left + share * right``."""
    return left + share * (right - left)
