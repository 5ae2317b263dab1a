"""Kernels of sparse rows equal the same products with dense ones."""

import numpy as np
import pytest
from scipy import sparse

from terafactor._threads import TILE
from terafactor.kernels.atoms import UNUSED
from terafactor.kernels.blas import address
from terafactor.kernels.sparse import (
    combine,
    gram_of_tiles,
    multiply_earlier_rows,
    multiply_stored,
    stored_between,
    sweep_in_subspace,
    update_gram,
    update_rows,
)  # fmt: skip

DTYPES = [np.float32, np.float64]
M, P, K = 12, TILE + 1100, 3
FLOAT64 = np.dtype(np.float64)


@pytest.fixture(params=DTYPES)
def dtype(request):
    return request.param


def make(dtype):
    """Return rows (M, P), how kernels see them, and matrices over features (P, K)."""
    random = np.random.default_rng(0)
    X = sparse.random_array((M, P), density=0.2, dtype=np.float64, rng=random).toarray().astype(dtype)
    X[:, 5], X[:, 6], X[:, 7] = 0, 1, 0
    X[[0, M - 1], 7] = 2
    columns = sparse.csc_array(X)
    stored = columns.indptr.astype(np.uint64), columns.indices.astype(np.uint16), columns.data
    dictionary, data_code = (random.standard_normal((P, K)).astype(dtype) for _ in range(2))
    return X, stored, dictionary, data_code


def test_entries_of_a_range_of_rows(dtype):
    X, (starts, rows, _), _, _ = make(dtype)
    for column in (5, 6, 7, 8, P - 1):
        for first, last in ((0, M), (0, 1), (M - 1, M), (3, 9), (4, 4)):
            begin, end = stored_between(starts, rows, column, first, last)
            expected = np.flatnonzero(X[first:last, column]) + first
            np.testing.assert_array_equal(rows[begin:end], expected)
            assert starts[column] <= begin <= end <= starts[column + 1]


def test_multiply_stored(dtype):
    X, stored, dictionary, _ = make(dtype)
    out = np.ones((M, K), dtype)
    multiply_stored(*stored, dictionary, 2, 9, out)
    np.testing.assert_allclose(out[2:9], 1 + X[2:9] @ dictionary, rtol=1e-4, atol=1e-3)
    assert (out[[0, 1, 9, 10, 11]] == 1).all()


@pytest.mark.parametrize("longest", [M, 4])
def test_multiply_earlier_rows(dtype, longest):
    X, stored, _, _ = make(dtype)
    kept = X[:, (X != 0).sum(axis=0) <= longest].astype(np.float64)
    expected = np.tril(kept @ kept.T)
    expected[np.diag_indices(M)] /= 2
    out = np.ones((M, M), dtype)
    multiply_earlier_rows(*stored, longest, 3, M, out)
    np.testing.assert_allclose(out[3:], 1 + expected[3:], rtol=1e-4, atol=1e-3)
    assert (out[:3] == 1).all()


def test_gram_of_tiles(dtype):
    _, _, dictionary, data_code = make(dtype)
    grams = np.full((2, 2 * K, 2 * K), np.nan, dtype)
    gemm, syrk = (address(name, np.dtype(dtype)) for name in ("gemm", "syrk"))
    gram_of_tiles(gemm, syrk, dictionary, data_code, 0, 2, grams)
    both = np.hstack([dictionary, data_code])
    for part, gram in zip((both[:TILE], both[TILE:]), grams, strict=True):
        upper = np.triu_indices(2 * K)
        np.testing.assert_allclose(gram[upper], (part.T @ part)[upper], rtol=1e-3, atol=1e-2)


def test_update_gram():
    random = np.random.default_rng(0)
    X, D, B = random.standard_normal((4, 30)), random.standard_normal((K, 30)), random.standard_normal((K, 30))
    codes, keep = random.standard_normal((4, K)), 0.7
    before, after = np.vstack([D, B]), np.vstack([D, keep * B + codes.T @ X])
    gram = before @ before.T
    earlier = np.tril(X @ X.T)
    earlier[np.diag_indices(4)] /= 2
    update_gram(address("gemm", FLOAT64), keep, codes, 0, 4, X @ D.T, X @ B.T, earlier, gram)
    np.testing.assert_allclose(gram, after @ after.T, atol=1e-10)


