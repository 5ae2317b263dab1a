"""All patches of some images as the rows of a matrix that is never stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.source import MUST_BE_FINITE, MatrixSource, check_finite, check_indices
from terafactor.errors import DataError


class PatchSource(MatrixSource):
    """Every patch of every image, each image a record.

    Patches are computed when they are read: entry f of a patch is at ``corner + offset[f]`` in the flattened image.
    Memory holds the images, and one mean per patch with ``center``.

    Parameters
    ----------
    images : sequence of ndarray of shape (height, width) or (height, width, channels)
        Numbers of any type, converted to ``dtype``; all with the same channels.
    patch_size : (int, int)
        Height and width of a patch.
    center : bool
        Whether to subtract the mean of each patch, over pixels and channels.
    dtype : float32 or float64

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import PatchSource
    >>> source = PatchSource([np.arange(12.0).reshape(3, 4)], (2, 2), center=False)
    >>> source.shape
    (6, 4)
    >>> source.read(np.array([0, 5])).tolist()
    [[0.0, 1.0, 4.0, 5.0], [6.0, 7.0, 10.0, 11.0]]
    """

    in_memory = True
    checked = True

    def __init__(
        self,
        images: Sequence[Array],
        patch_size: tuple[int, int],
        *,
        center: bool = True,
        dtype: type[np.floating] = np.float32,
    ) -> None:
        self.images = [_as_image(image, dtype) for image in images]
        if not self.images:
            raise DataError("images is empty; pass at least one array of shape (height, width[, channels])")
        height, width = patch_size
        channels = self.images[0].shape[2]
        for number, image in enumerate(self.images):
            if image.shape[2] != channels:
                raise DataError(
                    f"image {number} has {image.shape[2]} channels, image 0 has {channels}; they must agree"
                )
            if height < 1 or width < 1 or image.shape[0] < height or image.shape[1] < width:
                raise DataError(f"patch_size {patch_size} does not fit in image {number} of shape {image.shape[:2]}")
        self.geometry = (height, width, channels) if channels > 1 else (height, width)
        self.dtype = np.dtype(dtype)
        counts = [(image.shape[0] - height + 1) * (image.shape[1] - width + 1) for image in self.images]
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self.shape = (int(self._starts[-1]), height * width * channels)
        self._offsets = [_patch_offsets(image.shape, height, width) for image in self.images]
        self._means = [_window_means(image, height, width) if center else None for image in self.images]

    @property
    def records(self) -> Sequence[range]:
        return [range(int(a), int(b)) for a, b in zip(self._starts[:-1], self._starts[1:], strict=True)]

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        if columns is not None:
            check_indices(columns, self.shape[1], "columns")
        values = np.empty((len(rows), self.shape[1] if columns is None else len(columns)), self.dtype)
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for record in np.unique(owners):
            mine = owners == record
            values[mine] = self._read_record(int(record), rows[mine] - self._starts[record], columns)
        return values

    def _read_record(self, record: int, patches: Indices, columns: Indices | None) -> Array:
        image, offsets, means = self.images[record], self._offsets[record], self._means[record]
        _, width, channels = image.shape
        per_line = width - (self.geometry or (1, 1))[1] + 1
        corners = (patches // per_line * width + patches % per_line) * channels
        chosen = offsets if columns is None else offsets[columns]
        values = image.reshape(-1)[corners[:, np.newaxis] + chosen]
        return values if means is None else values - means[patches, np.newaxis]


def _as_image(image: Array, dtype: type[np.floating]) -> Array:
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim != 3 or array.dtype.kind not in "fiub":
        raise DataError(
            f"an image must be numbers of shape (height, width) or (height, width, channels), "
            f"got {array.dtype} of shape {np.shape(image)}"
        )
    array = np.ascontiguousarray(array, dtype=dtype)
    check_finite(array.reshape(len(array), -1), about_nan=MUST_BE_FINITE)
    return array


def _patch_offsets(shape: tuple[int, ...], height: int, width: int) -> Indices:
    """Return the positions of the entries of a patch in the flattened image, relative to its corner."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(shape[2]), indexing="ij")
    return np.asarray(((y * shape[1] + x) * shape[2] + c).ravel())


def _window_means(image: Array, height: int, width: int) -> Array:
    """Return the mean of every patch, in row order, from cumulative sums."""
    total = np.zeros((image.shape[0] + 1, image.shape[1] + 1))
    total[1:, 1:] = image.sum(axis=2, dtype=np.float64).cumsum(axis=0).cumsum(axis=1)
    sums = total[height:, width:] - total[:-height, width:] - total[height:, :-width] + total[:-height, :-width]
    return (sums / (height * width * image.shape[2])).astype(image.dtype).ravel()
