"""The bars of the paper's claims, on little data: what they compare, not what they find."""

import pytest
from benchmarks import claims
from benchmarks.harness import Bar, Skipped
from benchmarks.paper.sizes import TINY

from terafactor.datasets import make_brain_like


@pytest.fixture(autouse=True)
def little_data(monkeypatch):
    X, _ = make_brain_like(220, 343, n_maps=4)
    monkeypatch.setattr(claims, "brain_like", lambda n_features: (X[20:], X[:20]))
    monkeypatch.setattr(claims, "QUICK", TINY)
    monkeypatch.setattr(claims, "N_COMPONENTS", 4)


def test_speed_up_asks_for_a_share_of_the_reduction():
    bars = list(claims.speed_up(quick=True))
    assert [bar.bound for bar in bars] == [0.75 * r for r in (4, 8, 12)]
    for bar, r in zip(bars, (4, 8, 12), strict=True):
        assert bar.figure == pytest.approx(bar.details["r=1 s"] / bar.details[f"r={r} s"])


def test_same_samples_compares_ends():
    (bar,) = claims.same_samples(quick=True)
    assert bar.figure == pytest.approx(100 * (bar.details["r=4"] / bar.details["r=1"] - 1))


def test_trend_compares_each_size_with_the_next():
    bars = list(claims.trend(quick=False))
    assert len(bars) == len(TINY.ratings) - 1
    assert all(isinstance(bar, Bar) and bar.bound == 1 and not bar.at_most for bar in bars)
    assert isinstance(next(claims.trend(quick=True)), Skipped)
