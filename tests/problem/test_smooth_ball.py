"""Smooth atoms: the Laplacian, descent, and what a fit does with them."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from terafactor import MaskedDictionaryLearning, load_model
from terafactor.errors import ParameterError
from terafactor.problem import SmoothBall


def roughness(ball, atoms):
    return sum(float(atom @ ball.laplacian(atom)) for atom in atoms)


def test_the_laplacian_is_that_of_the_grid():
    ball, image = SmoothBall(shape=(3, 4)), np.random.default_rng(0).standard_normal((3, 4))
    squares = np.square(np.diff(image, axis=0)).sum() + np.square(np.diff(image, axis=1)).sum()
    assert roughness(ball, image.reshape(1, -1)) == pytest.approx(squares)


def test_channels_are_smoothed_apart():
    ball, image = SmoothBall(shape=(3, 4)), np.random.default_rng(0).standard_normal((3, 4, 2))
    parts = [ball.laplacian(image[..., channel].reshape(-1)) for channel in range(2)]
    np.testing.assert_allclose(ball.laplacian(image.reshape(-1)).reshape(12, 2), np.stack(parts, axis=1))


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_sweep_never_raises_what_it_minimizes(norm):
    random = np.random.default_rng(0)
    ball = SmoothBall(norm, shape=(5, 6), smoothness=0.7)
    codes, rows = random.standard_normal((50, 4)), random.standard_normal((50, 30))
    code_gram, data_code = codes.T @ codes / 50, codes.T @ rows / 50
    gamma = ball.smoothness * np.diagonal(code_gram).mean()
    atoms = ball.fill(random.standard_normal((4, 30)))

    def value():
        return (
            0.5 * np.vdot(atoms @ atoms.T, code_gram) - np.vdot(atoms, data_code) + gamma / 2 * roughness(ball, atoms)
        )

    values = [value()]
    for _ in range(10):
        ball.update_atoms(atoms, data_code, code_gram)
        values.append(value())
    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] < values[0]
    assert ball.size(atoms).max() <= 1 + 1e-9


def test_atoms_get_smoother_and_noise_hurts_less(tmp_path):
    """Smooth planted images in noise: smooth atoms are closer to the truth."""
    random = np.random.default_rng(0)
    grid = np.linspace(-1, 1, 12)
    centers = random.uniform(-0.6, 0.6, (4, 2))
    truth = np.stack([np.exp(-8 * ((grid[:, None] - a) ** 2 + (grid - b) ** 2)).reshape(-1) for a, b in centers])
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    X = (random.standard_normal((150, 4)) * 2) @ truth + 0.5 * random.standard_normal((150, 144))

    def explained(**parameters):
        model = MaskedDictionaryLearning(4, penalty="l2", alpha=0.1, random_state=0, **parameters).fit(X)
        projected = truth @ np.linalg.pinv(model.components_) @ model.components_
        return model, float(np.square(projected).sum() / np.square(truth).sum())

    plain, without = explained()
    model, with_smoothness = explained(constraint=SmoothBall(shape=(12, 12), smoothness=0.5))
    assert with_smoothness > without
    assert roughness(model.constraint, model.components_) < 0.8 * roughness(model.constraint, plain.components_)
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


@pytest.mark.parametrize("options", [{"reduction": 2}, {"missing": "nan"}])
def test_masks_and_missing_values_are_refused(X, options):
    with pytest.raises(ParameterError, match="SmoothBall needs whole rows: use reduction=1, and data without missing"):
        MaskedDictionaryLearning(3, constraint=SmoothBall(shape=(4, 6)), alpha=0.1, **options).fit(X)


def test_wrong_shapes_are_refused(X):
    with pytest.raises(ParameterError, match=r"shape \(5,\) has 5 pixels, which does not divide the 24 features"):
        MaskedDictionaryLearning(3, constraint=SmoothBall(shape=(5,)), alpha=0.1).fit(X)
    with pytest.raises(ParameterError, match="shape of the grid must be a tuple of lengths"):
        SmoothBall()
    with pytest.raises(ParameterError, match="smoothness must be a number >= 0, got -1"):
        SmoothBall(shape=(4,), smoothness=-1)
