"""Save, load and export fitted estimators."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any, Self, get_type_hints

import numpy as np

from terafactor._checks import check_new
from terafactor._durable import open_durably
from terafactor.errors import DataError, ParameterError, TerafactorError
from terafactor.runs.artifact import Artifact, find_artifact, read_artifact, write_artifact
from terafactor.runs.directory import RunDirectory
from terafactor.runs.parameters import from_plain
from terafactor.runs.schema import COUNT, COUNTS, TEXT, TEXTS, Schema, check_document, fits
from terafactor.training.task import Task

logger = logging.getLogger("terafactor")

NUMBERS: Schema = {
    "advice": TEXTS.optional(),
    "feature_names": TEXTS.or_none().optional(),
    "geometry": COUNTS.or_none().optional(),
    "stopped_by": TEXT.or_none().optional(),
    "rows": COUNT.optional(),
}
"""Numbers that estimators read without a check of their own."""


class ModelFileMixin:
    """Mixin that adds ``save`` and ``export`` to an estimator."""

    def _task(self) -> Task:
        """Return the task that trains the estimator, and reads and writes its model files."""
        raise NotImplementedError

    @classmethod
    def _from_file(cls, parameters: Mapping[str, Any]) -> Self:
        """Return an estimator with the parameters of a file; refuse unknown ones, and values of another type."""
        unknown = sorted(set(parameters) - set(cls._get_param_names()))  # type: ignore[attr-defined]
        if unknown:
            raise DataError(f"the file has parameters that {cls.__name__} does not: {', '.join(unknown)}")
        cls._check_types(parameters)
        return cls(**parameters)

    @classmethod
    def _check_types(cls, parameters: Mapping[str, Any]) -> None:
        """Refuse parameters of a file that do not have the types of the constructor."""
        hints = get_type_hints(cls.__init__)
        for name, value in parameters.items():
            if not fits(hints.get(name, Any), value):
                needed, shown = hints.get(name, "a finite number"), f"{value!r:.80}"
                raise DataError(f"{name} of the file must be {needed}, got {shown}: the file was changed")

    def save(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the fitted model to a folder, for :func:`terafactor.load_model`.

        Parameters
        ----------
        path : path
            The folder to create.
        overwrite : bool
            Whether to replace a model there. Of several processes that do so at once, the last one wins.
        """
        write_artifact(self._task().artifact(), path, overwrite=overwrite)

    def export(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the learned arrays and numbers to a plain ``.npz`` file, for other programs.

        Parameters
        ----------
        path : path
            The file.
        overwrite : bool
            Whether to replace a file there.
        """
        self._task().state_dict()  # refuses a model that is not fitted, or unusable
        path = Path(path)
        if path.suffix != ".npz":
            raise ParameterError(
                f"export writes .npz files, got {path}: use save to write a model that load_model reads"
            )
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
        with open_durably(path) as file:
            np.savez(file, **arrays)


def load_model(path: Path | str) -> Any:
    """Load a fitted estimator from a model folder, a checkpoint, or the directory of a finished run.

    The training data is not needed. Files are verified before anything is allocated, and contain no code. If a finished
    run was resumed for more epochs and has not ended yet, the earlier model is loaded, and a warning in the log names
    the newest checkpoint.

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
    return restore_estimator(read_artifact(_find_model(run) if run.is_run else path))


def _find_model(run: RunDirectory) -> Path:
    """Return the model of a run; log a warning if the run was resumed since."""
    newest, is_model = run.latest()
    model = find_artifact(run.model)
    if not model.is_dir():
        raise DataError(
            f"{run.path} has no model yet: finish it with terafactor resume, or load one of its checkpoints"
        )
    if not is_model:
        logger.warning(
            "%s was resumed after this model was written: finish it with terafactor resume, or load %s",
            run.path,
            newest,
        )
    return model


def restore_estimator(artifact: Artifact) -> Any:
    """Return the fitted estimator of a model file or a checkpoint."""
    estimator = make_estimator(artifact.kind, artifact.parameters)
    check_document(artifact.state_dict.numbers, NUMBERS, "the file")
    try:
        estimator._task().restore(artifact.state_dict)
        estimator._advice = artifact.state_dict.numbers.get("advice", [])
        names = getattr(estimator, "feature_names_in_", None)
        if names is not None and len(names) != estimator.n_features_in_:
            raise DataError(f"the file names {len(names)} features, but its atoms have {estimator.n_features_in_}")
    except TerafactorError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"the file is not a complete {artifact.kind} ({error}): it was not written by terafactor, or was changed"
        ) from error
    return estimator


def make_estimator(kind: Any, parameters: Mapping[str, Any]) -> Any:
    """Return an unfitted estimator with plain parameters; its class comes from a fixed table."""
    from terafactor import KINDS

    if kind not in KINDS:
        raise DataError(f"the file holds a {kind!r}, which is none of {', '.join(KINDS)}")
    module, name = KINDS[kind].split(":")
    return getattr(import_module(module), name)._from_file(from_plain(parameters))
