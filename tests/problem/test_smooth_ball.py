"""Smooth atoms: the Laplacian, descent, and what a fit does with them."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from terafactor import MaskedDictionaryLearning, RandomMasks, load_model
from terafactor.errors import ParameterError
from terafactor.problem import Problem, SmoothBall
from terafactor.problem.constraints.smooth_ball import laplacian
from terafactor.solver import State
from terafactor.solver.backends.numpy import NumpyBackend
from terafactor.solver.updates import update_by_constraint


def roughness(images):
    """Sum of squared differences between neighbors. images: (k, height, width)."""
    return float(np.square(np.diff(images, axis=1)).sum() + np.square(np.diff(images, axis=2)).sum())


def laplacian_of(image, shape, features):
    result = np.empty(len(features))
    strides, lengths = SmoothBall(shape=shape).grid(image.size)
    laplacian(image.reshape(-1), features, strides, lengths, result)
    return result


@pytest.mark.parametrize("shape", [(7,), (3, 4), (3, 4, 2)])
def test_the_laplacian_is_the_slope_of_half_the_squared_differences(shape):
    image = np.random.default_rng(0).standard_normal(shape)
    expected = np.zeros(shape)
    for axis in range(len(shape)):
        before, after = np.moveaxis(image, axis, 0)[:-1], np.moveaxis(image, axis, 0)[1:]
        slope = np.moveaxis(expected, axis, 0)
        slope[:-1] += before - after
        slope[1:] += after - before
    mask = np.random.default_rng(1).permutation(image.size)[: image.size // 2]
    np.testing.assert_allclose(laplacian_of(image, shape, mask), expected.reshape(-1)[mask], atol=1e-12)


def test_channels_are_smoothed_separately():
    image, pixels = np.random.default_rng(0).standard_normal((3, 4, 2)), np.arange(12)
    parts = [laplacian_of(np.ascontiguousarray(image[..., channel]), (3, 4), pixels) for channel in range(2)]
    together = laplacian_of(image, (3, 4), np.arange(24)).reshape(12, 2)
    np.testing.assert_allclose(together, np.stack(parts, axis=1))


@pytest.mark.parametrize("n_masked", [30, 10, 1])
@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_sweep_never_raises_what_it_minimizes(norm, n_masked):
    random = np.random.default_rng(0)
    problem = Problem(constraint=SmoothBall(norm, shape=(5, 6), smoothness=0.7))
    codes, rows = random.standard_normal((50, 4)), random.standard_normal((50, 30))
    state = State.start(problem.constraint.fill(random.standard_normal((4, 30))), problem)
    state.code_gram[:], data_code = codes.T @ codes / 50, codes.T @ rows / 50
    gamma = problem.constraint.smoothness * np.diagonal(state.code_gram).mean()

    def value():
        atoms = state.dictionary
        smooth = 0.5 * np.vdot(atoms @ atoms.T, state.code_gram) - np.vdot(atoms, data_code)
        return smooth + gamma / 2 * roughness(atoms.reshape(4, 5, 6))

    values = [value()]
    for _ in range(30):
        mask = None if n_masked == 30 else random.permutation(30)[:n_masked]
        inside = slice(None) if mask is None else mask
        before, atoms = state.dictionary.copy(), np.ascontiguousarray(state.dictionary[:, inside])
        update_by_constraint(state, atoms, data_code[:, inside], mask, problem, NumpyBackend())
        outside = np.setdiff1d(np.arange(30), np.arange(30)[inside])
        np.testing.assert_array_equal(state.dictionary[:, outside], before[:, outside])
        np.testing.assert_allclose(state.sizes, problem.constraint.psi(state.dictionary))
        values.append(value())
    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] < values[0]
    assert problem.constraint.size(state.dictionary).max() <= 1 + 1e-9


@pytest.mark.parametrize("kind", ["whole rows", "masks", "masked statistics", "missing"])
def test_atoms_get_smoother_and_noise_hurts_less(kind, tmp_path):
    """Smooth planted images in noise: smooth atoms are closer to the truth."""
    random = np.random.default_rng(0)
    grid = np.linspace(-1, 1, 12)
    centers = random.uniform(-0.6, 0.6, (4, 2))
    truth = np.stack([np.exp(-8 * ((grid[:, None] - a) ** 2 + (grid - b) ** 2)).reshape(-1) for a, b in centers])
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    X = (random.standard_normal((150, 4)) * 2) @ truth + 0.5 * random.standard_normal((150, 144))
    options = {"masks": {"reduction": 3}, "masked statistics": {"reduction": RandomMasks(3, "masked")}}.get(kind, {})
    if kind == "missing":
        X[random.random(X.shape) < 0.3], options = np.nan, {"missing": "nan"}

    def explained(**parameters):
        model = MaskedDictionaryLearning(4, penalty="l2", alpha=0.1, random_state=0, n_epochs=40, **parameters)
        model.set_params(**options).fit(X)
        projected = truth @ np.linalg.pinv(model.components_) @ model.components_
        return model, float(np.square(projected).sum() / np.square(truth).sum())

    plain, without = explained()
    model, with_smoothness = explained(constraint=SmoothBall(shape=(12, 12), smoothness=0.5))
    assert with_smoothness > without
    rough, smooth = (roughness(each.components_.reshape(4, 12, 12)) for each in (plain, model))
    assert smooth < 0.8 * rough
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.constraint == model.constraint
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))


def test_sparse_rows_and_threads_give_the_same_atoms(X):
    X[np.abs(X) < 0.5] = 0
    ball = SmoothBall(shape=(4, 6))

    def fit(data, n_threads):
        return MaskedDictionaryLearning(3, constraint=ball, alpha=0.1, random_state=0, n_threads=n_threads).fit(data)

    dense = fit(X, 1).components_
    np.testing.assert_array_equal(fit(X, 2).components_, dense)
    np.testing.assert_allclose(fit(csr_array(X), 1).components_, dense, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{"reduction": 2}, {"missing": "nan"}])
def test_masks_and_missing_values_with_threads_give_the_same_bits(X, options, dtype):
    X = X.astype(dtype)
    if "missing" in options:
        X[::3, 4:9] = np.nan
    model = MaskedDictionaryLearning(3, constraint=SmoothBall("l1", shape=(4, 6)), alpha=0.1, random_state=0, **options)
    one = model.fit(X).components_
    assert one.dtype == dtype
    np.testing.assert_array_equal(model.set_params(n_threads=2).fit(X).components_, one)


def test_exact_projection_is_refused(X):
    with pytest.raises(ParameterError, match="SmoothBall needs projection='masked', got 'exact'"):
        MaskedDictionaryLearning(
            3, constraint=SmoothBall(shape=(4, 6)), alpha=0.1, reduction=RandomMasks(2, projection="exact")
        ).fit(X)


def test_wrong_shapes_are_refused(X):
    with pytest.raises(ParameterError, match=r"shape \(5,\) has 5 pixels, which does not divide the 24 features"):
        MaskedDictionaryLearning(3, constraint=SmoothBall(shape=(5,)), alpha=0.1).fit(X)
    with pytest.raises(ParameterError, match="shape of the grid must be a tuple of lengths"):
        SmoothBall()
    with pytest.raises(ParameterError, match="smoothness must be a number >= 0, got -1"):
        SmoothBall(shape=(4,), smoothness=-1)
