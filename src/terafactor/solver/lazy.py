"""What the exact projection remembers between steps, so that entries outside the mask wait for their next visit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terafactor._threads import Executor
from terafactor._typing import Array, Indices
from terafactor.kernels import _blas
from terafactor.kernels.atoms import block_width
from terafactor.kernels.lazy import bring_atoms, bring_rows, remove_entries, sweep_exact
from terafactor.kernels.lazy_levels import Levels, Members, open_levels
from terafactor.solver.position import Position

HORIZON = 1.5
"""How far buckets of levels reach at the beginning of a cycle, in units of what the cycle before passed."""

LARGEST_SCALE = 1e60
"""Scale above which rows are brought up to date before the end of the cycle: its square stays far from overflow."""

LARGEST_SCALE_OF_BUCKETS = 16.0
"""The same where levels are in buckets: they grow with the scale, and would crowd in the first of equal buckets."""


@dataclass
class LazyAtoms:
    """The maps that atoms went through since their rows were written, in arrays and counters.

    A cycle begins with all rows up to date. Each step brings the rows of its mask up to date, moves them, and writes
    them; all rows are brought up to date at the end of the cycle of masks, or before a row would be written twice.
    """

    written: Indices
    """Step of the cycle that wrote each row of the dictionary (p,), int32; 0: before the cycle."""

    thresholds: Array
    """Cumulative threshold of each atom after each step of the cycle (steps + 1, k), float64."""

    scales: Array
    """Cumulative scale, likewise."""

    levels: Levels
    """Levels of the entries outside the mask, see kernels/lazy_levels.py."""

    members: Members
    """Members of the buckets of levels."""

    step: int = 0
    """Steps done in this cycle."""

    paused: Array | None = None
    """Between two fits that part in the middle of a cycle: the dictionary (k, p) as written."""

    @classmethod
    def start(cls, shape: tuple[int, ...], cycle_length: int) -> LazyAtoms:
        """Return what is known before the first step: that all rows are up to date. shape: (k, p)."""
        n_components, n_features = shape
        n_buckets = max(64, 4 * cycle_length)  # so that one has a fraction of the levels that a step writes
        origin, horizon, rate = np.zeros((3, n_components))
        return cls(
            written=np.zeros(n_features, np.int32),
            thresholds=np.zeros((cycle_length + 1, n_components)),
            scales=np.ones((cycle_length + 1, n_components)),
            levels=Levels(
                above=np.zeros((n_components, 3)),
                near=np.zeros((n_components, n_buckets, 3)),
                head=np.full((n_components, n_buckets), -1),
                place=np.zeros(n_components, np.int64),
                origin=origin,
                horizon=horizon,
                rate=rate,
                work=np.zeros((n_components, 2), np.int64),
            ),
            members=Members(np.empty(0), np.empty(0, np.int32), np.empty(0, np.int64), np.zeros(1, np.int64)),
        )

    def position(self) -> Position:
        """Return all of it by name; the arrays are shared, not copied."""
        arrays = {"written": self.written, "thresholds": self.thresholds, "scales": self.scales}
        arrays |= {f"levels.{name}": value for name, value in self.levels._asdict().items()}
        used = int(self.members.used[0])  # what lies behind is room, with anything in it
        arrays |= {f"members.{name}": getattr(self.members, name)[:used] for name in ("level", "feature", "following")}
        arrays["members.used"] = self.members.used
        if self.paused is not None:
            arrays["paused"] = self.paused
        return Position({"step": self.step}, arrays)

    @classmethod
    def at(cls, position: Position, shape: tuple[int, int]) -> LazyAtoms:
        """Return what a position of a dictionary (k, p) remembers."""
        k, p = shape
        thresholds = position.array("thresholds", (None, k), np.float64)
        levels, members = position.part("levels"), position.part("members")
        head = levels.array("head", (k, None), np.int64)
        level = members.array("level", (None,), np.float64)
        n_members = len(level)
        return cls(
            written=position.array("written", (p,), np.int32),
            thresholds=thresholds,
            scales=position.array("scales", thresholds.shape, np.float64),
            levels=Levels(
                above=levels.array("above", (k, 3), np.float64),
                near=levels.array("near", (k, head.shape[1], 3), np.float64),
                head=head,
                place=levels.array("place", (k,), np.int64),
                origin=levels.array("origin", (k,), np.float64),
                horizon=levels.array("horizon", (k,), np.float64),
                rate=levels.array("rate", (k,), np.float64),
                work=levels.array("work", (k, 2), np.int64),
            ),
            members=Members(
                level,
                members.array("feature", (n_members,), np.int32),
                members.array("following", (n_members,), np.int64),
                members.array("used", (1,), np.int64),
            ),
            step=position.number("step"),
            paused=position.array("paused", shape, np.float32, np.float64) if "paused" in position.arrays else None,
        )

    @property
    def cycle_length(self) -> int:
        """Steps that the history of maps has room for."""
        return len(self.thresholds) - 1

    def prepare(self, dictionary: Array, columns: Indices, executor: Executor) -> None:
        """Make ready for a step on ``columns``: their rows will be those that the cycle began with."""
        largest = LARGEST_SCALE_OF_BUCKETS if self.levels.horizon.any() else LARGEST_SCALE
        if self.written[columns].any() or self.scales[self.step].max() > largest:
            self.settle(dictionary, executor)
        if self.step == 0:
            self.members = open_levels(dictionary.T, self.levels, self.members)

    def up_to_date(self, atoms: Array) -> Array:
        """Return the atoms on the mask (k, s), given as written."""
        out = np.empty_like(atoms)
        bring_atoms(atoms, self.thresholds[self.step], self.scales[self.step], out)
        return out

    def sweep(
        self,
        as_written: Array,
        atoms: Array,
        data_code: Array,
        code_gram: Array,
        ball: tuple[float, float, float, bool],
        multipliers: Array,
        dictionary: Array,
        columns: Indices,
    ) -> None:
        """Sweep once over all atoms on the mask, each move followed by the projection of the whole atom.

        as_written (k, s): the mask's part of ``dictionary`` (k, p), and atoms (k, s) in/out: the same up to date;
        data_code (k, s); code_gram (k, k) float64; ball: weight of l1, weight of l2, limit, positive; multipliers
        (k,) in/out. The caller then writes the atoms to the dictionary.
        """
        self.step += 1
        self.thresholds[self.step] = self.thresholds[self.step - 1]
        self.scales[self.step] = self.scales[self.step - 1]
        self.written[columns] = self.step
        remove_entries(self.levels, as_written)
        candidates = np.empty((block_width(len(atoms)), atoms.shape[1]), atoms.dtype)
        self.members = sweep_exact(
            _blas.address("gemm", atoms.dtype), atoms, data_code, code_gram, candidates, *ball, multipliers,
            dictionary.T, self.written, self.thresholds, self.scales, self.step, self.levels, self.members,
        )  # fmt: skip

    def finish(self, dictionary: Array, executor: Executor) -> None:
        """End the cycle if it was its last step."""
        if self.step == self.cycle_length:
            self.settle(dictionary, executor)

    def settle(self, dictionary: Array, executor: Executor) -> None:
        """Bring all rows of the dictionary (k, p), in/out, up to date, and begin a new cycle."""
        self._bring(dictionary, executor)
        self.levels.horizon[:] = HORIZON * self.thresholds[self.step]
        self.written[:] = 0
        self.step = 0

    def current(self, dictionary: Array, executor: Executor) -> Array:
        """Return the dictionary (k, p) up to date: a copy, or itself where no row waits."""
        if self.paused is not None or self.step == 0:
            return dictionary
        copy = dictionary.copy(order="K")
        self._bring(copy, executor)
        return copy

    def _bring(self, dictionary: Array, executor: Executor) -> None:
        past = slice(self.step + 1)
        since_threshold = (self.thresholds[self.step] - self.thresholds[past]) / self.scales[past]
        since_scale = self.scales[past] / self.scales[self.step]
        executor.split(
            lambda start, stop: bring_rows(dictionary.T, self.written, since_threshold, since_scale, start, stop),
            dictionary.shape[1],
        )

    def pause(self, dictionary: Array, executor: Executor) -> Array:
        """Return the dictionary up to date, keeping it as written to go on from: rounding then happens once."""
        current = self.current(dictionary, executor)
        if current is not dictionary:
            self.paused = dictionary
        return current

    def resume(self, dictionary: Array) -> Array:
        """Return the dictionary that was kept, or the one given."""
        kept, self.paused = self.paused, None
        return dictionary if kept is None else kept
