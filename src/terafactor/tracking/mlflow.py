"""Logging to MLflow."""

from __future__ import annotations

from terafactor.data.sources.formats import require
from terafactor.tracking.tracker import Tracker


class MLflowCallback(Tracker):
    """Callback that logs the history to the active MLflow run; MLflow starts a run if there is none.

    Set server and run name in MLflow: ``mlflow.set_tracking_uri``, ``mlflow.start_run``.

    Parameters
    ----------
    prefix : str, default=""
        Prefix of the metric names.
    interval : float, default=10
        Seconds between two entries if the fit has no held-out rows. With them, every evaluation is logged.

    Examples
    --------
    >>> from terafactor import MaskedDictionaryLearning
    >>> from terafactor.tracking import MLflowCallback
    >>> estimator = MaskedDictionaryLearning(callbacks=[MLflowCallback(prefix="first/")])
    """

    def __init__(self, *, prefix: str = "", interval: float = 10.0) -> None:
        super().__init__(interval)
        self.prefix = prefix

    def send(self, figures: dict[str, float], step: int) -> None:
        mlflow = require("mlflow", extra="tracking", purpose="MLflowCallback")
        mlflow.log_metrics({f"{self.prefix}{name}": value for name, value in figures.items()}, step=step)
