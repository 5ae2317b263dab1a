"""Bars of the paper's claims, on small data: the tests check what is compared, not the figures."""

import pytest
from benchmarks import claims
from benchmarks.harness import Skipped
from benchmarks.paper.sizes import TINY

from terafactor.datasets import make_brain_like


@pytest.fixture(autouse=True)
def small_data(monkeypatch, tmp_path):
    X, _ = make_brain_like(220, 343, n_maps=4)
    monkeypatch.setattr(claims, "brain_like", lambda n_features: (X[20:], X[:20]))
    monkeypatch.setattr(claims, "make_brain_like", lambda n_rows, n_features: (X, None))
    monkeypatch.setattr(claims, "QUICK", TINY)
    monkeypatch.setattr(claims, "OUTPUT", tmp_path)


def test_speed_up_bound_is_a_share_of_the_reduction():
    bars = list(claims.speed_up(quick=True))
    assert [bar.bound for bar in bars] == [0.75 * r for r in (4, 8, 12)] * 2
    for bar, r in zip(bars, (4, 8, 12) * 2, strict=True):
        assert bar.figure == pytest.approx(bar.details["r=1 s"] / bar.details[f"r={r} s"])


def test_same_samples_compares_final_objectives():
    (bar,) = claims.same_samples(quick=True)
    assert bar.figure == pytest.approx(100 * (bar.details["r=4"] / bar.details["r=1"] - 1))


def test_trend_compares_each_size_with_the_next():
    bars = list(claims.trend(quick=False))
    assert len(bars) == 2 * (len(TINY.ratings) - 1)
    for bar in bars:
        smaller, larger = bar.details.values()
        assert bar.figure == pytest.approx(larger - smaller)
        assert (bar.bound, bar.at_most) == (0, False)
    assert isinstance(next(claims.trend(quick=True)), Skipped)
