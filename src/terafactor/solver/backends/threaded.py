"""The arithmetic of a step in compiled kernels, on tiles of features that threads share.

Tiles depend on the number of features only, and sums over tiles are made in the order of the tiles: results have the
same bits for any number of threads. Threads synchronize inside a kernel only in the sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from terafactor._threads import TILE, Threads, n_tiles
from terafactor._typing import Array, Indices
from terafactor.kernels.atoms import block_length, sweep_tiles, sweep_whole_atoms
from terafactor.kernels.barrier import RELEASED
from terafactor.kernels.blas import address
from terafactor.kernels.gather import gather_columns, gather_features, scatter_columns, scatter_features
from terafactor.kernels.missing import row_grams
from terafactor.kernels.statistics import (
    add_grams,
    blend_sparse_codes,
    blend_tiles,
    blend_weighted_tiles,
    correlate_tiles,
)

SPARSE = 0.25
"""Share of nonzero codes below which skipping the zeros beats the dense matrix product."""

NOT_MOVED = -1.0
"""Marks, among the sizes of atoms (>= 0, or NaN), an atom that the sweep did not move."""


class ThreadedBackend(Threads):
    """A :class:`~terafactor.solver.backends.Backend` on ``n_threads`` threads."""

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
        """Return ``values @ atoms.T`` in float64, and write the Gram matrix of each tile to ``grams``, unless empty."""
        dtype, n_parts = atoms.dtype, n_tiles(atoms.shape[1])
        products = np.empty((n_parts, len(values), len(atoms)), dtype)
        gemm, syrk = address("gemm", dtype), address("syrk", dtype)

        def work(first: int, last: int) -> None:
            correlate_tiles(gemm, syrk, values, atoms, first, last, grams, products)

        self.split(work, n_parts)
        return products.sum(axis=0, dtype=np.float64)

    def row_grams(self, features: Array, observed: Array, gram: Array) -> Array:
        dtype, grams = features.dtype, np.empty((len(observed), *gram.shape))
        row_grams(address("syrk", dtype), features, observed, gram, float(np.finfo(dtype).eps), grams)
        return grams

    def blend(self, data_code: Array, codes: Array, values: Array, keep: Array, take: Array) -> None:
        gemm, uniform = address("gemm", data_code.dtype), len(keep) == 1
        sparse = np.count_nonzero(codes) < SPARSE * codes.size
        weighted = take[0] * codes if uniform else codes

        def work(first: int, last: int) -> None:
            if sparse:
                blend_sparse_codes(codes, values, keep, take, first, last, data_code)
            elif uniform:
                blend_tiles(gemm, weighted, values, keep[0], first, last, data_code)
            else:
                blend_weighted_tiles(gemm, codes, values, keep, take, first, last, data_code)

        self.split(work, n_tiles(data_code.shape[1]))

    def sweep(
        self, atoms: Array, data_code: Array, code_gram: Array, ball: Any, sizes: Array, multipliers: Array, whole: bool
    ) -> None:
        (k, n_observed), n_parts = atoms.shape, n_tiles(atoms.shape[1])
        candidates = np.empty((block_length(k, atoms.itemsize), n_observed), atoms.dtype)
        partial = np.zeros((2, n_parts, 4))
        new_sizes = np.full((k, n_parts + 1), NOT_MOVED)
        before, barrier = np.zeros(k) if whole else sizes, np.zeros(1, np.int64)
        gemm, counter = address("gemm", atoms.dtype), barrier.ctypes.data

        def work(rank: int, n_threads: int) -> None:
            sweep_tiles(
                rank, n_threads, counter, gemm, atoms, data_code, code_gram, *ball, before, multipliers, candidates,
                partial, new_sizes,
            )  # fmt: skip

        self.run_parallel(work, n_parts, on_error=lambda: barrier.fill(RELEASED))
        moved = new_sizes[:, -1] != NOT_MOVED
        sizes[moved] = new_sizes[moved].sum(axis=1)

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
        candidates = np.empty((block_length(len(atoms), atoms.itemsize), len(columns)), atoms.dtype)
        partial, gemm = np.empty((2, n_tiles(dictionary.shape[1]), 4)), address("gemm", atoms.dtype)
        sweep_whole_atoms(gemm, atoms, data_code, code_gram, *ball, columns, candidates, partial, dictionary, sizes)

    def _over_features(self, work: Callable[[int, int], object], n_features: int) -> None:
        """Call ``work(start, stop)`` on ranges of features that consist of whole tiles."""
        self.split(lambda first, last: work(first * TILE, min(last * TILE, n_features)), n_tiles(n_features))
