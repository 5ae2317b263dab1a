"""The arithmetic of a step on tiles of features, by threads, in compiled kernels.

Tiles depend on the number of features only, never on the number of threads, and what is summed over tiles is summed in
their order: the bits of a result do not depend on the threads. Each method hands whole ranges of tiles to threads; only
the sweep needs them to wait for each other, inside its kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from terafactor._threads import Executor, features_of, n_tiles
from terafactor._typing import Array, Indices
from terafactor.kernels.atoms import block_length, sweep_tiles
from terafactor.kernels.barrier import RELEASED
from terafactor.kernels.blas import address
from terafactor.kernels.gather import gather_columns, gather_features, scatter_columns, scatter_features
from terafactor.kernels.missing import row_grams
from terafactor.kernels.statistics import add_grams, add_parts, blend_sparse_codes, blend_tiles, correlate_tiles

SPARSE = 0.25
"""Share of nonzero codes below which skipping the zeros beats the dense matrix product."""

STAYED = -1.0
"""Stands for the size of an atom that was not moved; sizes are >= 0, or NaN."""


class ThreadedBackend:
    """Tiles of features on a fixed number of threads.

    Parameters
    ----------
    n_threads : int
    """

    def __init__(self, n_threads: int = 1) -> None:
        self._executor = Executor(n_threads)
        self.split = self._executor.split

    def __enter__(self) -> Self:
        self._executor.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._executor.__exit__(*exception)

    def gather(self, matrix: Array, columns: Indices | None) -> Array:
        by_atom = matrix.flags.c_contiguous
        if columns is None and by_atom:
            return matrix
        chosen = np.arange(matrix.shape[1]) if columns is None else columns
        out = np.empty((len(matrix), len(chosen)), matrix.dtype)
        atoms = np.arange(len(matrix))
        if by_atom:
            self._over_features(
                lambda start, stop: gather_columns(matrix, atoms, chosen, start, stop, out), len(chosen)
            )
        else:
            self._over_features(lambda start, stop: gather_features(matrix.T, chosen, start, stop, out), len(chosen))
        return out

    def scatter(self, values: Array, columns: Indices | None, matrix: Array) -> None:
        if values is matrix:
            return
        chosen = np.arange(matrix.shape[1]) if columns is None else columns
        if matrix.flags.c_contiguous:
            self._over_features(lambda start, stop: scatter_columns(values, chosen, start, stop, matrix), len(chosen))
        else:
            self._over_features(
                lambda start, stop: scatter_features(values, chosen, start, stop, matrix.T), len(chosen)
            )

    def correlate(self, values: Array, atoms: Array) -> tuple[Array, Array]:
        grams = np.empty((n_tiles(atoms.shape[1]), len(atoms), len(atoms)), atoms.dtype)
        products = self._correlate(values, atoms, grams)
        return add_grams(grams, float(np.finfo(atoms.dtype).eps)), products

    def products(self, values: Array, atoms: Array) -> Array:
        return self._correlate(values, atoms, np.empty((0, 0, 0), atoms.dtype))

    def _correlate(self, values: Array, atoms: Array, grams: Array) -> Array:
        """Put the Gram matrix of each tile in ``grams``, unless that is empty; return the products with values."""
        dtype, n_parts = atoms.dtype, n_tiles(atoms.shape[1])
        products, gemm, syrk = (
            np.empty((n_parts, len(values), len(atoms)), dtype),
            address("gemm", dtype),
            address("syrk", dtype),
        )

        def work(first: int, last: int) -> None:
            correlate_tiles(gemm, syrk, values, atoms, first, last, grams, products)

        self.split(work, n_parts)
        return add_parts(products)

    def row_grams(self, features: Array, observed: Array, gram: Array) -> Array:
        n_rows, k = len(observed), len(gram)
        grams, syrk, precision = np.empty((n_rows, k, k)), address("syrk", features.dtype), np.finfo(features.dtype).eps
        row_grams(syrk, features, observed, gram, float(precision), 0, n_rows, grams)
        return grams

    def blend(self, data_code: Array, codes: Array, values: Array, keep: Array, take: Array) -> None:
        gemm, sparse = address("gemm", data_code.dtype), np.count_nonzero(codes) < SPARSE * codes.size

        def work(first: int, last: int) -> None:
            if sparse:
                blend_sparse_codes(codes, values, keep, take, first, last, data_code)
            else:
                blend_tiles(gemm, codes, values, keep, take, first, last, data_code)

        self.split(work, n_tiles(data_code.shape[1]))

    def sweep(
        self, atoms: Array, data_code: Array, code_gram: Array, ball: Any, sizes: Array, multipliers: Array, whole: bool
    ) -> None:
        (k, n_observed), n_parts = atoms.shape, n_tiles(atoms.shape[1])
        candidates = np.empty((block_length(k, atoms.itemsize), n_observed), atoms.dtype)
        partial = np.zeros((2, n_parts, 4))
        new_sizes = np.full((k, n_parts + 1), STAYED)
        before, barrier = np.zeros(k) if whole else sizes, np.zeros(1, np.int64)
        gemm, counter = address("gemm", atoms.dtype), barrier.ctypes.data

        def work(rank: int, n_threads: int) -> None:
            sweep_tiles(
                rank, n_threads, counter, gemm, atoms, data_code, code_gram, *ball, before, multipliers, candidates,
                partial, new_sizes,
            )  # fmt: skip

        self._executor.run_together(work, n_parts, on_failure=lambda: barrier.fill(RELEASED))
        moved = new_sizes[:, -1] != STAYED
        sizes[moved] = new_sizes[moved].sum(axis=1)

    def _over_features(self, work: Callable[[int, int], object], n_features: int) -> None:
        self.split(lambda first, last: work(*features_of(first, last, n_features)), n_tiles(n_features))
