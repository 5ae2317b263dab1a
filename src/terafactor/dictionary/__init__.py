"""Dictionaries of matrices: the scikit-learn estimator, and what it does in a training."""

from terafactor.dictionary.estimator import MaskedDictionaryLearning

__all__ = ["MaskedDictionaryLearning"]
