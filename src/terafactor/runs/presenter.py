"""What people look at while a run goes on, kept fresh within a share of the time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from terafactor._typing import Array
from terafactor.errors import MissingDependencyError
from terafactor.solver.callbacks import Snapshot

logger = logging.getLogger("terafactor")

SHARE = 0.01
"""Share of the time that showing a run may take; one that is over before that is affordable is shown at its end."""

EXPECTED_SECONDS = 0.3
"""What the first time is expected to take."""


class Presenter:
    """Callback that shows the run now and then, and once more when :meth:`finish` is called.

    A run never fails because it cannot be shown: the log says so instead.

    Parameters
    ----------
    present : callable taking atoms (k, p), or None for the finished model
    interval : float
        Seconds from one time to the next, at least; more where :data:`SHARE` asks for it.
    """

    def __init__(self, present: Callable[[Array | None], object], *, interval: float = 10.0) -> None:
        self.present = present
        self.interval = interval
        self.seconds_spent = 0.0
        self._started = self._shown = time.monotonic()
        self._last = EXPECTED_SECONDS
        self._gave_up = False

    def __call__(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        expected = self.seconds_spent + 2 * self._last  # now, and once more at the end
        affordable = expected <= SHARE * (now - self._started)
        if snapshot.stopped_by is None and affordable and now - self._shown >= self.interval:
            self._show(lambda: self.present(snapshot._learner.atoms()))

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
        self._shown = time.monotonic()
        self._last = self._shown - started
        self.seconds_spent += self._last
