"""Projections: equal to the reference, feasible, closest, idempotent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from terafactor.kernels.projection import project
from terafactor.problem import NormBall
from terafactor.testing import reference

BALLS = [
    NormBall("l2"),
    NormBall("l2", radius=0.3),
    NormBall("l1"),
    NormBall("l1", radius=5.0),
    NormBall("elastic-net", l1_ratio=0.3),
    NormBall("elastic-net", radius=2.0, l1_ratio=1.0),
    NormBall("elastic-net", l1_ratio=0.0),
    NormBall("l1", positive=True),
    NormBall("l2", positive=True),
    NormBall("elastic-net", l1_ratio=0.7, positive=True),
]
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-12}


def reference_projection(values, ball):
    limit = ball.radius**2 if ball.norm == "l2" else ball.radius
    return reference.project(values.astype(np.float64), ball.norm, limit, ball.l1_ratio, ball.positive)


@pytest.mark.parametrize("ball", BALLS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("size", [1, 7, 5000])
def test_equals_the_reference(ball, dtype, scale, size):
    values = (scale * np.random.default_rng(size).standard_normal(size)).astype(dtype)
    projected = ball.project(values[np.newaxis])[0]
    assert projected.dtype == dtype
    tolerance = TOLERANCE[dtype] * max(1, np.abs(values).max())
    np.testing.assert_allclose(projected, reference_projection(values, ball), atol=tolerance, rtol=0)


@given(
    arrays(np.float64, st.integers(1, 30), elements=st.floats(-100, 100, width=32)),
    st.sampled_from(BALLS),
)
@settings(max_examples=300, deadline=None)
def test_is_feasible_idempotent_and_closest(values, ball):
    projected = ball.project(values[np.newaxis])
    assert ball.size(projected)[0] <= 1 + 1e-9
    np.testing.assert_allclose(ball.project(projected), projected, atol=1e-9, rtol=1e-9)
    if ball.positive:
        assert (projected >= 0).all()
    # Closest point of a convex set: the angle between v - P(v) and any z - P(v) is at least 90 degrees.
    others = ball.project(np.random.default_rng(0).standard_normal((20, len(values))) * 3)
    assert ((values - projected) @ (others - projected).T <= 1e-6 * (1 + np.abs(values).max())).all()


@pytest.mark.parametrize("ball", BALLS, ids=repr)
def test_zero_stays_zero(ball):
    assert not ball.project(np.zeros((1, 9))).any()
    assert not ball.fill(np.zeros((1, 9))).any()


@pytest.mark.parametrize("ball", BALLS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fill_scales_to_the_boundary(ball, dtype):
    atoms = np.random.default_rng(0).standard_normal((3, 50)).astype(dtype)
    filled = ball.fill(atoms)
    np.testing.assert_allclose(ball.size(filled), 1, rtol=1e-5)
    kept = np.maximum(atoms, 0) if ball.positive else atoms
    cosine = (filled * kept).sum(axis=1) / np.linalg.norm(filled, axis=1) / np.linalg.norm(kept, axis=1)
    np.testing.assert_allclose(cosine, 1, rtol=1e-5)


@pytest.mark.parametrize("norm", ["l1", "l2", "elastic-net"])
@pytest.mark.parametrize("budget", [0.0, 1e-20])
def test_the_reference_is_zero_without_a_budget(norm, budget):
    np.testing.assert_allclose(reference.project(np.array([3.0, -1.0, 3.0]), norm, budget), 0, atol=1e-9)


@pytest.mark.parametrize("norm", ["l1", "l2", "elastic-net"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("radius", [1e-17, 1e-9, 1.0])
@pytest.mark.parametrize("scale", [1.0, 1e7, 1e9])
def test_values_far_outside_the_ball_are_projected_to_its_boundary(norm, dtype, radius, scale):
    """The exact threshold may not be representable in the precision of the values."""
    ball = NormBall(norm, radius)
    l1_weight, l2_weight, limit, positive = ball.as_scalars()
    for values in ([1, 1], [1, 2], [1, 2, 1.9], [0.7, -1, 1, 0]):
        atom = scale * np.array(values, dtype)
        largest = np.argmax(np.abs(atom))
        project(atom, l1_weight, l2_weight, limit, positive, np.empty((2, 1, 4)))
        assert ball.size(atom[np.newaxis].astype(np.float64))[0] == pytest.approx(1, rel=1e-5)
        assert np.argmax(np.abs(atom)) == largest


def test_projection_is_accurate_in_any_precision():
    atoms = np.array([[1e7, 1e7], [1e9, 2e9]], np.float32)
    np.testing.assert_allclose(NormBall("l1").project(atoms), [[0.5, 0.5], [0, 1]])
    np.testing.assert_allclose(NormBall("l2").project(np.full((1, 2), 1e30, np.float32)), np.sqrt([[0.5, 0.5]]))
