"""What packing does to numbers before they are stored: standardise them, and make them small integers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array
from terafactor.data.packed.moments import Moments
from terafactor.errors import DataError

LARGEST = 32767
"""Largest of the integers that stand for numbers; its negative is the least, so that zero stays zero."""


@dataclass(frozen=True)
class Quantization:
    """How the numbers of one record become those that are stored, and back."""

    dtype: np.dtype
    """Of what is stored."""

    mean: Array | None = None
    """What is subtracted from each feature (p,), float64; None: nothing."""

    gain: Array | None = None
    """What each feature is multiplied by then (p,), float64; zero for a constant one."""

    scale: Array | None = None
    """What each feature is a multiple of (p,), float32; None: numbers are stored as they are."""

    def standardized(self, values: Array) -> Array:
        """Return rows (b, p) as they should be read, computed in float64 a row at a time."""
        if self.mean is None or self.gain is None:
            return values
        found = np.empty(values.shape, values.dtype if self.dtype.itemsize < 8 else np.float64)
        for row, target in zip(values, found, strict=True):
            target[:] = (row - self.mean) * self.gain
        return found

    def stored(self, values: Array) -> Array:
        """Return rows (b, p), standardized, as they are stored."""
        if self.scale is None:
            with np.errstate(over="ignore"):  # seen as infinity
                return values.astype(self.dtype, copy=False)
        multiples = values / self.scale
        return np.rint(multiples, out=multiples).astype(self.dtype)

    def read(self, stored: Array) -> Array:
        """Return stored rows (b, p) as they are read."""
        return stored if self.scale is None else stored * self.scale


def quantization_of(blocks: Iterable[Array], dtype: np.dtype, *, standardize: bool, name: str) -> Quantization:
    """Return the coding of a record, from blocks of its rows if it needs to know them. name: what errors call it."""
    if not standardize and dtype != np.int16:
        return Quantization(dtype)
    moments = Moments()
    for block in blocks:
        moments.add(block)
    mean, gain = (moments.mean, moments.gain()) if standardize else (None, None)
    if dtype != np.int16:
        return Quantization(dtype, mean, gain)
    most = np.maximum(np.abs(moments.most), np.abs(moments.least))
    if mean is not None and gain is not None:
        most = np.maximum(moments.most - mean, mean - moments.least) * gain
    return Quantization(dtype, mean, gain, _scale(most, name))


def _scale(most: Array, name: str) -> Array:
    """Return the scale that lets features of largest magnitude ``most`` (p,) fill the integers."""
    # One unit in the last place up, so that the largest number does not round to more than the largest integer.
    with np.errstate(over="ignore", under="ignore"):
        scale = np.nextafter((most / LARGEST).astype(np.float32), np.float32(np.inf))
    if not np.isfinite(scale).all():
        feature = int(np.argmax(most))
        raise DataError(f"feature {feature} of {name} reaches {most[feature]:.3g}, beyond float32: pack it as float64")
    return np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)
