"""Callbacks that log the history of a fit to TensorBoard or MLflow: ``pip install 'terafactor[tracking]'``."""

from terafactor.tracking.mlflow import MLflowCallback
from terafactor.tracking.tensorboard import TensorBoardCallback

__all__ = ["MLflowCallback", "TensorBoardCallback"]
