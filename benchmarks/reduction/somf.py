"""Subsampled online matrix factorization (Mensch et al., IEEE Transactions on Signal Processing, 2018)."""

from __future__ import annotations

import numpy as np

from benchmarks.reduction.methods import Curve, Learner, Method, Task
from terafactor.solver.backends import make_backend
from terafactor.solver.coding import code_rows

AVERAGING = 0.76
"""A row's products at its visit v have the weight ``v ** -AVERAGING``; the theory needs more than 3/4."""


def somf(reduction: int) -> Method:
    """Return SOMF: products averaged over the visits of a row, exact Gram matrix, statistics of all features.

    The reduction is halved after each pass, until it is 1. Then products are computed from whole rows.
    """

    def learn(task: Task) -> Curve:
        with make_backend(1) as backend:
            task.start()
            learner, random, k = Learner(task, backend), np.random.default_rng(task.seed), task.data.n_components
            state = learner.state(learner.first_atoms)
            ball, n_features = learner.problem.constraint.as_scalars(), learner.n_features
            averages, visits = np.zeros((len(task.train), k)), np.zeros(len(task.train))
            gram, _ = backend.correlate(task.train[:1], state.dictionary)
            masks: list[np.ndarray] = []
            n_rows, n_bytes = 0, 0
            for rows in learner.batches(task):
                r = max(1, reduction >> (n_rows // len(task.train)))
                if not masks or len(masks[-1]) < n_features // r:
                    masks = [np.sort(mask) for mask in np.array_split(random.permutation(n_features), r)]
                columns = None if r == 1 else masks.pop()
                values = task.train[rows]
                atoms = backend.gather(state.dictionary, columns)
                seen = values if columns is None else np.ascontiguousarray(values[:, columns])
                before, products = backend.correlate(seen, atoms)
                visits[rows] += 1
                take = (np.ones(len(rows)) if r == 1 else visits[rows] ** -AVERAGING)[:, None]
                averages[rows] = (1 - take) * averages[rows] + take * products * (n_features / seen.shape[1])
                codes = code_rows(before if r == 1 else gram, averages[rows], learner.problem, backend, 1.0)
                codes = codes.astype(np.float32)
                learner.blend(state, values, codes)
                data_code = backend.gather(state.data_code, columns)
                backend.sweep(
                    atoms, data_code, state.code_gram, ball, state.sizes, state.multipliers, whole=columns is None
                )
                backend.scatter(atoms, columns, state.dictionary)
                if r > 1:
                    gram = gram + backend.correlate(seen[:1], atoms)[0] - before
                n_rows, n_bytes = n_rows + len(rows), n_bytes + values.nbytes
                if task.note(n_rows, n_bytes, lambda: np.array(state.dictionary)):
                    return task.curve
        raise AssertionError("batches never end")

    return learn
