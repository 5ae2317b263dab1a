"""The loop: options, state, step (Algorithm 1 of the paper), fit, stopping, callbacks."""

from terafactor.solver.callbacks import Callback, Evaluation, Snapshot
from terafactor.solver.encode import encode, encode_to, objective
from terafactor.solver.fit import fit, starting_atoms
from terafactor.solver.options import SolverOptions
from terafactor.solver.plan import Memory, Plan, make_plan
from terafactor.solver.state import BatchSums, SurrogateState
from terafactor.solver.step import step

__all__ = [
    "BatchSums",
    "Callback",
    "Evaluation",
    "Memory",
    "Plan",
    "Snapshot",
    "SolverOptions",
    "SurrogateState",
    "encode",
    "encode_to",
    "fit",
    "make_plan",
    "objective",
    "starting_atoms",
    "step",
]
