"""Synthetic data with known structure, for demonstrations, tests and benchmarks."""

from terafactor.datasets.brain_like import make_brain_like
from terafactor.datasets.brain_study import BrainStudy, make_brain_study
from terafactor.datasets.planted import make_planted, matched_correlation
from terafactor.datasets.ratings import make_ratings

__all__ = [
    "BrainStudy",
    "make_brain_like",
    "make_brain_study",
    "make_planted",
    "make_ratings",
    "matched_correlation",
]
