"""The loop: options, state, step (Algorithm 1 of the paper), fit, stopping, callbacks."""

from terafactor.solver.callbacks import Callback, Evaluation, Snapshot
from terafactor.solver.encode import encode, objective
from terafactor.solver.fit import fit
from terafactor.solver.options import SolverOptions
from terafactor.solver.state import BatchSums, SurrogateState
from terafactor.solver.step import step

__all__ = [
    "BatchSums",
    "Callback",
    "Evaluation",
    "Snapshot",
    "SolverOptions",
    "SurrogateState",
    "encode",
    "fit",
    "objective",
    "step",
]
