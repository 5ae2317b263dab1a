"""Dictionary learning: the scikit-learn estimator, its defaults and warnings, and its training task."""

from terafactor.dictionary.estimator import MaskedDictionaryLearning

__all__ = ["MaskedDictionaryLearning"]
