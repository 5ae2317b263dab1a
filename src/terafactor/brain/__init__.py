"""Atlases of sparse maps from brain images larger than memory (extra ``brain``)."""

from terafactor.brain.estimator import BrainDictionaryLearning

__all__ = ["BrainDictionaryLearning"]
