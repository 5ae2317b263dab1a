"""When the surrogate has settled."""

from __future__ import annotations

WINDOW = 4
"""Values of the surrogate averaged on either side of a comparison."""

LEAST_STEPS = 10
"""Steps between two values, at the least: the change over a single step is noise."""


class SurrogateStop:
    """Stops when the mean surrogate changes by less than ``tol``, relatively, twice in a row.

    The surrogate is taken once per cycle of masks (several cycles when they are short), and means over ``WINDOW`` of
    these are compared with the means over the ``WINDOW`` before.

    Parameters
    ----------
    tol : float
        Relative change that counts as settled; 0 never stops.
    cycle_length : int
        Steps in which every feature is seen once.
    """

    def __init__(self, tol: float, cycle_length: int) -> None:
        self.tol = tol
        self.period = cycle_length * -(-LEAST_STEPS // cycle_length)
        self.values: list[float] = []
        self.settled = 0

    def is_due(self, n_steps: int) -> bool:
        """Whether the surrogate is to be computed after this step."""
        return self.tol > 0 and n_steps % self.period == 0

    def update(self, surrogate: float) -> bool:
        """Take a value of the surrogate; return whether to stop."""
        self.values.append(surrogate)
        if len(self.values) < 2 * WINDOW:
            return False
        recent = sum(self.values[-WINDOW:]) / WINDOW
        before = sum(self.values[-2 * WINDOW : -WINDOW]) / WINDOW
        scale = max(abs(recent), abs(before))
        self.settled = self.settled + 1 if abs(recent - before) <= self.tol * scale else 0
        return self.settled >= 2
