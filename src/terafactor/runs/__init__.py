"""Run directories, checkpoints, metrics and model files."""

from terafactor.runs.artifact import Artifact, read_artifact, write_artifact
from terafactor.runs.checkpoint import CheckpointPolicy
from terafactor.runs.directory import RunDirectory

__all__ = ["Artifact", "CheckpointPolicy", "RunDirectory", "read_artifact", "write_artifact"]