def test_update_rows(dtype):
    random = np.random.default_rng(0)
    X, D, B = (random.standard_normal((n, 30)).astype(dtype) for n in (M, K, K))
    codes, coefficients = (random.standard_normal((4, n)).astype(dtype) for n in (K, 2 * K))
    coefficients, keep = coefficients[:K], dtype(0.7)
    with_atoms, with_statistics, with_moved = X @ D.T, X @ B.T, np.full((M, K), np.nan, dtype)
    gemm = address("gemm", np.dtype(dtype))
    update_rows(gemm, keep, codes, coefficients, 2, 6, X @ X.T, with_statistics, with_atoms, with_moved)
    blended = keep * B + codes.T @ X[2:6]
    close = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(with_statistics[6:], X[6:] @ blended.T, **close)
    np.testing.assert_allclose(with_moved[6:], X[6:] @ (coefficients @ np.vstack([D, blended])).T, **close)
    np.testing.assert_array_equal(with_statistics[:6], (X @ B.T)[:6])


def combination_problem():
    """Return atoms and statistics (K, 30), and a Gram matrix of codes (K, K)."""
    random = np.random.default_rng(0)
    D, B, codes = random.standard_normal((K, 30)), random.standard_normal((K, 30)), random.standard_normal((9, K))
    return D, B, codes.T @ codes


@pytest.mark.parametrize("limit", [1.0, 8.0, 1e6])
@pytest.mark.parametrize("unused", [None, 1])
def test_sweep_of_combinations_equals_a_sweep_of_atoms(limit, unused):
    D, B, code_gram = combination_problem()
    if unused is not None:
        code_gram[unused] = code_gram[:, unused] = 0
        code_gram[unused, unused] = UNUSED / 2 * code_gram.trace()
    both, moves, sizes = np.vstack([D, B]), np.empty((K, 2 * K)), np.full(K, -1.0)
    gram = both @ both.T
    assert sweep_in_subspace(address("gemm", FLOAT64), gram, code_gram, limit, 1e-6, moves, sizes)
    expected = D.copy()
    for j in range(K):
        if j != unused:
            others = np.delete(np.arange(K), j)
            atom = (B[j] - code_gram[j, others] @ expected[others]) / code_gram[j, j]
            expected[j] = atom * min(1.0, np.sqrt(limit / (atom @ atom)))
    np.testing.assert_allclose(moves @ both, expected, atol=1e-10)
    after = np.vstack([expected, B])
    np.testing.assert_allclose(gram, after @ after.T, atol=1e-9)
    used = np.arange(K) != unused
    np.testing.assert_allclose(sizes, np.where(used, (expected**2).sum(axis=1), -1), atol=1e-10)


def test_a_sweep_whose_terms_cancel_is_refused():
    D, B, code_gram = combination_problem()
    B[1] = code_gram[1, [0, 2]] @ D[[0, 2]]  # the second atom would be zero if the first one stayed
    B[0] = code_gram[0, 0] * D[0] + code_gram[0, [1, 2]] @ D[[1, 2]]
    both, moves, sizes = np.vstack([D, B]), np.full((K, 2 * K), np.nan), np.full(K, -1.0)
    gram = both @ both.T
    before = gram.copy()
    assert not sweep_in_subspace(address("gemm", FLOAT64), gram, code_gram, 1e6, 1e-6, moves, sizes)
    np.testing.assert_array_equal(gram, before)
    assert (sizes == -1).all()


@pytest.mark.parametrize(("first", "last"), [(0, 2), (1, 2)])
def test_combine(dtype, first, last):
    X, stored, D, B = make(dtype)
    random, keep = np.random.default_rng(1), dtype(0.3)
    from_atoms, from_statistics = random.standard_normal((2, K, K)).astype(dtype)
    from_rows = random.standard_normal((M, 2 * K)).astype(dtype)
    added = X.T @ from_rows
    expected = D @ from_atoms + B @ from_statistics + added[:, :K], keep * B + added[:, K:]
    before = D.copy(), B.copy()
    gemm = address("gemm", np.dtype(dtype))
    combine(gemm, *stored, from_atoms, from_statistics, from_rows, keep, first, last, D, B)
    start = first * TILE
    for found, wanted, old in zip((D, B), expected, before, strict=True):
        np.testing.assert_allclose(found[start:], wanted[start:], rtol=1e-4, atol=1e-3)
        np.testing.assert_array_equal(found[:start], old[:start])
