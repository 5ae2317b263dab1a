"""What people look at while a run goes on: made anew with every checkpoint, within a share of the time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from terafactor._typing import Array
from terafactor.errors import MissingDependencyError
from terafactor.solver.callbacks import Snapshot

logger = logging.getLogger("terafactor")

SHARE = 0.01
"""Share of the time that showing a run may take.

A checkpoint at which that is not affordable is passed over: with one a minute, where showing takes more than 0.3 s, in
long runs 0.6 s.
"""

EXPECTED_SECONDS = 0.3
"""What the first time is expected to take."""


class Presenter:
    """Callback that shows the run at every checkpoint, and once more when :meth:`finish` is called.

    A run never fails because it cannot be shown: the log says so instead.

    Parameters
    ----------
    present : callable taking atoms (k, p), or None for the finished model
    is_due : callable taking a Snapshot
        Whether a checkpoint was written at this moment.
    """

    def __init__(self, present: Callable[[Array | None], object], is_due: Callable[[Snapshot], bool]) -> None:
        self.present = present
        self.is_due = is_due
        self.seconds_spent = 0.0
        self._started = time.monotonic()
        self._last = EXPECTED_SECONDS
        self._gave_up = False

    def __call__(self, snapshot: Snapshot) -> None:
        if snapshot.stopped_by is None and self.is_due(snapshot) and self._is_affordable():
            self._show(lambda: self.present(snapshot._fit.atoms()))

    def _is_affordable(self) -> bool:
        """Whether showing it now, and once more at the end, stays within the share."""
        return self.seconds_spent + 2 * self._last <= SHARE * (time.monotonic() - self._started)

    def finish(self) -> None:
        """Show the finished model."""
        self._show(lambda: self.present(None))

    def _show(self, show: Callable[[], object]) -> None:
        if self._gave_up:
            return
        started = time.monotonic()
        try:
            show()
        except MissingDependencyError as error:
            self._gave_up = True
            logger.info("%s", error)
        except Exception:
            logger.warning("the report could not be written; the run goes on", exc_info=True)
        self._last = time.monotonic() - started
        self.seconds_spent += self._last
