"""What survives the process: run directory, training, checkpoints, metrics, model files."""

from terafactor.runs.artifact import Artifact, read_artifact, write_artifact
from terafactor.runs.checkpoint import CheckpointPolicy
from terafactor.runs.directory import RunDirectory
from terafactor.runs.train import Trainable, train

__all__ = [
    "Artifact",
    "CheckpointPolicy",
    "RunDirectory",
    "Trainable",
    "read_artifact",
    "train",
    "write_artifact",
]
