"""The optimization problem: penalties on codes, the constraint on atoms, masks, decay of the statistics."""

from typing import Any

from terafactor.problem.constraints import NormBall, StructuredBall
from terafactor.problem.masks import RandomMasks
from terafactor.problem.penalties import Penalty, ProximalPenalty
from terafactor.problem.penalties.elastic_net import ElasticNet
from terafactor.problem.problem import Problem
from terafactor.problem.registry import REGISTERED, register
from terafactor.problem.schedule import GrowingWindow, PowerDecay, Schedule

__all__ = [
    "ElasticNet",
    "GrowingWindow",
    "NormBall",
    "Penalty",
    "PowerDecay",
    "Problem",
    "ProximalPenalty",
    "RandomMasks",
    "Schedule",
    "StructuredBall",
    "register",
]
__all__ += [name for name in REGISTERED if name not in __all__]


def __getattr__(name: str) -> Any:
    """Return a registered penalty or constraint, so that a new file needs no line here."""
    if name in REGISTERED:
        return REGISTERED[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
