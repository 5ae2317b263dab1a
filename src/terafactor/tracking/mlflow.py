"""MLflow."""

from __future__ import annotations

from terafactor.data.sources.formats import require
from terafactor.tracking.tracker import Tracker


class MLflowCallback(Tracker):
    """Callback that logs the history to the active run of MLflow; MLflow starts one where none is.

    Where and under which name is for MLflow to know: ``mlflow.set_tracking_uri``, ``mlflow.start_run``.

    Parameters
    ----------
    prefix : str, default=""
        What the names of metrics begin with.
    interval : float, default=10
        Seconds between two lines where the fit has no held-out rows, whose evaluations are logged anyway.

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
