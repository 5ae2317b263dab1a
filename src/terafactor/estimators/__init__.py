"""The scikit-learn face."""

from terafactor.estimators.masked_dictionary_learning import MaskedDictionaryLearning

__all__ = ["MaskedDictionaryLearning"]
