"""Saving and loading of fitted estimators."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np

from terafactor._checks import check_new
from terafactor._durable import naming
from terafactor.errors import DataError, ParameterError
from terafactor.runs.artifact import Artifact, place_of, read_artifact, write_artifact
from terafactor.runs.directory import RunDirectory
from terafactor.runs.parameters import from_plain
from terafactor.training.task import Task

logger = logging.getLogger("terafactor")


class ModelFileMixin:
    """Gives an estimator ``save`` and ``export``."""

    def _task(self) -> Task:
        """Return what the :class:`~terafactor.training.Trainer` and model files need to know of the estimator."""
        raise NotImplementedError

    @classmethod
    def _from_file(cls, parameters: Mapping[str, Any]) -> Self:
        """Return an estimator with the parameters in a file, refusing those that it does not have."""
        unknown = sorted(set(parameters) - set(cls._get_param_names()))  # type: ignore[attr-defined]
        if unknown:
            raise DataError(f"the file has parameters that {cls.__name__} does not: {', '.join(unknown)}")
        return cls(**parameters)

    def save(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the fitted model to a folder, for :func:`terafactor.load_model`.

        Parameters
        ----------
        path : path
            The folder, made by this call.
        overwrite : bool
            Whether a model there may be replaced.
        """
        write_artifact(self._task().artifact(), path, overwrite=overwrite)

    def export(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the learned arrays and numbers as a plain ``.npz``, for programs that do not know terafactor.

        Parameters
        ----------
        path : path
            The file.
        overwrite : bool
            Whether a file there may be replaced.
        """
        path = Path(path)
        if path.suffix != ".npz":
            raise ParameterError(f"export writes a .npz file, got {path}: save writes a model to load again")
        check_new(path, overwrite=overwrite)
        arrays: dict[str, Any] = {
            name: np.asarray(value)
            for name, value in sorted(vars(self).items())
            if name.endswith("_") and isinstance(value, np.ndarray | Real | tuple)
        }
        arrays = {
            name: array.astype(str) if array.dtype == object else array  # names are objects, which need pickle
            for name, array in arrays.items()
        }
        temporary = path.with_name(f".{path.stem}.unfinished.npz")
        with naming(path):
            np.savez(temporary, **arrays)
            os.replace(temporary, path)


def load_model(path: Path | str) -> Any:
    """Load a fitted estimator from a model folder, a checkpoint, or a run directory with a model in it.

    The training data is not needed. Files are verified before anything is allocated, and hold no code. Of a run that
    was resumed for more epochs and has not come to its end, it is the model before, and a warning in the log names the
    newest checkpoint.

    Parameters
    ----------
    path : path

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from terafactor import MaskedDictionaryLearning, load_model
    >>> X = np.random.default_rng(0).standard_normal((60, 8))
    >>> model = MaskedDictionaryLearning(3, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model")
    ...     loaded = load_model(f"{folder}/model")
    >>> np.array_equal(loaded.transform(X), model.transform(X))
    True
    """
    run = RunDirectory(path)
    artifact = read_artifact(_model_of(run) if run.is_run else path)
    return restored(artifact)


def _model_of(run: RunDirectory) -> Path:
    """Return the model of a run, saying so when the run has gone on since."""
    newest, is_model = run.latest()
    model = place_of(run.model)
    if not model.is_dir():
        raise DataError(
            f"{run.path} has no model yet: finish it with terafactor resume, or load one of its checkpoints"
        )
    if not is_model:
        logger.warning(
            "%s went on after this model was written: finish it with terafactor resume, or load %s", run.path, newest
        )
    return model


def restored(artifact: Artifact) -> Any:
    """Return the fitted estimator that a model file or a checkpoint holds."""
    estimator = unfitted(artifact.kind, artifact.parameters)
    estimator._task().restore(artifact.state_dict)
    return estimator


def unfitted(kind: Any, parameters: Mapping[str, Any]) -> Any:
    """Return an estimator of a kind with plain parameters; its class comes out of a fixed table."""
    from terafactor import KINDS

    if kind not in KINDS:
        raise DataError(f"the file holds a {kind!r}, which is none of {', '.join(KINDS)}")
    module, name = KINDS[kind].split(":")
    return getattr(import_module(module), name)._from_file(from_plain(parameters))
