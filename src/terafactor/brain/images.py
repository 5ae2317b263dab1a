"""Brain images as a matrix: an image is a record, a volume is a row, masked and cleaned on reading."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array, Indices
from terafactor.brain.confounds import Confounds
from terafactor.brain.kinds import ImageKind, kind_named, name_of, naming_image, read_errors
from terafactor.brain.maskers import describe_masker, masker_options, open_masker
from terafactor.data.describe import describe_as
from terafactor.data.origin import FileStamp
from terafactor.data.source import MUST_BE_FINITE, MatrixSource, check_finite, check_indices
from terafactor.data.views.joined import distinct_labels
from terafactor.errors import DataError

logger = logging.getLogger("terafactor")

DIGEST_BYTES, N_DIGEST_BLOCKS = 2**16, 16
"""Size and number of the blocks of a file that identify it."""


def open_images(kind: ImageKind, inputs: Sequence[Any], mask: Any) -> list[Any]:
    """Open images without reading their values; raise DataError for one without a time axis."""
    images = []
    for number, given in enumerate(inputs):
        with naming_image(name_of(given, number)):
            image = kind.open(given, mask)
        if any(length <= 0 for length in image.shape):
            raise DataError(f"{name_of(given, number)} has the shape {image.shape}, without any value")
        if isinstance(given, str | os.PathLike):
            n_bytes = math.prod(image.shape) * np.dtype(np.float32).itemsize
            check_size(n_bytes, name_of(given), max_bytes())
        if kind.length(image) is None:
            raise DataError(
                f"{name_of(given, number)} has the shape {image.shape}, without a time axis: pass series of volumes"
            )
        images.append(image)
    return images


def check_space(kind: ImageKind, inputs: Sequence[Any], images: Sequence[Any], reference: Any, name: str) -> None:
    """Raise DataError for an image in another space than the reference, which errors call ``name``."""
    for number, (given, image) in enumerate(zip(inputs, images, strict=True)):
        with naming_image(name_of(given, number)):
            difference = kind.mismatch(image, reference)
        if difference is not None:
            raise DataError(
                f"{name_of(given, number)} {difference} as in {name}: bring all images to one space, "
                "or pass resample=True (--resample) to resample them on reading"
            )


class ImagesSource(MatrixSource):
    """Volumes of brain images as rows.

    An image is read, masked and cleaned as a whole, and the last few are cached: a visit to a record reads it once.

    Parameters
    ----------
    kind : ImageKind
    inputs : sequence of paths or images
        As the user passed them.
    images : sequence of images
        The same, opened.
    masker : fitted masker
    confounds : sequence of Confounds
    cache_size : int
        Number of masked images kept in memory: 1, or one more than the threads that read.
    """

    in_memory = True  # whole rows are read once per visit and then cached
    checked = True  # reading an image checks that its values are finite
    whole_records = True

    def __init__(
        self,
        kind: ImageKind,
        inputs: Sequence[Any],
        images: Sequence[Any],
        masker: Any,
        confounds: Sequence[Confounds],
        cache_size: int = 1,
    ) -> None:
        self.kind, self.images, self.masker, self.confounds = kind, list(images), masker, list(confounds)
        self.inputs = list(inputs)
        self.cache_size = cache_size
        lengths = [entry.length(kind.length(image) or 0) for entry, image in zip(confounds, images, strict=True)]
        self._edges = np.cumsum([0, *lengths])
        self.shape = (int(self._edges[-1]), int(masker.n_elements_))
        self.dtype = np.dtype(np.float32)
        self.n_read = [0] * len(self.images)
        self._identities: dict[int, str] = {}
        self._cache: dict[int, Array] = {}
        self._record_locks = [threading.Lock() for _ in self.images]
        self._cache_lock = threading.Lock()
        self._thread = threading.local()

    @property
    def records(self) -> Sequence[range]:
        return [range(int(start), int(stop)) for start, stop in zip(self._edges[:-1], self._edges[1:], strict=True)]

    def record_name(self, record: int) -> str:
        return name_of(self.inputs[record], record)

    def record_label(self, record: int) -> str:
        return self._labels[record]

    @cached_property
    def _labels(self) -> list[str]:
        numbers = range(len(self.inputs))  # file names may repeat, one folder per subject
        plain = [super(ImagesSource, self).record_label(number) for number in numbers]
        return distinct_labels(plain, [self.record_name(number) for number in numbers], numbers)

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        if columns is not None:
            check_indices(columns, self.shape[1], "columns")
        values = np.empty((len(rows), self.shape[1] if columns is None else len(columns)), self.dtype)
        owners = np.searchsorted(self._edges, rows, side="right") - 1
        for record in np.unique(owners):
            selected = owners == record
            inside = rows[selected] - self._edges[record]
            series = self._thread_series(int(record))
            values[selected] = series[inside] if columns is None else series[np.ix_(inside, columns)]
        return values

    def _thread_series(self, record: int) -> Array:
        """Return a series, kept for this thread until it reads another record, even if the cache drops it."""
        if getattr(self._thread, "record", None) != record:
            self._thread.record, self._thread.series = record, self.series(record)
        return self._thread.series

    def series(self, record: int) -> Array:
        """Return the masked and cleaned volumes of one image (n, p), read-only."""
        if not self._record_locks[record].acquire(blocking=False):  # another thread reads it: prefetch the next one
            self._prefetch(record + 1)
            self._record_locks[record].acquire()
        try:
            return self._cached_series(record)
        finally:
            self._record_locks[record].release()

    def _prefetch(self, record: int) -> None:
        if record < len(self.images) and self._record_locks[record].acquire(blocking=False):
            try:
                self._cached_series(record)
            finally:
                self._record_locks[record].release()

    def _cached_series(self, record: int) -> Array:
        with self._cache_lock:
            if record in self._cache:
                return self._cache[record]
        series = self._mask(record)
        with self._cache_lock:
            self._cache[record] = series
            while len(self._cache) > self.cache_size:  # records are mostly read in order: drop the first
                del self._cache[min(number for number in self._cache if number != record)]
        return series

    def background(self) -> Array | None:
        """Return an image to draw maps on (p,), from the first record; None if the kind has no background."""
        with naming_image(self.record_name(0)):
            return self.kind.background(self.images[0], self.masker)

    def record_identity(self, record: int) -> str:
        if record not in self._identities:
            digest = hashlib.sha256(self._preparation.encode())
            digest.update(self._content_digest(record) + self.confounds[record].digest().encode())
            self._identities[record] = digest.hexdigest()
        return self._identities[record]

    def describe(self) -> dict[str, Any] | None:
        """Describe images that were given as paths; the mask and the confounds are arrays in the description."""
        if not all(isinstance(given, str | os.PathLike) for given in self.inputs):
            return None
        masker = describe_masker(self.kind, self.masker)
        paths = [Path(given).absolute() for given in self.inputs]
        files = [file for path in paths for file in self.kind.files(path)]
        stamps = [asdict(stamp) for stamp in map(FileStamp.of, files) if stamp is not None]
        confounds = [entry.describe() for entry in self.confounds]
        return masker and describe_as(
            self,
            open_described,
            kind=self.kind.name,
            paths=[str(path) for path in paths],
            stamps=stamps,
            masker=masker,
            confounds=confounds,
            cache_size=self.cache_size,
        )

    @cached_property
    def _plain_masker(self) -> Any:
        return self.kind.plain_masker(self.masker)

    @cached_property
    def _preparation(self) -> str:
        """Digest of the mask and the cleaning."""
        # ``runs`` changes the cleaning, but is not in model files: it belongs to the images of the fit.
        runs = np.asarray(getattr(self.masker, "runs", None)).tolist()
        cleaning = {"masker": type(self.masker).__name__, "runs": runs, **masker_options(self.masker)}
        digest = hashlib.sha256(json.dumps(cleaning, sort_keys=True, default=repr).encode())
        for name, array in sorted(self.kind.masker_arrays(self.masker).items()):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _content_digest(self, record: int) -> bytes:
        given = self.inputs[record]
        if isinstance(given, str | os.PathLike):
            return b"".join(_file_digest(path) for path in self.kind.files(Path(given)))
        image, _ = self.kind.load(self.images[record])
        parts = image.data.parts.values() if hasattr(image, "mesh") else (image.dataobj,)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).digest()

    def _mask(self, record: int) -> Array:
        """Read, mask and clean an image."""
        name = self.record_name(record)
        self.n_read[record] += 1
        with naming_image(name):
            image, n_bad = self.kind.load(self.images[record])
        if n_bad and self.n_read[record] == 1:
            logger.warning("%s has %d values that are not finite: replaced by 0", name, n_bad)
        confounds = self.confounds[record]
        try:
            with WITHOUT_WARNINGS:
                values = confounds.values
                if confounds.global_signal:
                    signal = self._plain_masker.transform_single_imgs(image).mean(axis=1, keepdims=True)
                    values = [signal] if values is None else [values, signal]
                series = self.masker.transform_single_imgs(image, confounds=values, sample_mask=confounds.sample_mask)
        except read_errors() as error:
            raise DataError(f"{name} cannot be masked and cleaned: {error}") from error
        series = np.ascontiguousarray(np.atleast_2d(series), self.dtype)
        check_finite(series, f"{name}, masked and cleaned,", about_nan=MUST_BE_FINITE)
        if not series.any() and self.n_read[record] == 1:
            logger.warning("%s is constant in time inside the mask: nothing can be learned from it", name)
        needed = len(self.records[record])
        if len(series) != needed:
            raise DataError(f"{name} has {len(series)} volumes instead of {needed} after cleaning")
        return series


def open_described(
    *,
    kind: str,
    paths: Sequence[str],
    stamps: Sequence[Mapping[str, Any]],
    masker: Mapping[str, Any],
    confounds: Sequence[Mapping[str, Any]],
    cache_size: int,
) -> ImagesSource:
    """Open images from a description; refuse files that differ from those described."""
    for stamp in stamps:
        FileStamp(**stamp).check()
    found = kind_named(kind)
    with WITHOUT_WARNINGS:
        restored = open_masker(found, **masker)
    images = open_images(found, paths, restored)
    return ImagesSource(found, paths, images, restored, [Confounds(**entry) for entry in confounds], cache_size)


class _IgnoredWarnings:
    """Ignore the warnings of maskers: this module logs those that matter, with the name of the image.

    Warning filters are global to the process: the first thread to enter sets them, and the last to leave restores them.
    """

    def __init__(self) -> None:
        self._lock, self._n_inside = threading.Lock(), 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
            self._n_inside += 1

    def __exit__(self, *exception: Any) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._filters.__exit__(None, None, None)


WITHOUT_WARNINGS = _IgnoredWarnings()


def _file_digest(path: Path) -> bytes:
    """Return a digest of the name, the size and some blocks of a file; .gz files, which end in a CRC, need two."""
    size, n_blocks = path.stat().st_size, 2 if path.suffix == ".gz" else N_DIGEST_BLOCKS
    digest = hashlib.sha256(f"{path.name} {size}".encode())
    with open(path, "rb") as file:
        for start in np.linspace(0, max(size - DIGEST_BYTES, 0), n_blocks).astype(np.int64):
            file.seek(int(start))
            digest.update(file.read(DIGEST_BYTES))
    return digest.digest()
