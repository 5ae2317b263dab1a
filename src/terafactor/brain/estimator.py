"""Atlases of brain maps as a nilearn estimator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

import terafactor
from terafactor import solver
from terafactor._checks import check_new
from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.brain import maps
from terafactor.brain.find import find_images
from terafactor.brain.images import ImagesSource
from terafactor.brain.kinds import masker_options, options_in_file
from terafactor.brain.preparation import masked_images, stored_images
from terafactor.brain.reporting import AtlasReporting
from terafactor.brain.task import AtlasTask, new_learner
from terafactor.data import MatrixSource
from terafactor.dictionary import MaskedDictionaryLearning
from terafactor.dictionary.parameters import problem_of
from terafactor.errors import DataTypeError, ParameterError
from terafactor.problem import Problem
from terafactor.runs.parameters import plain_parameters
from terafactor.solver.callbacks import Callback, Evaluation
from terafactor.training.model_file import ModelFileMixin
from terafactor.training.trainer import Trainer


class BrainDictionaryLearning(ModelFileMixin, AtlasReporting, TransformerMixin, BaseEstimator):
    """Learn an atlas of sparse maps from brain images, more of them than fit in memory.

    Volumes are rows, voxels are features: minimises over maps with l1 norm <= 1 the mean over volumes x of
    ``min over a of 1/2 |x - a D|^2 + alpha / 2 |a|^2``. Each image is masked and cleaned once and written to a packed
    store; the fit reads ``batch_size`` volumes of a random image, and one part in ``reduction`` of the voxels, at a
    time. Takes the place of ``nilearn.decomposition.DictLearning``.

    Parameters
    ----------
    n_components : int, default=20
        Number of maps.
    mask : nilearn masker, mask image, path of one, or None, default=None
        A masker is copied; None computes a mask from the first volumes of some of the images.
    alpha : float, default=2e-4
        Strength of the ridge penalty on codes, twice the lambda of the paper: more makes maps sparser. From 2e-4 to
        2e-3 maps of standardized images are easy to read.
    reduction : float, default=10
        How many times fewer voxels than there are a step uses.
    batch_size : int, default=40
        Volumes per step.
    n_epochs : float or None, default=None
        Passes over the volumes; None makes as many as it takes to visit each voxel at least 30 times.
    dict_init : image of maps, or None, default=None
        Maps to start from. None makes them from some volumes: principal components, turned until they are sparse.
    positive_dict : bool, default=False
        Whether maps must be >= 0.
    forgetting, tol, max_time, random_state, n_threads, callbacks, verbose
        As :class:`~terafactor.MaskedDictionaryLearning` has them.
    store : path, False or None, default=None
        Folder of the packed store. One that is there is used again when images, mask, cleaning and confounds are the
        same. None packs into a temporary folder; False does not pack, but reads image by image in each pass.
    resample : bool, default=False
        Whether to resample images that do not lie as the mask does, instead of refusing them.
    **masker_options
        Handed to the masker: ``smoothing_fwhm``, ``standardize``, ``detrend``, ``low_pass``, ``high_pass``, ``t_r``,
        ``target_affine``, ``mask_strategy``, ``memory`` and the others that it has. Unless given,
        ``standardize="zscore_sample"``, ``detrend=True`` and, for volumes, ``smoothing_fwhm=4``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_voxels)
        The maps, mostly positive, those that explain most first.
    components_img_ : image
        The same as an image.
    masker_, mask_img_ : fitted masker and its mask
    background_ : ndarray of shape (n_voxels,) or None
        Mean of some volumes of the first image, to draw maps on.
    n_elements_ : int
        Number of maps.
    history_, stopped_by_, n_steps_, feature_counts_
        As :class:`~terafactor.MaskedDictionaryLearning` has them.

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
    _learner: MaskedDictionaryLearning

    def __init__(
        self,
        n_components: int = 20,
        *,
        mask: Any = None,
        alpha: float = 2e-4,
        reduction: float = 10,
        batch_size: int = 40,
        n_epochs: float | None = None,
        dict_init: Any = None,
        positive_dict: bool = False,
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
        self.dict_init = dict_init
        self.positive_dict = positive_dict
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
        """Return the parameters, the options handed to the masker among them."""
        return {**super().get_params(deep), **self._masker_options()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; names that are none of them are options of the masker."""
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
            What to regress out: paths, arrays or data frames, None for an image without. "auto" finds the tables that
            fMRIPrep leaves beside the images, and takes motion and slow drifts from them.
        """
        Trainer(self._task()).fit({"images": imgs, "confounds": confounds})
        return self

    def fit_transform(self, imgs: Any, y: Any = None, confounds: Any = None) -> list[Array]:
        """Learn the maps, and return their series in the same images, cleaned of the same confounds."""
        images = find_images(imgs)
        return self.fit(images, confounds=confounds).transform(images, confounds=confounds)

    def transform(self, imgs: Any, confounds: Any = None) -> list[Array]:
        """Return the series of the maps in each image, a list of arrays of shape (n_volumes, n_components).

        These are the codes: the combination of maps that comes nearest to each volume, masked and cleaned, with the
        ridge penalty of the fit.
        """
        source = self._fitted_source(imgs, confounds)
        codes = self._encode(source)
        return [codes[record.start : record.stop] for record in source.records]

    def inverse_transform(self, loadings: Sequence[Array]) -> list[Any]:
        """Return the images that series of maps stand for, one for each array (n_volumes, n_components) of a list."""
        check_is_fitted(self, "components_")
        if not isinstance(loadings, list | tuple):
            raise DataTypeError(f"loadings must be a list of arrays, one per image, got {type(loadings).__name__}")
        return [self.masker_.inverse_transform(np.asarray(part) @ self.components_) for part in loadings]

    def score(self, imgs: Any, y: Any = None, confounds: Any = None, per_component: bool = False) -> Any:
        """Return the share of the variance of images that the maps explain, as ``DictLearning.score`` does.

        Parameters
        ----------
        imgs, confounds
            As :meth:`fit` takes them.
        y : ignored
        per_component : bool
            Whether to return the share that each map explains alone, an array of shape (n_components,).
        """
        source = self._fitted_source(imgs, confounds)
        series = (source.series(record) for record in range(len(source.records)))
        return maps.explained_variance(series, self.components_, per_component=per_component)

    def objective(self, imgs: Any, confounds: Any = None) -> float:
        """Return the mean over the volumes of images of ``1/2 |x - a D|^2 + alpha / 2 |a|^2``, with the best codes."""
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
        """Return the connected regions of the maps of at least ``min_size`` cubic mm, and the map that each is of."""
        return maps.regions(self.components_img_, min_size)

    def label(self, atlas: Any, names: Mapping[int, str] | Sequence[str] | None = None) -> Sequence[tuple[str, float]]:
        """Find for each map the region of an atlas that it overlaps most; set ``labels_`` to names and overlaps.

        The overlap is the Dice coefficient of the region and the map where it is above half its maximum.

        Parameters
        ----------
        atlas : image or path
            Number of the region of each voxel, in any resolution.
        names : mapping from number to name, or sequence that counts from 0, the background; None: the numbers
        """
        check_is_fitted(self, "components_")
        values = maps.atlas_values(self.masker_, atlas)
        if not (names is None or isinstance(names, Mapping)) and len(names) <= values.max():
            raise ParameterError(
                f"names are of the regions 0, the background, to {len(names) - 1}, but the atlas has regions up to "
                f"{values.max()}: give one for each, or a mapping from number to name"
            )
        named = maps.numbered({n: str(n) for n in np.unique(values)} if names is None else names)
        self.labels_ = maps.labels_by_overlap(self.components_, values, named)
        return self.labels_

    def save_maps(self, stem: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write the maps as an image that other programs open, with a JSON file beside it that describes them.

        Parameters
        ----------
        stem : path
            Name without the ending, which depends on the kind of images: ``.nii.gz``, ``.dscalar.nii``, ``.func.gii``.
        overwrite : bool
            Whether files there may be replaced.
        """
        check_is_fitted(self, "components_")
        stem = Path(stem)
        files, sidecar = self._kind.as_files(self.components_img_, stem), stem.with_name(f"{stem.name}.json")
        for path in (*files, sidecar):
            check_new(path, overwrite=overwrite)
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, image in files.items():
            image.to_filename(path)
        sidecar.write_text(json.dumps(self._description(), indent=1) + "\n")
        return [*files, sidecar]

    @property
    def progress_(self) -> str:
        """Whether the fit has settled, in words: "settled", or by how much it still improves per pass."""
        return self._progress(getattr(self, "history_", ()))

    def _progress(self, history: Sequence[Evaluation]) -> str:
        return self._learner._progress(history)

    def _task(self) -> AtlasTask:
        return AtlasTask(self)

    @classmethod
    def _from_file(cls, parameters: Mapping[str, Any]) -> Self:
        """Return an estimator with the parameters in a file; options of the masker must be plain."""
        own = {name: value for name, value in parameters.items() if name in cls._get_param_names()}
        return cls(**own, **options_in_file({name: value for name, value in parameters.items() if name not in own}))

    def _problem(self) -> Problem:
        return problem_of(new_learner(self))

    def _fitted_source(self, imgs: Any, confounds: Any) -> ImagesSource:
        check_is_fitted(self, "components_")
        return masked_images(imgs, confounds, self.masker_, {}, resample=self.resample)

    def _rows_to_show(self, X: Any) -> MatrixSource:
        if isinstance(X, MatrixSource):
            return X
        if isinstance(X, Mapping):  # what a run learned from
            return stored_images(self._fitted_source(X["images"], X.get("confounds")), self.store)
        return self._fitted_source(X, None)

    def _description(self) -> dict[str, Any]:
        ratios = maps.l1_l2_ratios(self.components_)
        entries: list[dict[str, Any]] = [
            {"map": number, "l1_l2_ratio": round(float(ratio), 4), "nonzero": int(np.count_nonzero(one))}
            for number, (one, ratio) in enumerate(zip(self.components_, ratios, strict=True))
        ]
        for entry, (name, overlap) in zip(entries, self.labels_, strict=False):
            entry |= {"label": name, "overlap": round(overlap, 4)}
        return {
            "GeneratedBy": {"Name": "terafactor", "Version": terafactor.__version__},
            "Parameters": plain_parameters(self.get_params(deep=False)),
            "Masker": plain_parameters(masker_options(self.masker_)),
            "Maps": entries,
        }
