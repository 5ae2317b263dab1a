"""Logging to TensorBoard."""

from __future__ import annotations

import os
from typing import Any

from terafactor.data.sources.formats import require
from terafactor.tracking.tracker import Tracker


class TensorBoardCallback(Tracker):
    """Callback that logs the history to TensorBoard, under ``terafactor/``.

    Parameters
    ----------
    log_dir : path
        Folder for the files that ``tensorboard --logdir`` reads.
    interval : float, default=10
        Seconds between two entries if the fit has no held-out rows. With them, every evaluation is logged.

    Examples
    --------
    >>> from terafactor import MaskedDictionaryLearning
    >>> from terafactor.tracking import TensorBoardCallback
    >>> estimator = MaskedDictionaryLearning(callbacks=[TensorBoardCallback("logs/first")])
    """

    def __init__(self, log_dir: str | os.PathLike[str], *, interval: float = 10.0) -> None:
        super().__init__(interval)
        self.log_dir = log_dir
        self._writer: Any = None

    def send(self, figures: dict[str, float], step: int) -> None:
        if self._writer is None:
            package = require("tensorboardX", extra="tracking", purpose="TensorBoardCallback")
            self._writer = package.SummaryWriter(os.fspath(self.log_dir))
        for name, value in figures.items():
            self._writer.add_scalar(f"terafactor/{name}", value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
