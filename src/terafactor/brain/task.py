"""The training of an atlas: read and pack images, then learn a dictionary."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.brain import maps
from terafactor.brain.advice import atlas_advice
from terafactor.brain.confounds import CONFOUNDS_SETTINGS, confounds_setting
from terafactor.brain.initial import initial_maps
from terafactor.brain.kinds import check_image_size, check_readable, kind_named, name_of, read_errors
from terafactor.brain.maskers import check_saved_options, saved_options
from terafactor.brain.preparation import masked_images, packed_images
from terafactor.brain.reporting import PAGES
from terafactor.data import BatchStream, MatrixSource
from terafactor.data.masks import masks_of
from terafactor.dictionary import MaskedDictionaryLearning
from terafactor.dictionary.parameters import options_of, problem_of
from terafactor.dictionary.task import DictionaryTask
from terafactor.errors import DataError, ParameterError, TerafactorError
from terafactor.solver.callbacks import Callback, Evaluation
from terafactor.solver.fit import atoms_from_rows
from terafactor.solver.loop import RunningFit
from terafactor.solver.state_dict import StateDict
from terafactor.training.task import Start, Task

if TYPE_CHECKING:
    from terafactor.brain.estimator import BrainDictionaryLearning
    from terafactor.brain.images import ImagesSource

MIN_VISITS = 30
"""Default number of steps that use each voxel: with fewer, masked statistics are far from full ones."""

MIN_STEPS = 150
"""Default number of steps. With 30 steps on all voxels, maps explain less of held-out images than with 300 steps on a
tenth of the voxels; with 150 steps, they explain more."""


class AtlasTask(Task):
    """Learn an atlas from images. ``X`` is images, or a mapping with ``images`` and ``confounds``."""

    kind = "BrainDictionaryLearning"
    estimator: BrainDictionaryLearning

    def __init__(self, estimator: BrainDictionaryLearning) -> None:
        super().__init__(estimator)
        self.inner = DictionaryTask(inner_estimator(estimator))

    def open_data(self, X: Any) -> MatrixSource:
        """Return the masked and cleaned volumes, packed unless ``store`` is False."""
        model, inputs = self.estimator, X if isinstance(X, Mapping) else {"images": X}
        source = self._masked(inputs["images"], inputs.get("confounds"))
        background, data = source.background(), self._packed(source)
        model.masker_, model.mask_img_, model._kind = source.masker, source.masker.mask_img_, source.kind
        model.background_, model.confounds_ = background, confounds_setting(inputs.get("confounds"))
        return data

    def _masked(self, images: Any, confounds: Any) -> ImagesSource:
        model, inner = self.estimator, self.inner.estimator
        n_threads = 1 if model.store is False else resolve_threads(model.n_threads)
        source = masked_images(
            images, confounds, model.mask, model._masker_options(),
            resample=model.resample, global_signal=model.global_signal, n_threads=n_threads,
        )  # fmt: skip
        problem_of(inner)  # refuse invalid parameters before packing, which may take hours
        options_of(inner, source)
        return source

    def _packed(self, source: ImagesSource) -> MatrixSource:
        model = self.estimator
        if model.store is False:
            return source
        n_threads = resolve_threads(model.n_threads)
        return packed_images(
            source, model.store, block_rows=model.batch_size, n_threads=n_threads, show=bool(model.verbose)
        )

    def describe_data(self, data: MatrixSource) -> dict[str, Any]:
        return self.inner.describe_data(data)

    def hold_out(self, data: MatrixSource, amount: Any, seed: int) -> tuple[Any, Any, dict[str, Any]]:
        return self.inner.hold_out(data, amount, seed)

    def open_validation(self, X: Any, data: MatrixSource) -> MatrixSource:
        return self.estimator._fitted_source(X, None)

    def objective(self, held_out: MatrixSource) -> Callable[[RunningFit], float]:
        return self.inner.objective(held_out)

    def prepare(self, data: MatrixSource, start: Start) -> None:
        model, inner = self.estimator, self.inner.estimator
        n_epochs = self._default_epochs(data, start.seed) if model.n_epochs is None else model.n_epochs
        inner.set_params(n_epochs=n_epochs)
        if start.state_dict is None:
            inner.set_params(init=self._initial_maps(data, start.seed))
        self.inner.prepare(data, start)
        model._inner = inner

    def _default_epochs(self, data: MatrixSource, seed: int) -> int:
        """Return the fewest passes that make ``MIN_STEPS`` steps and use each voxel in ``MIN_VISITS`` of them."""
        model = self.estimator
        masks = masks_of(data, model.reduction, seed)
        stream = BatchStream(data, model.batch_size, masks, seed, whole_rows=False)
        return stream.epochs_until(max(MIN_VISITS, math.ceil(MIN_STEPS / masks.cycle_length)))

    def _initial_maps(self, data: MatrixSource, seed: int) -> Array:
        model, kind = self.estimator, self.estimator._kind
        constraint = problem_of(self.inner.estimator).constraint
        if model.dict_init is None:
            return initial_maps(data, constraint, model.n_components, model.batch_size, model.reduction, seed)
        plain = kind.plain_masker(model.masker_)
        try:
            if isinstance(model.dict_init, str | os.PathLike):
                check_readable(model.dict_init)
                check_image_size(os.fspath(model.dict_init))
            initial = np.atleast_2d(plain.transform_single_imgs(kind.open(model.dict_init, model.mask)))
        except read_errors() as error:
            raise DataError(
                f"dict_init must be an image of maps of the same kind as the images, or its path, got "
                f"{name_of(model.dict_init)}: {error}"
            ) from error
        if len(initial) != model.n_components:
            raise ParameterError(f"dict_init has {len(initial)} maps, but n_components is {model.n_components}")
        return atoms_from_rows(np.ascontiguousarray(initial, data.dtype), model.n_components, constraint, seed)

    def learn(self, data: MatrixSource, callbacks: Sequence[Callback]) -> None:
        self.inner.learn(data, callbacks)
        self._set_maps()

    def review(self, data: MatrixSource) -> list[Any]:
        """Return warnings about the maps, or about constant images."""
        setup, model = self.inner.setup, self.estimator
        sample = cast(MatrixSource, setup.sample)  # only partial_fit has none
        rows, general = sample.read(np.arange(sample.shape[0])), self.inner.review(data)
        found = atlas_advice(
            rows, model.components_, setup.problem,
            regressed=model.global_signal is not None,
            n_volumes=data.shape[0],
            n_visits=model._n_visits,
            n_epochs=self._default_epochs(data, setup.options.seed),
        )  # fmt: skip
        return [*(general if rows.any() else []), *found]

    def _set_maps(self) -> None:
        """Set the learned attributes, with the maps sorted and mostly positive."""
        model, inner = self.estimator, self.inner.estimator
        model._inner = inner
        learned = np.ascontiguousarray(inner.components_)
        ordered = learned[maps.order(learned, inner._state.code_gram)]
        model.components_, model.labels_, model._pages = ordered * maps.signs(ordered)[:, np.newaxis], (), ()
        model.n_steps_, model.feature_counts_ = inner.n_steps_, inner.feature_counts_
        model.statistics_ = inner.statistics_

    def state_dict(self, state_dict: StateDict | None = None) -> StateDict:
        model = self.estimator
        learned = model._inner._task().state_dict(state_dict)
        arrays = {f"brain.{name}": array for name, array in model._kind.masker_arrays(model.masker_).items()}
        if model.background_ is not None:
            arrays["brain.background"] = model.background_
        facts = {
            "brain.kind": model._kind.name,
            "brain.options": saved_options(model.masker_),
            "brain.confounds": model.confounds_,
        }
        numbers = facts | dict(learned.numbers) | {"stopped_by": getattr(model, "stopped_by_", None)}
        return StateDict(numbers, arrays | dict(learned.arrays))

    def restore(self, state_dict: StateDict) -> None:
        model, brain = self.estimator, state_dict.section("brain")
        model._kind = kind_named(brain.number("kind", str))
        if model.store and not os.path.lexists(model.store):  # a new fit would write to a path from the file
            model.store = None
        options = check_saved_options(brain.number("options", dict), model._kind)
        try:
            model.masker_ = model._kind.restore_masker(brain, options)
        except TerafactorError:
            raise
        except read_errors() as error:
            raise DataError(
                f"invalid mask in the model file: {error}; it was not written by terafactor, or was changed"
            ) from error
        model.mask_img_ = model.masker_.mask_img_
        model.background_ = None
        if "background" in brain.arrays:
            model.background_ = brain.array("background", (int(model.masker_.n_elements_),), np.float32)
        model.confounds_ = brain.numbers.get("confounds")
        if model.confounds_ not in CONFOUNDS_SETTINGS:
            raise DataError(
                f"invalid confounds in the model file: {model.confounds_!r} is none of {CONFOUNDS_SETTINGS}"
            )
        self.inner.restore(state_dict)
        self._set_maps()
        if hasattr(self.inner.estimator, "stopped_by_"):
            model.stopped_by_ = self.inner.estimator.stopped_by_

    def present(
        self,
        directory: Path,
        config: Mapping[str, Any],
        data: Any,
        history: Sequence[Evaluation],
        atoms: Array | None = None,
    ) -> None:
        """Write the report of a run and, at its end, the maps; update existing pages of single maps."""
        model = self.estimator
        if atoms is None:
            model.save_maps(directory / "maps", overwrite=True)
            if (directory / PAGES).is_dir() and not getattr(model, "_pages", ()):
                model.write_viewers(directory)
        shown = None if atoms is None else atoms * maps.signs(atoms)[:, np.newaxis]
        super().present(directory, config, data, history, shown)


def inner_estimator(model: BrainDictionaryLearning) -> MaskedDictionaryLearning:
    """Return the estimator of the dictionary, in the setting of the paper; ``n_epochs=None`` needs the data."""
    return MaskedDictionaryLearning(
        model.n_components,
        alpha=model.alpha,
        penalty="l2",
        constraint="l1",
        positive_dict=model.positive_dict,
        reduction=model.reduction,
        batch_size=model.batch_size,
        n_epochs=1 if model.n_epochs is None else model.n_epochs,
        shards=model.shards,
        round_steps=model.round_steps,
        forgetting=model.forgetting,
        tol=model.tol,
        max_time=model.max_time,
        n_threads=model.n_threads,
        callbacks=model.callbacks,
    )
