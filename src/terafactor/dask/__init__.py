"""The estimators on a Dask cluster: the same classes and parameters, and the same bits, on many machines.

Needs the extra ``dask``. docs/clusters.md explains rounds, and when a cluster pays.
"""

from terafactor.dask.estimators import BrainDictionaryLearning, MaskedDictionaryLearning
from terafactor.dask.executor import DaskExecutor

__all__ = ["BrainDictionaryLearning", "DaskExecutor", "MaskedDictionaryLearning"]
