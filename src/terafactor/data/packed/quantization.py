"""Quantization and standardization: how the values of a record are stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array
from terafactor.data.packed.statistics import FeatureMoments
from terafactor.errors import DataError

LARGEST_INTEGER = 32767
"""Largest stored integer; the smallest is its negative, so that zero stays zero."""


@dataclass(frozen=True)
class Quantization:
    """How the values of one record are stored."""

    dtype: np.dtype
    """Stored type."""

    mean: Array | None = None
    """Subtracted from each feature (p,), float64; None without standardization."""

    gain: Array | None = None
    """Factor of each feature after that (p,), float64; zero for a constant one."""

    scale: Array | None = None
    """Stored integers are multiples of it (p,), float32; None without quantization."""

    def standardize(self, values: Array) -> Array:
        """Return standardized rows (b, p), computed in float64 row by row."""
        if self.mean is None or self.gain is None:
            return values
        standardized = np.empty(values.shape, values.dtype if self.dtype.itemsize < 8 else np.float64)
        for row, target in zip(values, standardized, strict=True):
            target[:] = (row - self.mean) * self.gain
        return standardized

    def quantize(self, values: Array) -> Array:
        """Return standardized rows (b, p) in their stored type."""
        if self.scale is None:
            with np.errstate(over="ignore"):  # the caller refuses the infinities
                return values.astype(self.dtype, copy=False)
        multiples = values / self.scale
        return np.rint(multiples, out=multiples).astype(self.dtype)

    def dequantize(self, stored: Array) -> Array:
        """Return stored rows (b, p) as they are read."""
        return stored if self.scale is None else stored * self.scale


def quantization_of(blocks: Iterable[Array], dtype: np.dtype, *, standardize: bool, name: str) -> Quantization:
    """Return the quantization of a record from blocks of its rows, which are read only if it depends on them.

    name: the record's name in error messages.
    """
    if not standardize and dtype != np.int16:
        return Quantization(dtype)
    moments = FeatureMoments()
    for block in blocks:
        moments.add(block)
    mean, gain = (moments.mean, moments.inverse_deviation()) if standardize else (None, None)
    if dtype != np.int16:
        return Quantization(dtype, mean, gain)
    magnitude = np.maximum(np.abs(moments.maximum), np.abs(moments.minimum))
    if mean is not None and gain is not None:
        magnitude = np.maximum(moments.maximum - mean, mean - moments.minimum) * gain
    return Quantization(dtype, mean, gain, _scale(magnitude, name))


def _scale(magnitude: Array, name: str) -> Array:
    """Return the scales for which features of largest magnitude ``magnitude`` (p,) use the full integer range."""
    # Rounded up by one unit in the last place, so that the largest value does not round beyond the largest integer.
    with np.errstate(over="ignore", under="ignore"):
        scale = np.nextafter((magnitude / LARGEST_INTEGER).astype(np.float32), np.float32(np.inf))
    if not np.isfinite(scale).all():
        feature = int(np.argmax(magnitude))
        raise DataError(
            f"feature {feature} of {name} reaches {magnitude[feature]:.3g}, beyond float32: pack it as float64"
        )
    return np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)
