"""When the surrogate has settled."""

from __future__ import annotations

from terafactor.solver.state import SurrogateState

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

    def is_due(self, before: int, n_steps: int) -> bool:
        """Whether the surrogate is to be computed after this number of steps, having been asked ``before``."""
        return self.tol > 0 and n_steps // self.period > before // self.period

    def update(self, state: SurrogateState, surrogate: float) -> None:
        """Take a value of the surrogate, kept in the state so that a resumed fit stops where it would have."""
        state.surrogates = [*state.surrogates, surrogate][-2 * WINDOW :]
        state.n_settled = state.n_settled + 1 if self._is_level(state.surrogates) else 0

    def has_settled(self, state: SurrogateState) -> bool:
        """Whether the last values taken, be it before an interruption and with another tolerance, showed no change."""
        return self.tol > 0 and state.n_settled >= 2 and self._is_level(state.surrogates)

    def _is_level(self, surrogates: list[float]) -> bool:
        """Whether the later of two windows differs little from the earlier one."""
        if len(surrogates) < 2 * WINDOW:
            return False
        before, recent = (sum(half) / WINDOW for half in (surrogates[:WINDOW], surrogates[WINDOW:]))
        return abs(recent - before) <= self.tol * max(abs(recent), abs(before))
