"""How much of the past the statistics remember.

A schedule answers one question: how many times shorter than the whole past is the window over which the statistics
average? This *gain* is 1 when they are plain means of everything seen. A batch of b rows then enters with the weight
``gain * b / rows seen``, and a feature with ``gain * its rows in the batch / its rows so far``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from terafactor._typing import is_number
from terafactor.errors import ParameterError


class Schedule(Protocol):
    """Decides how fast the past is forgotten."""

    def gain(self, n_steps: int, n_visits: float) -> float:
        """Return the length of the past over the length of the window, at least 1.

        n_steps: steps done, this one included. n_visits: rows in which a feature was seen so far, on average over the
        features; without masks and missing values, the rows seen.
        """


@dataclass(frozen=True)
class PowerDecay:
    """The weights of the paper: step t has the weight ``t ** -exponent``.

    With exponent 1 the statistics are plain means over all samples; smaller exponents forget faster the codes
    computed with the poor dictionaries of the beginning. Convergence is proved on (0.75, 1].
    """

    exponent: float = 0.9
    """Between 0.5 (excluded) and 1."""

    def __post_init__(self) -> None:
        if not (is_number(self.exponent) and 0.5 < self.exponent <= 1):
            raise ParameterError(
                f"forgetting must be 'auto', or a number above 0.5 and at most 1, got {self.exponent!r} "
                "(1 keeps all of the past)"
            )

    def weight(self, n_steps: int) -> float:
        """Return the weight of the step number ``n_steps``, the first being 1."""
        return float(n_steps**-self.exponent)

    def gain(self, n_steps: int, n_visits: float) -> float:
        return self.weight(n_steps) * n_steps


@dataclass(frozen=True)
class GrowingWindow:
    r"""A window of about :math:`\sqrt{u R}` rows after R rows: short while atoms move, longer as they settle.

    Why the square root. Atoms estimated from N rows have an error from noise of about k / N. Codes that are up to N
    rows old are wrong by what was learned meanwhile, which after R rows falls like N / R. The two balance at
    :math:`N \propto \sqrt{k R}`, so the unit u is a multiple of k. Counting rows, and not steps, makes the memory
    independent of the batch size. On finite data a window that reaches beyond a pass only adds codes that are out of
    date.

    Where each feature is seen in some of the rows only, its part of the statistics and that of the codes average over
    different rows. That error is relative to the signal, not to the noise, and wants the window to grow faster.
    """

    unit: float
    """Rows at which the window starts to be shorter than the past."""

    longest: float = math.inf
    """Rows above which the window does not grow."""

    exponent: float = 0.51
    """Growth of the window: the square root, and just enough more for the squares of the weights to have a sum."""

    def gain(self, n_steps: int, n_visits: float) -> float:
        window = min(self.unit * (n_visits / self.unit) ** self.exponent, self.longest)
        return max(1.0, n_visits / window)
