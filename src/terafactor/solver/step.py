"""One step of Algorithm 1 of the paper: codes, statistics, atoms; and the surrogate that it minimizes."""

from __future__ import annotations

import numpy as np

from terafactor._threads import TILE, n_tiles
from terafactor._typing import Array, Indices
from terafactor.data import Batch
from terafactor.problem import Problem, Schedule
from terafactor.solver.backends import Backend
from terafactor.solver.coding import encode_rows
from terafactor.solver.state import State
from terafactor.solver.updates import UpdateAtoms, update_on_mask


def step(
    state: State,
    batch: Batch,
    problem: Problem,
    schedule: Schedule,
    backend: Backend,
    update: UpdateAtoms = update_on_mask,
) -> Array:
    """Encode a batch, blend it into the statistics, sweep over the atoms; return the codes (b, k).

    Changes ``state`` only, draws no random numbers and does no I/O. A batch without any observed value is skipped.

    Examples
    --------
    >>> from terafactor.solver import step
    >>> import numpy as np
    >>> from terafactor.data import Batch
    >>> from terafactor.problem import PowerDecay, Problem
    >>> from terafactor.solver import State
    >>> from terafactor.solver.backends import make_backend
    >>> rows, problem = np.random.default_rng(0).standard_normal((40, 10)), Problem(alpha=0.1)
    >>> state = State.start(problem.constraint.fill(rows[:3]), problem, masked=False)
    >>> with make_backend() as backend:
    ...     step(state, Batch(np.arange(40), None, rows), problem, PowerDecay(), backend).shape
    (40, 3)
    """
    state.n_batches += 1
    if batch.values.size == 0:
        return np.zeros((len(batch.values), len(state.dictionary)), state.dictionary.dtype)
    atoms = backend.gather(state.dictionary, batch.columns)  # D on the mask; D itself without a mask
    codes = encode_rows(batch.values, atoms, problem, backend, state.dictionary.shape[1], batch.observed)
    gain = blend_codes(state, codes, batch.n_observed_rows, batch.mean_visits(state.feature_counts), problem, schedule)
    data_code = blend_data(state, batch, codes, gain, backend)  # B on the mask
    update(state, atoms, data_code, batch.columns, problem, backend)
    return codes


def blend_codes(
    state: State, codes: Array, n_rows: int, n_visits: float, problem: Problem, schedule: Schedule
) -> float:
    """Count a batch of ``n_rows`` rows and blend its codes into C; return the gain of the step.

    n_visits: mean over features of the number of rows in which they were observed, including this batch.

    A batch has the weight ``w = min(1, gain * n_rows / n_samples)`` in C, and the same formula holds per feature in B
    (:func:`feature_weights`). With batches of unequal size, any other weight lets one of the two statistics forget
    faster than the other, and atoms shrink.
    """
    state.n_steps += 1
    state.n_samples += n_rows
    gain = schedule.gain(state.n_steps, n_visits)
    weight = min(1.0, gain * n_rows / state.n_samples)
    precise = codes.astype(np.float64)
    state.code_gram *= 1 - weight
    state.code_gram += (weight / n_rows) * (precise.T @ precise)
    state.mean_penalty += weight * (float(problem.penalty.value(precise).sum()) / n_rows - state.mean_penalty)
    state.idle_rows += n_rows
    state.idle_rows[codes.any(axis=0)] = 0
    return gain


def blend_data(state: State, batch: Batch, codes: Array, gain: float, backend: Backend) -> Array:
    """Blend the data of a batch into B; return B on its mask (k, s), in C order.

    With full statistics the batch holds whole rows, and all features of B are updated whatever the mask.
    """
    if batch.whole is not None:
        weights = feature_weights(state, None, batch.whole_feature_rows, gain)
        backend.blend(state.data_code, codes, batch.whole, *weights)
        return backend.gather(state.data_code, batch.columns)
    data_code = backend.gather(state.data_code, batch.columns)
    weights = feature_weights(state, batch.columns, batch.feature_rows, gain)
    backend.blend(data_code, codes, batch.values, *weights)
    backend.scatter(data_code, batch.columns, state.data_code)
    return data_code


def feature_weights(state: State, columns: Indices | None, rows: Indices | int, gain: float) -> tuple[Array, Array]:
    """Count the ``rows`` that observe each feature; return the factors (keep, take) of its past and of the new sum.

    With ``w = min(1, gain * rows / counts)``, where counts include this batch, a feature of B becomes
    ``(1 - w) * past + w * sum / rows``. With gain 1 this is the mean over all rows seen, as in the paper. Both factors
    have shape (s,), or (1,) if they are equal for all features.
    """
    chosen = slice(None) if columns is None else columns
    counts = state.feature_counts[chosen] + rows
    state.feature_counts[chosen] = counts
    if isinstance(rows, int) and (counts == counts[0]).all():
        counts = counts[:1]
    weights = np.minimum(1.0, gain * rows / np.maximum(counts, 1))
    dtype = state.data_code.dtype
    return (1 - weights).astype(dtype), (weights / np.maximum(rows, 1)).astype(dtype)


def surrogate(state: State, problem: Problem, backend: Backend) -> float:
    """Return ``1/2 Tr(D D' C) - Tr(D B') + alpha * mean of Omega``: the surrogate h_t up to the mean of |x|^2 / 2.

    The paper prints it with half the cross term, which would not have the gradient that it states.
    """
    quadratic, cross = np.zeros((2, n_tiles(state.dictionary.shape[1])))

    def add(first: int, last: int) -> None:
        for tile in range(first, last):
            part = slice(tile * TILE, (tile + 1) * TILE)
            atoms = np.ascontiguousarray(state.dictionary[:, part])
            quadratic[tile] = np.vdot(atoms @ atoms.T, state.code_gram)
            cross[tile] = np.vdot(atoms, np.ascontiguousarray(state.data_code[:, part]))

    backend.split(add, len(cross))
    return float(0.5 * quadratic.sum() - cross.sum() + float(problem.alpha) * state.mean_penalty)
