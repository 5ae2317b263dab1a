"""What is minimised: penalty on codes, constraint on atoms, weights of the past. Frozen, lowered to scalars."""

from terafactor.problem.constraint import NormBall
from terafactor.problem.penalty import ElasticNet
from terafactor.problem.problem import Problem
from terafactor.problem.schedule import GrowingWindow, PowerDecay, Schedule

__all__ = ["ElasticNet", "GrowingWindow", "NormBall", "PowerDecay", "Problem", "Schedule"]
