"""Training: open the data, hold out rows, learn, save; with or without a run directory."""

from terafactor.training.model_file import load_model
from terafactor.training.run_report import report_runs
from terafactor.training.task import Start, Task
from terafactor.training.trainer import Trainer, train

__all__ = ["Start", "Task", "Trainer", "load_model", "report_runs", "train"]
