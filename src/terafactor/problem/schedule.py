"""Decay of the statistics.

The statistics average over a window of recent rows. A schedule returns the *gain*: the number of rows seen divided by
the length of the window, 1 for a plain mean over all rows. A batch of b rows enters with the weight
``gain * b / rows seen``, and each feature with ``gain * its rows in the batch / its rows so far``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from terafactor._typing import is_number
from terafactor.errors import ParameterError


class Schedule(Protocol):
    """Interface of the decay: how fast the statistics forget.

    Examples
    --------
    >>> from terafactor.problem import Schedule
    >>> class PlainMean:
    ...     def gain(self, n_steps, n_visits):
    ...         return 1.0
    >>> schedule: Schedule = PlainMean()
    """

    def gain(self, n_steps: int, n_visits: float) -> float:
        """Return the gain, at least 1.

        n_steps: steps done, including this one. n_visits: mean over features of the number of rows that observed
        them; without masks and missing values, the rows seen.
        """


@dataclass(frozen=True)
class PowerDecay:
    """The weights of the paper: with batches of equal size, step t has the weight ``t ** -exponent``.

    With exponent 1 the statistics are plain means over all rows; smaller exponents forget sooner the codes computed
    with the poor first dictionaries. Convergence is proved for exponents in (0.75, 1].

    Examples
    --------
    >>> from terafactor.problem import PowerDecay
    >>> PowerDecay(exponent=1).gain(n_steps=100, n_visits=4000)  # a plain mean
    1.0
    """

    exponent: float = 0.9
    """Between 0.5 (excluded) and 1."""

    def __post_init__(self) -> None:
        if not (is_number(self.exponent) and 0.5 < self.exponent <= 1):
            raise ParameterError(
                f"forgetting must be 'auto', or a number above 0.5 and at most 1, got {self.exponent!r} "
                "(1 forgets nothing)"
            )

    def weight(self, n_steps: int) -> float:
        """Return the weight of step ``n_steps``, counted from 1."""
        return float(n_steps**-self.exponent)

    def gain(self, n_steps: int, n_visits: float) -> float:
        """Return the gain, at least 1: see :meth:`Schedule.gain`."""
        return self.weight(n_steps) * n_steps


@dataclass(frozen=True)
class GrowingWindow:
    r"""A window of about :math:`\sqrt{u R}` rows after R rows: short while atoms move, longer as they converge.

    Why the square root. Atoms estimated from N rows have an error from noise of about k / N. Codes that are up to N
    rows old are outdated by what was learned since, an error that falls like N / R. The two balance at
    :math:`N \propto \sqrt{k R}`, so the unit u is a multiple of k. Counting rows instead of steps makes the window
    independent of the batch size. On finite data, a window longer than a pass only adds outdated codes.

    If each feature is observed in some of the rows only, its column of B and the matrix C average over different rows.
    The resulting error is proportional to the signal, not to the noise, and requires the window to grow faster.

    Examples
    --------
    >>> from terafactor.problem import GrowingWindow
    >>> window = GrowingWindow(unit=100)
    >>> window.gain(n_steps=1, n_visits=100), round(window.gain(n_steps=100, n_visits=10_000), 2)
    (1.0, 9.55)
    """

    unit: float
    """Number of rows after which the window is shorter than all rows seen."""

    longest: float = math.inf
    """Longest window, in rows."""

    exponent: float = 0.51
    """Growth of the window: slightly more than the square root, so that the squared weights have a finite sum."""

    def gain(self, n_steps: int, n_visits: float) -> float:
        """Return the gain, at least 1: see :meth:`Schedule.gain`."""
        window = min(self.unit * (n_visits / self.unit) ** self.exponent, self.longest)
        return max(1.0, n_visits / window)


SHARD_EXPONENT = 0.75
"""With 1, merged statistics average over as many rows as those of a fit without shards, but the atoms of each shard
follow few rows of its own; with 0, merged statistics remember the poor first codes for too long. See docs/clusters.md
for measurements."""


@dataclass(frozen=True)
class ShardSchedule:
    """Decay for one of several shards that learn at the same time: its rows count for those of the others, too.

    Examples
    --------
    >>> round(ShardSchedule(PowerDecay(exponent=1), shards=4).gain(n_steps=100, n_visits=4000), 2)
    2.83
    """

    base: Schedule
    """Decay of the fit."""

    shards: int

    def gain(self, n_steps: int, n_visits: float) -> float:
        """Return the gain, at least 1: see :meth:`Schedule.gain`."""
        return self.shards**SHARD_EXPONENT * self.base.gain(n_steps, n_visits)
