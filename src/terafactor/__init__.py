"""Factorize matrices larger than memory.

``X (n x p) ~ codes (n x k) @ components (k x p)`` by online dictionary learning: each step reads a few rows and,
if masks are used, only a part of their features.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from terafactor.data import ArraySource, MatrixSource, PatchSource, open_source, pack
    from terafactor.dictionary import MaskedDictionaryLearning
    from terafactor.problem import ElasticNet, NormBall, RandomMasks
    from terafactor.ratings import MatrixCompletion, MatrixCompletionCV, RatingTable
    from terafactor.runs import CheckpointPolicy
    from terafactor.solver import Evaluation, Snapshot
    from terafactor.training import load_model, report_runs, train

__version__ = "0.1.0"

_HOMES = {
    "ArraySource": "terafactor.data",
    "CheckpointPolicy": "terafactor.runs",
    "ElasticNet": "terafactor.problem",
    "Evaluation": "terafactor.solver",
    "MaskedDictionaryLearning": "terafactor.dictionary",
    "MatrixCompletion": "terafactor.ratings",
    "MatrixCompletionCV": "terafactor.ratings",
    "MatrixSource": "terafactor.data",
    "NormBall": "terafactor.problem",
    "PatchSource": "terafactor.data",
    "RandomMasks": "terafactor.problem",
    "RatingTable": "terafactor.ratings",
    "Snapshot": "terafactor.solver",
    "load_model": "terafactor.training",
    "open_source": "terafactor.data",
    "pack": "terafactor.data",
    "report_runs": "terafactor.training",
    "train": "terafactor.training",
}

__all__ = [
    "ArraySource",
    "CheckpointPolicy",
    "ElasticNet",
    "Evaluation",
    "MaskedDictionaryLearning",
    "MatrixCompletion",
    "MatrixCompletionCV",
    "MatrixSource",
    "NormBall",
    "PatchSource",
    "RandomMasks",
    "RatingTable",
    "Snapshot",
    "load_model",
    "open_source",
    "pack",
    "report_runs",
    "train",
]

KINDS = {
    "BrainDictionaryLearning": "terafactor.brain:BrainDictionaryLearning",
    "MaskedDictionaryLearning": "terafactor.dictionary:MaskedDictionaryLearning",
    "MatrixCompletion": "terafactor.ratings:MatrixCompletion",
}
"""Classes by the kind that a model file names. load_model creates no other classes."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'terafactor' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
