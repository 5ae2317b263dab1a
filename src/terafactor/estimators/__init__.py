"""The scikit-learn face."""

from terafactor.estimators.masked_dictionary_learning import MaskedDictionaryLearning
from terafactor.estimators.model_file import load_model
from terafactor.estimators.run_report import report_runs

__all__ = ["MaskedDictionaryLearning", "load_model", "report_runs"]
