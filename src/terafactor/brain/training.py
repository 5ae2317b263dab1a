"""How an atlas is learned, and kept in files: what :func:`terafactor.train` and model files call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.brain import maps
from terafactor.brain.images import ImagesSource
from terafactor.brain.initial import initial_maps
from terafactor.brain.kinds import ImageKind, kind_named, masker_options, options_in_file, unreadable
from terafactor.brain.preparation import masked_images, packed_images
from terafactor.data import BatchStream, MatrixSource
from terafactor.data.masks import masks_of
from terafactor.errors import DataError, ParameterError
from terafactor.estimators import MaskedDictionaryLearning
from terafactor.estimators.model_file import ModelFileMixin
from terafactor.problem import ElasticNet, NormBall, Problem
from terafactor.runs.artifact import Artifact
from terafactor.runs.parameters import from_plain, plain_parameters
from terafactor.solver.callbacks import Callback, Evaluation
from terafactor.solver.fit import initial_atoms
from terafactor.solver.loop import Elapsed, Learner
from terafactor.solver.position import Position

VISITS = 30
"""How often each feature is visited by default: below that, masked statistics are still far from full ones."""


class AtlasTraining(ModelFileMixin):
    """The part of :class:`BrainDictionaryLearning` between images and the numeric learner."""

    kind = "BrainDictionaryLearning"
    n_components: int
    mask: Any
    alpha: float
    reduction: float
    batch_size: int
    n_epochs: float | None
    dict_init: Any
    positive_dict: bool
    forgetting: float | Literal["auto"]
    tol: float
    max_time: float | None
    store: Any
    resample: bool
    n_threads: int | None
    callbacks: Sequence[Callback]
    verbose: int
    components_: Array
    masker_: Any
    background_: Array | None
    labels_: Sequence[tuple[str, float]]
    _pages: Sequence[str]
    _kind: ImageKind
    _learner: MaskedDictionaryLearning
    get_params: Callable[..., dict[str, Any]]
    _get_param_names: Callable[[], list[str]]
    _masker_options: Callable[[], dict[str, Any]]

    def open_data(self, X: Any) -> MatrixSource:
        """Return the masked and cleaned volumes, packed unless ``store`` is False.

        Parameters
        ----------
        X : images, or mapping with ``images`` and ``confounds``
        """
        given = X if isinstance(X, Mapping) else {"images": X}
        source = self._masked(given["images"], given.get("confounds"))
        background, data = source.background(), self._packed(source)
        self._keep_masker(source, background)
        return data

    def _masked(self, images: Any, confounds: Any) -> ImagesSource:
        n_threads = 1 if self.store is False else resolve_threads(self.n_threads)
        source = masked_images(
            images, confounds, self.mask, self._masker_options(), resample=self.resample, n_threads=n_threads
        )
        self._check(source)
        return source

    def _packed(self, source: ImagesSource) -> MatrixSource:
        if self.store is False:
            return source
        n_threads = resolve_threads(self.n_threads)
        return packed_images(
            source, self.store, block_rows=self.batch_size, n_threads=n_threads, show=bool(self.verbose)
        )

    def _keep_masker(self, source: ImagesSource, background: Array | None) -> None:
        """Set what leads from images to rows and back. Where a fit may fail, its end is the time: maps fit one mask."""
        self.masker_, self.mask_img_, self._kind = source.masker, source.masker.mask_img_, source.kind
        self.background_ = background

    def describe_data(self, data: MatrixSource) -> dict[str, Any]:
        """Return shape, dtype, number of records and fingerprint of what is learned from."""
        return self._new_learner().describe_data(data)

    def hold_out(self, data: MatrixSource, amount: Any, seed: int) -> tuple[Any, Any, Any]:
        """Return volumes to learn from, volumes to evaluate on, and what tells the choice again."""
        return self._new_learner().hold_out(data, amount, seed)

    def held_out_objective(self, held_out: MatrixSource) -> Callable[[Learner], float]:
        """Return what computes the objective of a learner on held-out volumes."""
        return self._new_learner().held_out_objective(held_out)

    def learn(
        self,
        data: MatrixSource,
        *,
        seed: int,
        callbacks: Sequence[Callback] = (),
        start: Position | None = None,
        elapsed: Elapsed | None = None,
    ) -> Self:
        """Fit to opened data: see :meth:`terafactor.runs.Trainable.learn`."""
        first_maps = self._first_maps(data, seed, self._kind, self.masker_) if start is None else None
        self._learner = self._new_learner(self._n_epochs(data, seed), first_maps)
        self._learner.learn(data, seed=seed, callbacks=callbacks, start=start, elapsed=elapsed)
        self._keep(self._learner)
        return self

    def to_artifact(self, position: Position | None = None) -> Artifact:
        """Return the model, or a position of the fit that is running, as what a file holds."""
        learned = self._learner.to_artifact(position).position
        arrays = {f"brain.{name}": array for name, array in self._kind.masker_arrays(self.masker_).items()}
        if self.background_ is not None:
            arrays["brain.background"] = self.background_
        facts = {"brain.kind": self._kind.name, "brain.options": plain_parameters(masker_options(self.masker_))}
        parameters = plain_parameters(self.get_params(deep=False))
        numbers = facts | dict(learned.numbers) | {"stopped_by": getattr(self, "stopped_by_", None)}
        return Artifact(self.kind, parameters, Position(numbers, arrays | dict(learned.arrays)))

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Self:
        """Return the model that a file holds, ready for ``transform``."""
        estimator = cls(**cls.parameters_in_file(from_plain(artifact.parameters)))
        brain = artifact.position.part("brain")
        estimator._kind = kind_named(brain.number("kind", str))
        estimator.masker_ = estimator._kind.masker_at(brain, options_in_file(brain.number("options", dict)))
        estimator.mask_img_ = estimator.masker_.mask_img_
        estimator.background_ = brain.arrays.get("background")
        parameters = plain_parameters(estimator._new_learner().get_params(deep=False))
        learned = Artifact(MaskedDictionaryLearning.kind, parameters, artifact.position)
        estimator._keep(MaskedDictionaryLearning.from_artifact(learned))
        return estimator

    @classmethod
    def parameters_in_file(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that a file holds, options of the masker among them, refusing what is not plain."""
        own = {name: value for name, value in parameters.items() if name in cls._get_param_names()}
        return own | options_in_file({name: value for name, value in parameters.items() if name not in own})

    def _new_learner(self, n_epochs: float | None = None, first_maps: Array | None = None) -> MaskedDictionaryLearning:
        """Return the numeric part, in the setting of the paper. n_epochs: in place of None."""
        return MaskedDictionaryLearning(
            self.n_components,
            alpha=self.alpha,
            penalty="l2",
            constraint="l1",
            positive_dict=self.positive_dict,
            reduction=self.reduction,
            batch_size=self.batch_size,
            n_epochs=(n_epochs or 1) if self.n_epochs is None else self.n_epochs,
            forgetting=self.forgetting,
            tol=self.tol,
            max_time=self.max_time,
            init=first_maps,
            n_threads=self.n_threads,
            callbacks=self.callbacks,
        )

    def _check(self, source: MatrixSource) -> None:
        """Refuse parameters that cannot work before hours are spent on packing."""
        learner = self._new_learner()
        learner._problem()
        learner._options(source)

    def _n_epochs(self, data: MatrixSource, seed: int) -> float:
        """Return the passes to make: by default as few as visit every feature often enough."""
        if self.n_epochs is not None:
            return self.n_epochs
        stream = BatchStream(data, self.batch_size, masks_of(data, self.reduction, seed), seed, whole_rows=False)
        return stream.epochs_until(VISITS)

    def _problem(self) -> Problem:
        return Problem(self.alpha, ElasticNet(0.0), NormBall("l1", positive=self.positive_dict))

    def _first_maps(self, data: MatrixSource, seed: int, kind: ImageKind, masker: Any) -> Array:
        constraint = self._problem().constraint
        if self.dict_init is None:
            return initial_maps(data, constraint, self.n_components, self.batch_size, self.reduction, seed)
        plain = kind.masker_at(Position({}, kind.masker_arrays(masker)), {})
        try:
            given = np.atleast_2d(plain.transform_single_imgs(kind.open(self.dict_init, self.mask)))
        except unreadable() as error:
            raise DataError(f"dict_init must be an image of maps as the images are, or its path: {error}") from error
        if len(given) != self.n_components:
            raise ParameterError(f"dict_init has {len(given)} maps, but n_components is {self.n_components}")
        return initial_atoms(np.ascontiguousarray(given, data.dtype), self.n_components, constraint, seed)

    @property
    def progress_(self) -> str:
        """Whether the fit has settled, in words: "settled", or by how much it still improves per pass."""
        return self._progress(getattr(self, "history_", ()))

    def _progress(self, history: Sequence[Evaluation]) -> str:
        return self._learner._progress(history)

    def _keep(self, learner: MaskedDictionaryLearning) -> None:
        """Set the learned attributes: maps by what they explain, mostly positive."""
        self._learner = learner
        learned = np.ascontiguousarray(learner.components_)
        chosen = learned[maps.order(learned, learner._state.code_gram)]
        self.components_, self.labels_, self._pages = chosen * maps.signs(chosen)[:, np.newaxis], (), ()
        self.n_steps_, self.feature_counts_ = learner.n_steps_, learner.feature_counts_
        self.statistics_ = learner.statistics_
        for name in ("history_", "stopped_by_"):
            if hasattr(learner, name):
                setattr(self, name, getattr(learner, name))
