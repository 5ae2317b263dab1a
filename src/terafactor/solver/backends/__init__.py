"""Backends: the arithmetic of a step on matrices with p columns.

``numpy`` is the plain mathematics; ``threaded`` computes the same with tiles, threads and BLAS. Codes are computed by
the penalty, from k x k and b x k matrices, not by a backend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, Protocol, Self

from terafactor._typing import Array, Indices
from terafactor.errors import ParameterError
from terafactor.solver.backends.numpy import NumpyBackend
from terafactor.solver.backends.threaded import ThreadedBackend


class Backend(Protocol):
    """Operations on features. Use it as a context manager around the steps.

    A subclass of :class:`terafactor._threads.Threads` inherits the first three methods.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: Any) -> None: ...

    def split(self, work: Callable[[int, int], object], length: int) -> None:
        """Call ``work(start, stop)`` on consecutive parts of ``range(length)``, possibly in parallel."""

    def gather(self, matrix: Array, columns: Indices | None) -> Array:
        """Return ``matrix[:, columns]`` in C order; the matrix itself if columns is None and it is in C order."""

    def scatter(self, values: Array, columns: Indices | None, matrix: Array) -> None:
        """Set ``matrix[:, columns] = values``; do nothing if values is the matrix itself."""

    def correlate(self, values: Array, atoms: Array) -> tuple[Array, Array]:
        """Return ``atoms @ atoms.T`` (k, k), regularized, and ``values @ atoms.T`` (b, k), both float64."""

    def products(self, values: Array, atoms: Array) -> Array:
        """Return ``values @ atoms.T`` (b, k), float64."""

    def row_grams(self, features: Array, observed: Array, gram: Array) -> Array:
        """Return ``features[seen].T @ features[seen]``, regularized, for each row ``seen`` of observed (b, k, k).

        features (s, k): the atoms, transposed; observed (b, s); gram (k, k): that of all features. Several threads may
        call it at the same time.
        """

    def blend(self, data_code: Array, codes: Array, values: Array, keep: Array, take: Array) -> None:
        """Set ``data_code = keep * data_code + take * (codes.T @ values)``, in place.

        data_code (k, s) in C order, codes (b, k), values (b, s), keep and take (s,) or (1,), all of one type.
        """

    def sweep(
        self, atoms: Array, data_code: Array, code_gram: Array, ball: Any, sizes: Array, multipliers: Array, whole: bool
    ) -> None:
        """Move each atom to its minimizer given the others and project it, with entries outside the mask fixed.

        atoms (k, s) in/out and data_code (k, s), in C order; code_gram (k, k); ball: ``NormBall.as_scalars()``;
        sizes (k,) in/out: psi of atoms over all features; multipliers (k,) in/out: starting points of the searches;
        whole: whether s is p.
        """

    def sweep_whole_atoms(
        self,
        atoms: Array,
        data_code: Array,
        code_gram: Array,
        ball: Any,
        columns: Indices,
        dictionary: Array,
        sizes: Array,
    ) -> None:
        """Move each atom to its minimizer on the mask ``columns`` (s,), and project all of its p entries.

        atoms (k, s) in/out: ``dictionary[:, columns]``; dictionary (k, p) in/out, in C order; sizes (k,) out: psi.
        """


BACKENDS: dict[str, Callable[[int], Backend]] = {"threaded": ThreadedBackend, "numpy": NumpyBackend}
"""Backends by name: functions of the number of threads. Add your own here."""

_chosen = "threaded"


@contextlib.contextmanager
def use_backend(name: str) -> Generator[None, None, None]:
    """Use another backend of :data:`BACKENDS` inside a ``with`` block, in all threads of this process.

    Examples
    --------
    >>> from terafactor.solver import use_backend
    >>> import numpy as np
    >>> from terafactor import MaskedDictionaryLearning
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> with use_backend("numpy"):
    ...     model = MaskedDictionaryLearning(3, alpha=0.1).fit(X)
    >>> model.components_.shape
    (3, 10)
    """
    global _chosen
    if name not in BACKENDS:
        raise ParameterError(f"unknown backend {name!r}: choose from {', '.join(BACKENDS)}")
    previous, _chosen = _chosen, name
    try:
        yield
    finally:
        _chosen = previous


def backend_name() -> str:
    """Return the name of the backend in use."""
    return _chosen


def make_backend(n_threads: int = 1) -> Backend:
    """Return a new backend of the kind in use."""
    return BACKENDS[_chosen](n_threads)
