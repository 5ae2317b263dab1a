"""Fingerprints: a hash that identifies a matrix without reading all of it."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.source import MatrixSource

MAX_WHOLE_VALUES = 2**22
"""Largest number of values of a matrix that is hashed whole."""

N_ROWS = 16
"""Rows sampled from a larger matrix, evenly spaced."""

N_FEATURES = 4096
"""Smallest number of features that are read of each sampled row, unless there are fewer."""


def fingerprint(source: MatrixSource) -> str:
    """Return a hash of shape, dtype, record lengths, and some values spread over the matrix.

    Equal data have equal fingerprints wherever they are stored. Larger matrices are sampled, so that a change of a few
    values may go unnoticed; the labels of their records are hashed too. Records with an identity are not read: the
    identity is hashed instead.
    """
    digest = hashlib.sha256()
    numbers, lengths = range(len(source.records)), [len(rows) for rows in source.records]
    digest.update(repr((source.shape, str(source.dtype), lengths)).encode())
    identities = [source.record_identity(number) for number in numbers]
    if None not in identities:
        digest.update(repr(identities).encode())
        return digest.hexdigest()
    if math.prod(source.shape) <= MAX_WHOLE_VALUES:
        digest.update(_little_endian(source.read(np.arange(source.shape[0]))))
        return digest.hexdigest()
    labels = [source.record_label(number) for number in numbers]
    if len(set(labels)) > 1:
        digest.update(repr(labels).encode())
    starts = np.array([rows.start for rows in source.records])
    for sample, row in enumerate(np.linspace(0, source.shape[0] - 1, N_ROWS).astype(np.int64)):
        record = int(np.searchsorted(starts, row, side="right")) - 1
        digest.update(_little_endian(source.read(np.array([row]), _sampled_columns(source, record, sample))))
    return digest.hexdigest()


def _little_endian(values: Array) -> bytes:
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def _sampled_columns(source: MatrixSource, record: int, sample: int) -> Indices:
    """Return the features of tiles spread over a record, different ones for each sample if there are enough."""
    tiles, n_features = source.tiles(record), source.shape[1]
    n_tiles = -(-n_features // tiles.width)
    n_chosen = min(n_tiles, -(-N_FEATURES // tiles.width))
    shift = sample * n_tiles // (N_ROWS * n_chosen)
    return tiles.members((np.arange(n_chosen) * n_tiles // n_chosen + shift) % n_tiles, n_features)
