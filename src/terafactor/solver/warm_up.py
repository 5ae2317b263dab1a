"""Compile the kernels that a fit will use, or load them from the cache, before its clock starts."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from terafactor.data import ArraySource, MatrixSource, SparseSource
from terafactor.kernels.jit import announcing_compilation
from terafactor.problem import NormBall, PowerDecay, Problem
from terafactor.solver.options import SolverOptions

_ready: set[Hashable] = set()


def warm_up_once(key: Hashable, purpose: str, work: Callable[[], Any]) -> None:
    """Call ``work``, which runs kernels on a toy problem, unless this process has done so for the same key.

    The log announces a compilation with its purpose when it starts, and with its time when it ends.
    """
    if key not in _ready:
        _ready.add(key)  # first, since the work may call this function
        with announcing_compilation(purpose):
            work()


def warm_up(source: MatrixSource, problem: Problem, options: SolverOptions) -> None:
    """Fit a toy of the same kind as a source, with the same penalty and number of atoms, which compiles the kernels."""
    from terafactor.solver.encode import objective
    from terafactor.solver.fit import fit

    sparse, masked = source.is_sparse and not options.missing, options.reduction > 1
    toy_options = replace(
        options,
        batch_size=3,
        n_epochs=1,
        n_threads=1,
        reduction=2 if masked else 1,
        tol=0.0,
        max_time=None,
        shards=1,
    )
    ball = problem.constraint
    plain_ball = NormBall(ball.norm, ball.radius, ball.l1_ratio, ball.positive)  # without structure, such as a grid
    toy_problem = replace(problem, alpha=0.1, constraint=plain_ball)
    key = (source.dtype, sparse, repr(toy_problem), repr(replace(toy_options, seed=0, schedule=PowerDecay())))

    def work() -> None:
        toy = toy_source(source.dtype, sparse, options.missing)
        objective(toy, fit(toy, toy_problem, toy_options).dictionary, toy_problem, missing=options.missing)

    kinds = {"missing values": options.missing, "sparse rows": sparse, "masks": masked}
    described = " and ".join(kind for kind, present in kinds.items() if present)
    warm_up_once(key, f"{source.dtype.name} data" + (f" with {described}" if described else ""), work)


def toy_source(dtype: np.dtype[Any], sparse: bool, missing: bool) -> MatrixSource:
    """Return a source of 6 x 8 values: sparse ones in rows of 200, most of which are zero; or with one missing."""
    values = np.random.default_rng(0).standard_normal((6, 8)).astype(dtype)
    if sparse:
        from scipy.sparse import csr_array

        wide = np.zeros((6, 200), dtype)
        wide[:, :8] = values
        return SparseSource(csr_array(wide))
    if missing:
        values[0, 0] = np.nan
    return ArraySource(values, allow_nan=missing)
