"""What is minimized: penalty on codes, constraint on atoms, weights of the past. Mathematics only, frozen."""

from terafactor.problem.constraint import NormBall
from terafactor.problem.penalty import ElasticNet, Penalty
from terafactor.problem.problem import Problem
from terafactor.problem.registry import register
from terafactor.problem.schedule import GrowingWindow, PowerDecay, Schedule

__all__ = ["ElasticNet", "GrowingWindow", "NormBall", "Penalty", "PowerDecay", "Problem", "Schedule", "register"]
