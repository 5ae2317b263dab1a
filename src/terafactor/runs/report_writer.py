"""The report of a run in progress: updated at checkpoints, within a share of the time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from terafactor._typing import Array
from terafactor.errors import MissingDependencyError
from terafactor.solver.callbacks import Snapshot

logger = logging.getLogger("terafactor")

SHARE = 0.01
"""Share of the time that reports may take.

Checkpoints at which the report would take more are skipped: with one checkpoint a minute, if a report takes more than
0.3 s, or 0.6 s in long runs.
"""

EXPECTED_SECONDS = 0.3
"""Expected seconds of the first report."""


class ReportWriter:
    """Callback that writes the report at checkpoints, and once more when :meth:`finish` is called.

    A report that fails is logged; it never ends the run.

    Parameters
    ----------
    write : callable taking atoms (k, p), or None for the finished model
    is_due : callable taking a Snapshot
        Returns whether a checkpoint was written at this step.
    """

    def __init__(self, write: Callable[[Array | None], object], is_due: Callable[[Snapshot], bool]) -> None:
        self.write = write
        self.is_due = is_due
        self.seconds_spent = 0.0
        self._started = time.monotonic()
        self._last_cost = EXPECTED_SECONDS
        self._unavailable = False

    def __call__(self, snapshot: Snapshot) -> None:
        if snapshot.stopped_by is None and self.is_due(snapshot) and self._is_affordable():
            self._try(lambda: self.write(snapshot._fit.atoms()))

    def _is_affordable(self) -> bool:
        """Return whether a report now and one at the end stay within the share."""
        return self.seconds_spent + 2 * self._last_cost <= SHARE * (time.monotonic() - self._started)

    def finish(self) -> None:
        """Write the report of the finished model."""
        self._try(lambda: self.write(None))

    def _try(self, write: Callable[[], object]) -> None:
        if self._unavailable:
            return
        started = time.monotonic()
        try:
            write()
        except MissingDependencyError as error:
            self._unavailable = True
            logger.info("%s", error)
        except Exception:
            logger.warning("the report could not be written; the run continues", exc_info=True)
        self._last_cost = time.monotonic() - started
        self.seconds_spent += self._last_cost
