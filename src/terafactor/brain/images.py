"""Brain images as a matrix: each image is a record, each volume a row, masked and cleaned when it is read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
import warnings
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.brain.confounds import Confounds
from terafactor.brain.kinds import ImageKind, mask_series, masker_options, n_features, name_of, nibabel
from terafactor.data.source import MUST_BE_FINITE, MatrixSource, check_finite, check_indices
from terafactor.data.views.joined import distinct_labels
from terafactor.errors import DataError

logger = logging.getLogger("terafactor")

SAMPLE_BYTES, N_SAMPLES = 2**16, 16
"""What is read of a file to tell it from others."""


def open_images(kind: ImageKind, things: Sequence[Any], mask: Any) -> list[Any]:
    """Open images without reading their numbers, refusing those without a time axis."""
    images = []
    for number, thing in enumerate(things):
        with _naming(name_of(thing, number)):
            image = kind.open(thing, mask)
        if kind.length(image) is None:
            raise DataError(
                f"{name_of(thing, number)} has the shape {image.shape}, without a time axis: a record is a series"
            )
        images.append(image)
    return images


def check_alike(kind: ImageKind, things: Sequence[Any], images: Sequence[Any], reference: Any, what: str) -> None:
    """Refuse an image that lies otherwise than a reference, by name."""
    for number, (thing, image) in enumerate(zip(things, images, strict=True)):
        wrong = kind.mismatch(image, reference)
        if wrong is not None:
            raise DataError(
                f"{name_of(thing, number)} {wrong}, as {what} has: bring all images to one space, "
                "or say resample=True (--resample) to have that done while they are read"
            )


class ImagesSource(MatrixSource):
    """Volumes of brain images as rows.

    An image is read, masked and cleaned as a whole, and the last few are kept: a visit to a record reads it once.

    Parameters
    ----------
    kind : ImageKind
    things : sequence of paths or images
        What errors name.
    images : sequence of images
        The same, opened.
    masker : fitted masker
    confounds : sequence of Confounds
    n_kept : int
        Masked images that stay in memory: 1, or one more than threads that read.
    """

    in_memory = True  # whole rows are, once an image has been read
    checked = True  # as soon as it was
    whole_records = True

    def __init__(
        self,
        kind: ImageKind,
        things: Sequence[Any],
        images: Sequence[Any],
        masker: Any,
        confounds: Sequence[Confounds],
        n_kept: int = 1,
    ) -> None:
        self.kind, self.images, self.masker, self.confounds = kind, list(images), masker, list(confounds)
        self.things = list(things)
        self.n_kept = n_kept
        lengths = [entry.length(kind.length(image) or 0) for entry, image in zip(confounds, images, strict=True)]
        self._edges = np.cumsum([0, *lengths])
        self.shape = (int(self._edges[-1]), n_features(masker))
        self.dtype = np.dtype(np.float32)
        self.n_read = [0] * len(self.images)
        self._identities: dict[int, str] = {}
        self._series: dict[int, Array] = {}
        self._reading = [threading.Lock() for _ in self.images]
        self._lock = threading.Lock()
        self._thread = threading.local()

    @property
    def records(self) -> Sequence[range]:
        return [range(int(start), int(stop)) for start, stop in zip(self._edges[:-1], self._edges[1:], strict=True)]

    def record_name(self, record: int) -> str:
        return name_of(self.things[record], record)

    def record_label(self, record: int) -> str:
        return self._labels[record]

    @cached_property
    def _labels(self) -> list[str]:
        numbers = range(len(self.things))  # runs of different subjects may have the same name in folders of their own
        plain = [super(ImagesSource, self).record_label(number) for number in numbers]
        return distinct_labels(plain, [self.record_name(number) for number in numbers], numbers)

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        if columns is not None:
            check_indices(columns, self.shape[1], "columns")
        values = np.empty((len(rows), self.shape[1] if columns is None else len(columns)), self.dtype)
        owners = np.searchsorted(self._edges, rows, side="right") - 1
        for record in np.unique(owners):
            mine = owners == record
            inside = rows[mine] - self._edges[record]
            series = self._mine(int(record))
            values[mine] = series[inside] if columns is None else series[np.ix_(inside, columns)]
        return values

    def _mine(self, record: int) -> Array:
        """Return a series, keeping the one that this thread is at even where others have passed it."""
        if getattr(self._thread, "record", None) != record:
            self._thread.record, self._thread.series = record, self.series(record)
        return self._thread.series

    def series(self, record: int) -> Array:
        """Return the masked and cleaned volumes of one image (n, p); not to be changed."""
        if not self._reading[record].acquire(blocking=False):  # another thread reads it: meanwhile, read the next one
            self._read_ahead(record + 1)
            self._reading[record].acquire()
        try:
            return self._kept_or_read(record)
        finally:
            self._reading[record].release()

    def _read_ahead(self, record: int) -> None:
        if record < len(self.images) and self._reading[record].acquire(blocking=False):
            try:
                self._kept_or_read(record)
            finally:
                self._reading[record].release()

    def _kept_or_read(self, record: int) -> Array:
        with self._lock:
            if record in self._series:
                return self._series[record]
        series = self._mask(record)
        with self._lock:
            self._series[record] = series
            while len(self._series) > self.n_kept:  # whoever goes through the images in order is past the first
                del self._series[min(number for number in self._series if number != record)]
        return series

    def background(self) -> Array | None:
        """Return an image to draw maps on (p,), from the first record; None where there is none."""
        with _naming(self.record_name(0)):
            return self.kind.background(self.images[0], self.masker)

    def record_identity(self, record: int) -> str:
        if record not in self._identities:
            digest = hashlib.sha256(self._preparation.encode())
            digest.update(self._content_of(record) + self.confounds[record].digest().encode())
            self._identities[record] = digest.hexdigest()
        return self._identities[record]

    @cached_property
    def _preparation(self) -> str:
        """What tells one way of masking and cleaning from another."""
        # Volumes of a run are cleaned apart from others, but a model does not keep the runs of the images it came from.
        runs = np.asarray(getattr(self.masker, "runs", None)).tolist()
        cleaning = {"masker": type(self.masker).__name__, "runs": runs, **masker_options(self.masker)}
        digest = hashlib.sha256(json.dumps(cleaning, sort_keys=True, default=repr).encode())
        for name, array in sorted(self.kind.masker_arrays(self.masker).items()):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _content_of(self, record: int) -> bytes:
        thing = self.things[record]
        if isinstance(thing, str | os.PathLike):
            return b"".join(_sampled(path) for path in self.kind.files(Path(thing)))
        image, _ = self.kind.load(self.images[record])
        parts = image.data.parts.values() if hasattr(image, "mesh") else (image.dataobj,)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).digest()

    def _mask(self, record: int) -> Array:
        """Read an image once, and mask it."""
        name = self.record_name(record)
        self.n_read[record] += 1
        with _naming(name):
            image, n_bad = self.kind.load(self.images[record])
        if n_bad and self.n_read[record] == 1:
            logger.warning("%s has %d values that are not finite, taken for 0", name, n_bad)
        confounds = self.confounds[record]
        try:
            with QUIET:
                series = mask_series(self.masker, image, confounds.values, confounds.kept)
        except (ValueError, TypeError) as error:
            raise DataError(f"{name} cannot be masked and cleaned: {error}") from error
        series = np.ascontiguousarray(series, self.dtype)
        check_finite(series, f"{name}, masked and cleaned,", about_nan=MUST_BE_FINITE)
        needed = len(self.records[record])
        if len(series) != needed:
            raise DataError(f"{name} gave {len(series)} volumes instead of {needed} after cleaning")
        return series


class _Quiet:
    """Keeps from the user what maskers warn of: what he must know, this file says with the name of the image.

    Counted, because threads share the filters of warnings: the first to enter sets them, the last to leave restores.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._warnings = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._warnings = warnings.catch_warnings()
                self._warnings.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *exception: Any) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._warnings.__exit__(None, None, None)


QUIET = _Quiet()


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the file in whatever goes wrong while it is read."""
    try:
        yield
    except (OSError, EOFError, ValueError, zlib.error, nibabel().filebasedimages.ImageFileError) as error:
        if isinstance(error, DataError):
            raise
        reason = " ".join(str(error).split())
        raise DataError(f"{name} cannot be read ({reason}): it may be cut short or damaged; fetch it again") from error


def _sampled(path: Path) -> bytes:
    """Return a digest of name, size and parts of a file: few of a .gz file, which ends with a checksum of all of it."""
    size, n_samples = path.stat().st_size, 2 if path.suffix == ".gz" else N_SAMPLES
    digest = hashlib.sha256(f"{path.name} {size}".encode())
    with open(path, "rb") as file:
        for start in np.linspace(0, max(size - SAMPLE_BYTES, 0), n_samples).astype(np.int64):
            file.seek(int(start))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.digest()
