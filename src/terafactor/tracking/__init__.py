"""The history of a fit in TensorBoard or MLflow, for those who have them: ``pip install 'terafactor[tracking]'``."""

from terafactor.tracking.mlflow import MLflowCallback
from terafactor.tracking.tensorboard import TensorBoardCallback

__all__ = ["MLflowCallback", "TensorBoardCallback"]
