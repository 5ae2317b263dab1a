"""The optimization problem: penalties on codes, the constraint on atoms, masks, decay of the statistics."""

from terafactor.problem.constraint import NormBall
from terafactor.problem.masks import RandomMasks
from terafactor.problem.penalties import Penalty, ProximalPenalty
from terafactor.problem.penalties.elastic_net import ElasticNet
from terafactor.problem.penalties.group_lasso import GroupLasso
from terafactor.problem.penalties.omp import OMP
from terafactor.problem.penalties.simplex import Simplex
from terafactor.problem.penalties.top_k import TopK
from terafactor.problem.problem import Problem
from terafactor.problem.registry import register
from terafactor.problem.schedule import GrowingWindow, PowerDecay, Schedule
from terafactor.problem.smooth_ball import SmoothBall

__all__ = [
    "OMP",
    "ElasticNet",
    "GroupLasso",
    "GrowingWindow",
    "NormBall",
    "Penalty",
    "PowerDecay",
    "Problem",
    "ProximalPenalty",
    "RandomMasks",
    "Schedule",
    "Simplex",
    "SmoothBall",
    "TopK",
    "register",
]
