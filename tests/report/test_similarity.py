"""Cosines between atoms."""

import numpy as np
import pytest

from terafactor.report import similarity as module
from terafactor.report.similarity import similarity


def test_cosines_of_known_atoms():
    atoms = np.array([[1.0, 0, 0], [-2.0, 0, 0], [1.0, 1.0, 0], [0, 0, 0]])
    found = similarity(atoms, np.arange(4))
    np.testing.assert_allclose(found.cosines[0], [0, -1, np.sqrt(0.5), 0])
    np.testing.assert_allclose(found.cosines[3], 0)
    assert found.closest(1) == [(0, 1, pytest.approx(-1))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_features_are_taken_in_parts(monkeypatch, dtype):
    atoms = np.asfortranarray(np.random.default_rng(0).standard_normal((5, 1000)).astype(dtype))
    whole = similarity(atoms, np.arange(5)).cosines
    monkeypatch.setattr(module, "FEATURES_AT_ONCE", 64)
    np.testing.assert_allclose(similarity(atoms, np.arange(5)).cosines, whole, atol=1e-5)
    unit = atoms / np.linalg.norm(atoms, axis=1, keepdims=True)
    np.testing.assert_allclose(whole, unit @ unit.T - np.eye(5), atol=1e-5)


def test_work_is_bounded_and_the_first_in_order_are_taken(monkeypatch):
    monkeypatch.setattr(module, "MAX_PRODUCTS", 900)
    found = similarity(np.eye(8, 100), np.arange(8)[::-1])
    assert found.atoms.tolist() == [7, 6, 5]
    assert found.cosines.shape == (3, 3)
