"""The loop: options, state, step (Algorithm 1 of the paper), fit, stopping, callbacks."""

from terafactor.solver.backends import use_backend
from terafactor.solver.callbacks import Callback, Evaluation, Snapshot
from terafactor.solver.encode import encode, encode_to, objective
from terafactor.solver.fit import fit, starting_atoms
from terafactor.solver.options import SolverOptions
from terafactor.solver.plan import Memory, Plan, make_plan
from terafactor.solver.state import State
from terafactor.solver.step import step

__all__ = [
    "Callback",
    "Evaluation",
    "Memory",
    "Plan",
    "Snapshot",
    "SolverOptions",
    "State",
    "encode",
    "encode_to",
    "fit",
    "make_plan",
    "objective",
    "starting_atoms",
    "step",
    "use_backend",
]
