"""The estimators on a Dask cluster: the same classes and parameters, and bitwise identical results.

Needs the extra ``dask``. docs/clusters.md explains rounds, and when a cluster pays.
"""

from terafactor.dask.estimators import BrainDictionaryLearning, MaskedDictionaryLearning, on_cluster
from terafactor.dask.executor import DaskExecutor
from terafactor.dask.records import pack

__all__ = ["BrainDictionaryLearning", "DaskExecutor", "MaskedDictionaryLearning", "on_cluster", "pack"]
