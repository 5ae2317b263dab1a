"""The estimators, with their shards on a cluster."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from terafactor import brain, dictionary
from terafactor.brain.task import AtlasTask
from terafactor.dask.chunks import ClusterArray
from terafactor.dask.cluster import TIMEOUT, find_client, n_threads_of
from terafactor.dask.executor import DaskExecutor
from terafactor.dask.lazy import lazy_objective, lazy_transform
from terafactor.dask.records import Encoding, distributed_codes, distributed_objective
from terafactor.data import MatrixSource
from terafactor.data.sources.formats import is_a
from terafactor.dictionary.parameters import check_usable, problem_of
from terafactor.dictionary.rows import rows_of
from terafactor.dictionary.task import DictionaryTask
from terafactor.errors import ParameterError


def is_dask_array(X: Any) -> bool:
    """Return whether X is a Dask array, without importing Dask."""
    return is_a(X, "dask", "Array")


class OnCluster(BaseEstimator):
    """Base class of the estimators on a cluster.

    The client is not a parameter in the sense of scikit-learn: it is not part of the model, and is not cloned or saved.
    """

    def __init__(
        self, n_components: int = 20, *, client: Any = None, timeout: float = TIMEOUT, **parameters: Any
    ) -> None:
        super().__init__(n_components, **parameters)
        self.client = client
        self.timeout = timeout

    @classmethod
    def _local(cls) -> Any:
        """Return the class that this one runs on a cluster."""
        return next(base for base in cls.__mro__ if not issubclass(base, OnCluster) and issubclass(base, BaseEstimator))

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return list(cls._local()._get_param_names())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "client"} | {"client": None}

    def _auto_shards(self) -> int:
        return max(2, n_threads_of(find_client(self.client), self.timeout))

    def to_local(self) -> Any:
        """Return the same model as a plain estimator, which needs no cluster."""
        local = self._local()(**self.get_params(deep=False))
        own = {name: value for name, value in vars(self).items() if name not in ("client", "timeout")}
        vars(local).update(own)
        return local


def on_cluster(estimator: Any, client: Any = None, timeout: float = TIMEOUT) -> Any:
    """Return an estimator with the same parameters, and the same model if it is fitted, that computes on a cluster.

    Parameters
    ----------
    estimator : MaskedDictionaryLearning or BrainDictionaryLearning
    client : dask.distributed.Client, optional
        By default the one created last in this process.
    timeout : float
        As in :class:`MaskedDictionaryLearning`.

    Examples
    --------
    >>> from terafactor.dask import on_cluster
    >>> from terafactor import MaskedDictionaryLearning
    >>> on_cluster(MaskedDictionaryLearning(5, shards=4)).shards
    4
    """
    for kind in (MaskedDictionaryLearning, BrainDictionaryLearning):
        if type(estimator) is kind._local():
            moved: Any = kind(**estimator.get_params(deep=False), client=client, timeout=timeout)
            vars(moved).update(vars(estimator))
            return moved
    raise ParameterError(
        f"{type(estimator).__name__} runs on one machine only: a cluster can run MaskedDictionaryLearning and "
        "BrainDictionaryLearning"
    )


class DaskDictionaryTask(DictionaryTask):
    """Learns a dictionary on a cluster."""

    estimator: MaskedDictionaryLearning

    def open_data(self, X: Any) -> MatrixSource:
        return super().open_data(self.estimator._on_cluster(X))

    def open_validation(self, X: Any, data: MatrixSource) -> MatrixSource:
        return super().open_validation(self.estimator._on_cluster(X), data)

    def executor(self) -> DaskExecutor:
        model = self.estimator
        return DaskExecutor(find_client(model.client), model.timeout)


class MaskedDictionaryLearning(OnCluster, dictionary.MaskedDictionaryLearning):
    """:class:`terafactor.MaskedDictionaryLearning` whose shards learn on the workers of a Dask cluster.

    It has the parameters of that class and two more. For the same ``shards`` and ``round_steps``, the result is the
    same, bit for bit, as on one machine, and for any number of workers, even if some of them die.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms.
    client : dask.distributed.Client, optional
        Client of the cluster; by default the one created last in this process.
    timeout : float, default=300
        Seconds to wait for the scheduler, or for a first worker, before a fit fails. A run in a directory then writes
        a checkpoint.
    **parameters
        As in :class:`terafactor.MaskedDictionaryLearning`. ``n_threads`` is for work on this machine; a shard uses one
        thread of a worker.

    Notes
    -----
    X may be a path or a list of paths that all workers can open, a Dask array, whose chunks stay where they are, or an
    array in memory, which is copied to every worker. For a Dask array, ``transform`` returns a Dask array, and
    ``objective`` and ``score`` a Dask scalar: call ``compute()`` on them.

    Examples
    --------
    >>> from dask.distributed import Client
    >>> import dask.array as da
    >>> from terafactor.dask import MaskedDictionaryLearning
    >>> with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
    ...     X = da.random.default_rng(0).standard_normal((400, 20), chunks=(100, 20))
    ...     model = MaskedDictionaryLearning(3, shards=2, n_epochs=2, random_state=0).fit(X)
    ...     codes = model.transform(X).compute()
    >>> codes.shape
    (400, 3)
    >>> model.to_local().components_.shape
    (3, 20)
    """

    def _task(self) -> DaskDictionaryTask:
        return DaskDictionaryTask(self)

    def _on_cluster(self, X: Any) -> Any:
        return ClusterArray(X, find_client(self.client), self.timeout) if is_dask_array(X) else X

    def transform(self, X: Any, **options: Any) -> Any:
        """Return the codes (n_samples, n_components) of the rows of X; a Dask array for a Dask array.

        The ``options`` are those of :meth:`terafactor.MaskedDictionaryLearning.transform`. With ``out=``, the workers
        write the codes of a source that they can open, to a file on a disk that they share.
        """
        client = find_client(self.client)
        if is_dask_array(X) and not options:
            return lazy_transform(self.to_local(), X, client)
        encoding, source = self._encoding(X)
        if encoding is not None and set(options) == {"out"}:
            return distributed_codes(client, encoding, source, options["out"])
        return super().transform(source, **options)

    def objective(self, X: Any) -> Any:
        """Return the objective of the rows of X, as in :meth:`fit`; a Dask scalar for a Dask array."""
        client = find_client(self.client)
        if is_dask_array(X):
            return lazy_objective(self.to_local(), X, client)
        encoding, source = self._encoding(X)
        return super().objective(source) if encoding is None else distributed_objective(client, encoding, source)

    def _encoding(self, X: Any) -> tuple[Encoding | None, MatrixSource]:
        """Return what workers need to encode X, or None if they cannot open it, and X as a source."""
        check_usable(self)
        source = rows_of(self, self._on_cluster(X), reset=False)
        description = source.describe()
        if description is None:
            return None, source
        return Encoding(description, self.components_, problem_of(self), self.missing is not None), source


class DaskAtlasTask(AtlasTask):
    """Learns an atlas on a cluster; images are masked and packed on this machine."""

    def __init__(self, estimator: BrainDictionaryLearning) -> None:
        super().__init__(estimator)
        learner = MaskedDictionaryLearning(
            **self.inner.estimator.get_params(deep=False), client=estimator.client, timeout=estimator.timeout
        )
        self.inner = DaskDictionaryTask(learner)


class BrainDictionaryLearning(OnCluster, brain.BrainDictionaryLearning):
    """:class:`terafactor.brain.BrainDictionaryLearning` whose shards learn on the workers of a Dask cluster.

    Images are masked and packed on this machine, once; ``store`` must be a folder that all workers see. Parameters are
    those of that class, and ``client`` and ``timeout`` of :class:`terafactor.dask.MaskedDictionaryLearning`.

    Examples
    --------
    >>> from terafactor.dask import BrainDictionaryLearning
    >>> BrainDictionaryLearning(n_components=20, shards=8, store="/shared/store").shards
    8
    """

    def _task(self) -> DaskAtlasTask:
        return DaskAtlasTask(self)


__all__ = ["BrainDictionaryLearning", "MaskedDictionaryLearning", "on_cluster"]
