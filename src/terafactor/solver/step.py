"""One step of Algorithm 1 of the paper: codes, statistics, atoms; and the surrogate that it minimizes."""

from __future__ import annotations

from typing import Any

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
    >>> import numpy as np
    >>> from terafactor.data import Batch
    >>> from terafactor.problem import PowerDecay, Problem
    >>> from terafactor.solver import State, step
    >>> from terafactor.solver.backends import make_backend
    >>> rows, problem = np.random.default_rng(0).standard_normal((40, 10)), Problem(alpha=0.1)
    >>> state = State.start(problem.constraint.fill(rows[:3]), problem)
    >>> step(state, Batch(np.arange(40), None, rows), problem, PowerDecay(), make_backend()).shape
    (40, 3)
    """
    state.n_batches += 1
    if batch.values.size == 0:
        return np.zeros((len(batch.values), len(state.dictionary)), state.dictionary.dtype)
    atoms = backend.gather(state.dictionary, batch.columns)  # D on the mask; D itself without a mask
    codes = encode_rows(batch.values, atoms, problem, backend, state.dictionary.shape[1], batch.observed)
    count_rows(state, batch)  # E
    gain = schedule.gain(state.n_steps, state.feature_counts.sum() / state.feature_counts.size)
    blend_codes(state, codes, batch.n_observed_rows, gain, problem)  # C
    data_code = blend_data(state, batch, codes, gain, backend)  # B on the mask
    update(state, atoms, data_code, batch.columns, problem, backend)
    return codes


def count_rows(state: State, batch: Batch) -> None:
    """Count a step, its rows, and the rows in which it observes each feature."""
    state.n_steps += 1
    state.n_samples += batch.n_observed_rows
    if batch.whole is not None:
        state.feature_counts += batch.whole_feature_rows
    else:
        state.feature_counts[slice(None) if batch.columns is None else batch.columns] += batch.feature_rows


def blend_codes(state: State, codes: Array, n_rows: int, gain: float, problem: Problem) -> None:
    """Blend the codes of ``n_rows`` rows, which ``state`` already counts, into C.

    They have the weight ``w = min(1, gain * n_rows / n_samples)`` in C, and the same formula holds per feature in B
    (:func:`feature_weights`). With batches of unequal size, any other weight lets one of the two statistics forget
    faster than the other, and atoms shrink.
    """
    weight = min(1.0, gain * n_rows / state.n_samples)
    precise = codes.astype(np.float64)
    state.code_gram *= 1 - weight
    state.code_gram += (weight / n_rows) * (precise.T @ precise)
    state.mean_penalty += weight * (float(problem.penalty.value(precise).sum()) / n_rows - state.mean_penalty)
    state.idle_rows += n_rows
    state.idle_rows[codes.any(axis=0)] = 0


def blend_data(state: State, batch: Batch, codes: Array, gain: float, backend: Backend) -> Array:
    """Blend the data of a batch into B; return B on its mask (k, s), in C order.

    If the batch holds whole rows besides the masked ones, all features of B are updated.
    """
    counts, dtype = state.feature_counts, state.data_code.dtype
    if batch.whole is not None:
        weights = feature_weights(counts, batch.whole_feature_rows, gain, dtype)
        backend.blend(state.data_code, codes, batch.whole, *weights)
        return backend.gather(state.data_code, batch.columns)
    data_code = backend.gather(state.data_code, batch.columns)
    counts = counts if batch.columns is None else counts[batch.columns]
    weights = feature_weights(counts, batch.feature_rows, gain, dtype)
    backend.blend(data_code, codes, batch.values, *weights)
    backend.scatter(data_code, batch.columns, state.data_code)
    return data_code


def feature_weights(counts: Indices, rows: Indices | int, gain: float, dtype: Any) -> tuple[Array, Array]:
    """Return the factors (keep, take) of the past of each feature and of its new sum over ``rows`` rows.

    With ``w = min(1, gain * rows / counts)``, where ``counts`` (s,) include these rows, a feature of B becomes
    ``(1 - w) * past + w * sum / rows``. With gain 1 this is the mean over all rows seen, as in the paper. Both factors
    have shape (s,), or (1,) if they are equal for all features.
    """
    if isinstance(rows, int) and (counts == counts[0]).all():
        counts = counts[:1]
    weights = np.minimum(1.0, gain * rows / np.maximum(counts, 1))
    return (1 - weights).astype(dtype), (weights / np.maximum(rows, 1)).astype(dtype)


def surrogate(state: State, problem: Problem, backend: Backend) -> float:
    """Return ``1/2 Tr(D D' C) - Tr(D B') + alpha * mean of Omega``: the objective on the rows seen, up to a constant.

    This is the surrogate h_t. The paper prints it with half the cross term, which would not have the stated gradient.
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
