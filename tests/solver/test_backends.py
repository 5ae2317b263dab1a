"""Every operation of the threaded backend equals that of plain NumPy, with the same bits for any number of threads."""

import numpy as np
import pytest

from terafactor._threads import TILE
from terafactor.problem import NormBall
from terafactor.solver.backends.numpy import NumpyBackend
from terafactor.solver.backends.threaded import ThreadedBackend

WIDTH = 2 * TILE + 70


def make(dtype, n_components=5, n_rows=7):
    random = np.random.default_rng(0)
    return (random.standard_normal((n, WIDTH)).astype(dtype) for n in (n_rows, n_components))


def on_all(operation):
    """Return the results of an operation in plain NumPy and on threads; one and two threads must give the same bits."""
    results = []
    for backend in (NumpyBackend(), ThreadedBackend(1), ThreadedBackend(2)):
        with backend:
            results.append(operation(backend))
    for one, two in (
        zip(*map(np.atleast_1d, results[1:]), strict=True) if isinstance(results[1], tuple) else [results[1:]]
    ):
        np.testing.assert_array_equal(one, two)
    return results[:2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_components", [1, 5, 101])
def test_correlate(dtype, n_components):
    values, atoms = make(dtype, n_components)
    tolerance = 2e4 * np.finfo(dtype).eps
    for place in (0, 1):
        plain, threaded = on_all(lambda backend, place=place: backend.correlate(values, atoms)[place])
        np.testing.assert_allclose(threaded, plain, atol=tolerance, rtol=1e-5)
    plain, threaded = on_all(lambda backend: backend.products(values, atoms))
    np.testing.assert_allclose(threaded, plain, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9])
def test_row_grams(dtype, share):
    _, atoms = make(dtype)
    observed = np.random.default_rng(1).random((4, WIDTH)) >= share
    observed[2] = False

    def grams(backend):
        gram, _ = backend.correlate(np.empty((0, WIDTH), dtype), atoms)
        return backend.row_grams(np.ascontiguousarray(atoms.T), observed, gram)

    plain, threaded = on_all(grams)
    np.testing.assert_allclose(threaded[2], 0, atol=1e-12)
    np.testing.assert_allclose(threaded, plain, atol=2e4 * np.finfo(dtype).eps, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weights", ["shared", "equal", "different"])
@pytest.mark.parametrize("nonzero", [1.0, 0.15])
def test_blend(dtype, weights, nonzero):
    random = np.random.default_rng(0)
    values, before = make(dtype)
    codes = (random.standard_normal((7, 5)) * (random.random((7, 5)) < nonzero)).astype(dtype)
    keep, take = random.random((2, WIDTH)).astype(dtype)
    if weights != "different":
        keep, take = np.full((2, 1 if weights == "shared" else WIDTH), 0.3, dtype)

    def blended(backend):
        data_code = before.copy()
        backend.blend(data_code, codes, values, keep, take)
        return data_code

    plain, threaded = on_all(blended)
    np.testing.assert_allclose(threaded, plain, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(plain, keep * before + take * (codes.T @ values), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n_columns", [None, 3, 3000])
def test_gather_and_scatter(order, n_columns):
    _, matrix = make(np.float32, 20)
    matrix = np.asarray(matrix, order=order)
    columns = None if n_columns is None else np.random.default_rng(0).permutation(WIDTH)[:n_columns]
    plain, threaded = on_all(lambda backend: backend.gather(matrix, columns))
    assert threaded.flags.c_contiguous
    np.testing.assert_array_equal(threaded, plain)

    def scattered(backend):
        target = matrix.copy(order="K")
        backend.scatter(-plain, columns, target)
        return target

    plain, threaded = on_all(scattered)
    np.testing.assert_array_equal(threaded, plain)


@pytest.mark.parametrize("ball", [NormBall("l2"), NormBall("l1"), NormBall("elastic-net", positive=True)], ids=repr)
@pytest.mark.parametrize("whole", [True, False])
def test_sweep(ball, whole):
    random = np.random.default_rng(0)
    _, start = make(np.float64, 19)
    start = 0.5 * ball.fill(start)
    codes = random.standard_normal((50, 19))
    code_gram, data_code = codes.T @ codes / 50, random.standard_normal((19, WIDTH))
    code_gram[4] = code_gram[:, 4] = 0

    def swept(backend):
        atoms, sizes = start.copy(), ball.psi(start) * (1.0 if whole else 1.2)
        backend.sweep(atoms, data_code, code_gram, ball.as_scalars(), sizes, np.zeros(19), whole)
        return np.hstack([atoms, sizes[:, np.newaxis]])

    plain, threaded = on_all(swept)
    np.testing.assert_allclose(threaded, plain, atol=1e-9)
    np.testing.assert_array_equal(threaded[4, :-1], start[4])
