"""Compile the kernels that a fit will use, or load them from the cache, before its clock starts."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from terafactor.data import ArraySource, MatrixSource, SparseSource
from terafactor.kernels.jit import announcing_compilation
from terafactor.problem import PowerDecay, Problem
from terafactor.solver.backends import backend_name
from terafactor.solver.options import SolverOptions

_ready: set[Hashable] = set()


def warm_up_once(key: Hashable, purpose: str, work: Callable[[], Any]) -> None:
    """Call ``work``, which runs kernels on a toy problem, unless this process has done so for the same key.

    The log announces a compilation with its purpose when it starts, and with its time when it ends.
    """
    if key not in _ready:
        _ready.add(key)  # first, since the work may call this function
        try:
            with announcing_compilation(purpose):
                work()
        except BaseException:  # such as Ctrl-C
            _ready.discard(key)
            raise


def warm_up(source: MatrixSource, problem: Problem, options: SolverOptions) -> None:
    """Fit a toy of the same kind as a source, with the same penalty and number of atoms, which compiles the kernels."""
    from terafactor.solver.encode import objective
    from terafactor.solver.fit import fit

    sparse, has_masks = source.is_sparse and not options.missing, options.reduction > 1
    toy_options = replace(
        options,
        batch_size=3,
        n_epochs=1,
        n_threads=1,
        reduction=2 if has_masks else 1,
        tol=0.0,
        max_time=None,
        shards=1,
    )
    structured = problem.constraint.updates_atoms  # may require the number of features, as a grid does
    n_features = source.shape[1] if structured else 200 if sparse else 8
    toy_problem = replace(problem, alpha=0.1)
    key = (
        backend_name(),
        source.dtype,
        sparse,
        repr(toy_problem),
        repr(replace(toy_options, seed=0, schedule=PowerDecay())),
    )

    def work() -> None:
        toy = toy_source(source.dtype, n_features, sparse, options.missing)
        objective(toy, fit(toy, toy_problem, toy_options).dictionary, toy_problem, missing=options.missing)

    kinds = {"missing values": options.missing, "sparse rows": sparse, "masks": has_masks}
    described = " and ".join(kind for kind, present in kinds.items() if present)
    warm_up_once(key, f"{source.dtype.name} data" + (f" with {described}" if described else ""), work)


def toy_source(dtype: np.dtype[Any], n_features: int, sparse: bool, missing: bool) -> MatrixSource:
    """Return a source of six rows: sparse ones with eight values each; or with one missing value."""
    values = np.random.default_rng(0).standard_normal((6, n_features)).astype(dtype)
    if sparse:
        from scipy.sparse import csr_array

        values[:, 8:] = 0
        return SparseSource(csr_array(values))
    if missing:
        values[0, 0] = np.nan
    return ArraySource(values, allow_nan=missing)
