"""Arithmetic on features: what a step does to matrices that are p wide, and how.

:class:`Backend` is the seam: ``numpy`` is the mathematics, plain and slow, ``threaded`` the same on tiles, threads and
BLAS. Codes are found at the level of k and are not a backend's business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, Protocol, Self

from terafactor._typing import Array, Indices
from terafactor.errors import ParameterError


class Backend(Protocol):
    """What a step needs done to features. Entered as a ``with`` block around the steps."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: Any) -> None: ...

    def split(self, work: Callable[[int, int], object], length: int) -> None:
        """Call ``work(start, stop)`` on consecutive parts of ``range(length)``, maybe at the same time."""

    def gather(self, matrix: Array, columns: Indices | None) -> Array:
        """Return ``matrix[:, columns]`` in order C; the matrix itself where columns is None and it is in order C."""

    def scatter(self, values: Array, columns: Indices | None, matrix: Array) -> None:
        """``matrix[:, columns] = values``; nothing to do where values is the matrix."""

    def correlate(self, values: Array, atoms: Array) -> tuple[Array, Array]:
        """Return ``atoms @ atoms.T`` (k, k), made definite, and ``values @ atoms.T`` (b, k), both float64."""

    def products(self, values: Array, atoms: Array) -> Array:
        """Return ``values @ atoms.T`` (b, k), float64, alone."""

    def row_grams(self, features: Array, observed: Array, gram: Array) -> Array:
        """Return ``features[seen].T @ features[seen]``, made definite, for each row ``seen`` of observed (b, k, k).

        features (s, k): the atoms, transposed; observed (b, s); gram (k, k): that of all features.
        """

    def blend(self, data_code: Array, codes: Array, values: Array, keep: Array, take: Array) -> None:
        """``data_code = keep * data_code + take * (codes.T @ values)``, in place.

        data_code (k, s) in order C, codes (b, k), values (b, s), keep and take (s,) or (1,), all of one type.
        """

    def sweep(
        self, atoms: Array, data_code: Array, code_gram: Array, ball: Any, sizes: Array, multipliers: Array, whole: bool
    ) -> None:
        """Move each atom to its minimizer given the others and project it, entries outside the mask fixed; in place.

        atoms (k, s) in/out and data_code (k, s), in order C; code_gram (k, k); ball: ``NormBall.as_scalars()``;
        sizes (k,) in/out: psi of atoms over all features; multipliers (k,) in/out: where searches start; whole: s is p.
        """


def _threaded(n_threads: int) -> Backend:
    from terafactor.solver.backends.threaded import ThreadedBackend

    return ThreadedBackend(n_threads)


def _numpy(n_threads: int) -> Backend:
    from terafactor.solver.backends.numpy import NumpyBackend

    return NumpyBackend()


BACKENDS: dict[str, Callable[[int], Backend]] = {"threaded": _threaded, "numpy": _numpy}
"""Backends by name, each made from a number of threads. Add one's own here."""

_chosen = "threaded"


@contextlib.contextmanager
def use_backend(name: str) -> Generator[None, None, None]:
    """Let everything in a ``with`` block, in any thread, compute on another backend of :data:`BACKENDS`."""
    global _chosen
    if name not in BACKENDS:
        raise ParameterError(f"there is no backend {name!r}: choose from {', '.join(BACKENDS)}")
    previous, _chosen = _chosen, name
    try:
        yield
    finally:
        _chosen = previous


def make_backend(n_threads: int = 1) -> Backend:
    """Return the backend in use."""
    return BACKENDS[_chosen](n_threads)
