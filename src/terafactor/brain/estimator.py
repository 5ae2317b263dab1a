"""Atlases of brain maps, with the interface of nilearn's estimators."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

import terafactor
from terafactor import solver
from terafactor._checks import check_new
from terafactor._durable import durable_path, write_durably
from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.brain import maps
from terafactor.brain.advice import FEW_VISITS
from terafactor.brain.find import find_images
from terafactor.brain.images import ImagesSource
from terafactor.brain.maskers import check_saved_options, saved_options
from terafactor.brain.preparation import masked_images, stored_images
from terafactor.brain.reporting import AtlasReporting
from terafactor.brain.task import AtlasTask, inner_estimator
from terafactor.data import MatrixSource
from terafactor.dictionary import MaskedDictionaryLearning
from terafactor.dictionary.parameters import problem_of
from terafactor.errors import DataTypeError, ParameterError
from terafactor.problem import Problem
from terafactor.runs.parameters import plain_parameters
from terafactor.solver.callbacks import Callback, Evaluation
from terafactor.training.model_file import ModelFileMixin
from terafactor.training.trainer import Trainer

logger = logging.getLogger("terafactor")


class BrainDictionaryLearning(ModelFileMixin, AtlasReporting, TransformerMixin, BaseEstimator):
    """Learn an atlas of sparse maps from brain images that need not fit in memory.

    Volumes are rows, voxels are features. Minimizes, over maps with l1 norm <= 1, the mean over volumes x of
    ``min over a of 1/2 |x - a D|^2 + alpha / 2 |a|^2``. Each image is masked and cleaned once and written to a packed
    store; a step of the fit reads ``batch_size`` volumes of a random image, and 1 / ``reduction`` of their voxels.
    Replaces ``nilearn.decomposition.DictLearning``.

    Parameters
    ----------
    n_components : int, default=20
        Number of maps.
    mask : nilearn masker, mask image, path of one, or None, default=None
        A masker is copied. None computes a mask from the first volumes of some of the images.
    alpha : float, default=2e-4
        Strength of the ridge penalty on codes, twice the lambda of the paper; larger values make maps sparser. Use 2e-4
        to 2e-3 for standardized images.
    reduction : float, default=1
        Use 1 / reduction of the voxels per step. Values above 1 read less, for studies much larger than memory.
    batch_size : int, default=40
        Volumes per step.
    n_epochs : float or None, default=None
        Passes over the volumes. None makes at least 150 steps and visits each voxel at least 30 times.
    global_signal : "regress" or None, default=None
        Whether to regress the global signal, the mean over voxels, out of each image. A fit warns if the global signal
        explains so much of the variance that it can turn maps into speckle.
    dict_init : image of maps, or None, default=None
        Initial maps. None computes them from some volumes: principal components, rotated to be sparse.
    positive_dict : bool, default=False
        Whether maps must be >= 0.
    shards, round_steps, forgetting, tol, max_time, random_state, n_threads, callbacks, verbose
        As in :class:`~terafactor.MaskedDictionaryLearning`.
    store : path, False or None, default=None
        Folder of the packed store. An existing store is reused if images, mask, cleaning and confounds are the same.
        None packs into a temporary folder. False does not pack, and reads each image once per pass.
    resample : bool, default=False
        Whether to resample images in another space than the mask; False raises an error.
    **masker_options
        Options of the masker: ``smoothing_fwhm``, ``standardize``, ``detrend``, ``low_pass``, ``high_pass``, ``t_r``,
        ``target_affine``, ``mask_strategy``, ``memory`` and others. The defaults are ``standardize="zscore_sample"``,
        ``detrend=True`` and, for volumes, ``smoothing_fwhm=4``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_voxels)
        The maps, mostly positive, sorted by the variance that they explain.
    components_img_ : image
        The maps as an image.
    masker_, mask_img_ : fitted masker and its mask
    background_ : ndarray of shape (n_voxels,) or None
        Mean of the first volumes of the first image, to draw maps on.
    n_elements_ : int
        Number of maps.
    confounds_ : "auto", "given" or None
        Confounds of the fit: from the tables of fMRIPrep, passed to it, or none.
    labels_ : sequence of (str, float)
        Name and overlap of each map, set by :meth:`label`.
    history_, stopped_by_, n_steps_, feature_counts_
        As in :class:`~terafactor.MaskedDictionaryLearning`.

    Examples
    --------
    >>> import tempfile
    >>> from terafactor.brain import BrainDictionaryLearning
    >>> from terafactor.datasets import make_brain_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     study = make_brain_study(folder, n_subjects=2, n_runs=1, n_volumes=40, resolution=10)
    ...     atlas = BrainDictionaryLearning(4, mask=study.mask, reduction=2, random_state=0)
    ...     series = atlas.fit(study.images, confounds="auto").transform(study.images)
    >>> atlas.components_img_.shape[3], series[0].shape
    (4, (40, 4))
    """

    n_steps_: int
    feature_counts_: Array
    statistics_: str
    mask_img_: Any
    confounds_: str | None
    _inner: MaskedDictionaryLearning

    def __init__(
        self,
        n_components: int = 20,
        *,
        mask: Any = None,
        alpha: float = 2e-4,
        reduction: float = 1,
        batch_size: int = 40,
        n_epochs: float | None = None,
        global_signal: Literal["regress"] | None = None,
        dict_init: Any = None,
        positive_dict: bool = False,
        shards: int | Literal["auto"] = "auto",
        round_steps: int | Literal["auto"] = "auto",
        forgetting: float | Literal["auto"] = "auto",
        tol: float = 0.0,
        max_time: float | None = None,
        store: Any = None,
        resample: bool = False,
        random_state: Any = None,
        n_threads: int | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
        **masker_options: Any,
    ) -> None:
        self.n_components = n_components
        self.mask = mask
        self.alpha = alpha
        self.reduction = reduction
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.global_signal = global_signal
        self.dict_init = dict_init
        self.positive_dict = positive_dict
        self.shards = shards
        self.round_steps = round_steps
        self.forgetting = forgetting
        self.tol = tol
        self.max_time = max_time
        self.store = store
        self.resample = resample
        self.random_state = random_state
        self.n_threads = n_threads
        self.callbacks = callbacks
        self.verbose = verbose
        for name, value in masker_options.items():
            setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, including the options of the masker."""
        return {**super().get_params(deep), **self._masker_options()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; other names are options of the masker."""
        known = {name: value for name, value in params.items() if name.split("__")[0] in self._get_param_names()}
        super().set_params(**known)
        for name in params.keys() - known.keys():
            setattr(self, name, params[name])
        return self

    def _masker_options(self) -> dict[str, Any]:
        own = set(self._get_param_names())
        return {
            name: value
            for name, value in vars(self).items()
            if name not in own and not name.startswith("_") and not name.endswith("_")
        }

    def fit(self, imgs: Any, y: Any = None, confounds: Any = None) -> Self:
        """Learn the maps.

        Parameters
        ----------
        imgs : path, glob, folder of BIDS derivatives, image, or sequence of these
            Series of volumes: NIfTI, CIFTI or surfaces.
        y : ignored
        confounds : None, "auto", or sequence with an entry per image
            Series to regress out: paths, arrays or data frames, or None for an image without confounds. "auto" reads
            head motion and slow drifts from the tables of fMRIPrep in the folders of the images, also for the new
            images of :meth:`transform`, :meth:`score` and :meth:`objective`.
        """
        Trainer(self._task()).fit({"images": imgs, "confounds": confounds})
        return self

    def fit_transform(self, imgs: Any, y: Any = None, confounds: Any = None) -> list[Array]:
        """Call :meth:`fit`, and return the :meth:`transform` of the same ``imgs`` with the same ``confounds``."""
        images = find_images(imgs)
        return self.fit(images, confounds=confounds).transform(images, confounds=confounds)

    def transform(self, imgs: Any, confounds: Any = None) -> list[Array]:
        """Return the series of the maps in each image, a list of arrays of shape (n_volumes, n_components).

        The series are the codes of the masked and cleaned volumes, with the ridge penalty of the fit.

        Parameters
        ----------
        imgs
            As in :meth:`fit`.
        confounds : None, False, "auto", or sequence with an entry per image
            None is "auto" if the fit had "auto", and logs a warning if the fit had other confounds. False cleans
            without confounds.
        """
        source = self._fitted_source(imgs, confounds)
        codes = self._encode(source)
        return [codes[record.start : record.stop] for record in source.records]

    def inverse_transform(self, loadings: Sequence[Array]) -> list[Any]:
        """Return one image per array in the list ``loadings``, of shape (n_volumes, n_components) each."""
        check_is_fitted(self, "components_")
        if not isinstance(loadings, list | tuple):
            raise DataTypeError(f"loadings must be a list of arrays, one per image, got {type(loadings).__name__}")
        return [self.masker_.inverse_transform(np.asarray(part) @ self.components_) for part in loadings]

    def score(self, imgs: Any, y: Any = None, confounds: Any = None, per_component: bool = False) -> Any:
        """Return the share of the variance of images that the maps explain by least squares.

        ``DictLearning.score`` is lower: it also fits a constant, and counts what the constant explains as unexplained.

        Parameters
        ----------
        imgs, confounds
            As in :meth:`transform`.
        y : ignored
        per_component : bool
            Whether to return the share that each map explains by itself, an array of shape (n_components,).
        """
        source = self._fitted_source(imgs, confounds)
        series = (source.series(record) for record in range(len(source.records)))
        return maps.explained_variance(series, self.components_, per_component=per_component)

    def objective(self, imgs: Any, confounds: Any = None) -> float:
        """Return the mean over volumes of ``min over a of 1/2 |x - a D|^2 + alpha / 2 |a|^2``.

        Parameters
        ----------
        imgs, confounds
            As in :meth:`transform`.
        """
        source = self._fitted_source(imgs, confounds)
        return solver.objective(source, self.components_, self._problem(), resolve_threads(self.n_threads))

    @property
    def n_elements_(self) -> int:
        """Number of maps."""
        check_is_fitted(self, "components_")
        return len(self.components_)

    @property
    def components_img_(self) -> Any:
        """The maps as an image."""
        check_is_fitted(self, "components_")
        return self.masker_.inverse_transform(self.components_)

    def regions(self, min_size: float = 1350.0) -> tuple[Any, list[int]]:
        """Return the connected regions of maps of at least ``min_size`` cubic mm, and the index of the map of each."""
        return maps.regions(self.components_img_, min_size)

    def label(self, atlas: Any, names: Mapping[int, str] | Sequence[str] | None = None) -> Sequence[tuple[str, float]]:
        """Return and set ``labels_``, the region of an atlas that each map overlaps most, with the overlap.

        The overlap is the Dice coefficient of the region and the map, thresholded at half its maximum.

        Parameters
        ----------
        atlas : image or path
            Number of the region of each voxel, at any resolution.
        names : mapping from number to name, or sequence that starts with the background; None uses the numbers
        """
        check_is_fitted(self, "components_")
        values = maps.atlas_values(self.masker_, atlas)
        if not (names is None or isinstance(names, Mapping)) and len(names) <= values.max():
            raise ParameterError(
                f"names has {len(names)} entries, for the background and regions 1 to {len(names) - 1}, but the atlas "
                f"has regions up to {values.max()}: pass a name for each, or a mapping from number to name"
            )
        named = maps.names_by_number({n: str(n) for n in np.unique(values)} if names is None else names)
        self.labels_ = maps.labels_by_overlap(self.components_, values, named)
        return self.labels_

    def save_maps(self, stem: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write the maps as an image, with a JSON file that describes them, and return the paths.

        Parameters
        ----------
        stem : path
            Name without extension, which depends on the kind of images: ``.nii.gz``, ``.dscalar.nii``, ``.func.gii``.
        overwrite : bool
            Whether to replace existing files.
        """
        check_is_fitted(self, "components_")
        stem = Path(stem)
        files, sidecar = self._kind.as_files(self.components_img_, stem), stem.with_name(f"{stem.name}.json")
        for path in (*files, sidecar):
            check_new(path, overwrite=overwrite)
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, image in files.items():
            with durable_path(path) as temporary:
                image.to_filename(temporary)
        write_durably(sidecar, (json.dumps(self._description(), indent=1) + "\n").encode())
        return [*files, sidecar]

    @property
    def progress_(self) -> str:
        """Whether the fit has converged, or by how much the objective still improves per pass."""
        return self._progress(getattr(self, "history_", ()))

    def _progress(self, history: Sequence[Evaluation]) -> str:
        few_steps = hasattr(self, "n_steps_") and self._n_visits < FEW_VISITS  # it may be flat before maps converge
        return "" if few_steps else self._inner._progress(history)

    @property
    def _n_visits(self) -> float:
        """Number of steps that used each voxel."""
        return self.n_steps_ / math.ceil(self.reduction)

    def _task(self) -> AtlasTask:
        return AtlasTask(self)

    @classmethod
    def _from_file(cls, parameters: Mapping[str, Any]) -> Self:
        """Return an estimator with the parameters in a model file; other names are options of the masker."""
        own = {name: value for name, value in parameters.items() if name in cls._get_param_names()}
        options = {name: value for name, value in parameters.items() if name not in own}
        cls._check_types(own)
        return cls(**own, **check_saved_options(options))

    def _problem(self) -> Problem:
        return problem_of(inner_estimator(self))

    def _fitted_source(self, imgs: Any, confounds: Any) -> ImagesSource:
        check_is_fitted(self, "components_")
        inputs = find_images(imgs)
        if confounds is None and self.confounds_ == "auto":
            confounds = "auto"
        elif confounds is None and self.confounds_ is not None:
            logger.warning(
                "the maps were learned with confounds, and %d image(s) come without: pass confounds, or "
                "confounds=False (--confounds none) to clean without",
                len(inputs),
            )
        return masked_images(
            inputs, confounds, self.masker_, {}, resample=self.resample, global_signal=self.global_signal
        )

    def _rows_to_show(self, X: Any) -> MatrixSource:
        if isinstance(X, MatrixSource):
            return X
        if isinstance(X, Mapping):  # the data of a run
            return stored_images(self._fitted_source(X["images"], X.get("confounds")), self.store)
        return self._fitted_source(X, None)

    def _description(self) -> dict[str, Any]:
        ratios = maps.l1_l2_ratios(self.components_)
        entries: list[dict[str, Any]] = [
            {"map": number, "l1_l2_ratio": round(float(ratio), 4), "nonzero": int(np.count_nonzero(row))}
            for number, (row, ratio) in enumerate(zip(self.components_, ratios, strict=True))
        ]
        for entry, (name, overlap) in zip(entries, self.labels_, strict=False):
            entry |= {"label": name, "overlap": round(overlap, 4)}
        return {
            "GeneratedBy": {"Name": "terafactor", "Version": terafactor.__version__},
            "Parameters": plain_parameters(self.get_params(deep=False)),
            "Masker": saved_options(self.masker_),
            "Maps": entries,
        }
