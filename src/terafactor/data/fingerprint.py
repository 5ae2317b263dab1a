"""What tells one matrix from another without reading all of it."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.source import MatrixSource

MAX_VALUES = 2**22
"""Values up to which a matrix is read whole."""

N_ROWS = 16
"""Rows of which a part is read, spread over the matrix."""

N_FEATURES = 4096
"""Features that are read of each, at the least where there are as many."""


def fingerprint(source: MatrixSource) -> str:
    """Return a hash of shape, dtype, lengths of records, and some values spread over the matrix.

    Equal data give equal fingerprints wherever they lie. Of a matrix of more than four million values a change of a few
    may go unseen: parts of some rows are read, not all. There, records of several names are told by these, too, since
    not all are read from. Records that have an identity are told by it, and not read.
    """
    digest = hashlib.sha256()
    numbers, lengths = range(len(source.records)), [len(rows) for rows in source.records]
    digest.update(repr((source.shape, str(source.dtype), lengths)).encode())
    identities = [source.record_identity(number) for number in numbers]
    if None not in identities:
        digest.update(repr(identities).encode())
        return digest.hexdigest()
    if math.prod(source.shape) <= MAX_VALUES:
        digest.update(_bytes(source.read(np.arange(source.shape[0]))))
        return digest.hexdigest()
    labels = [source.record_label(number) for number in numbers]
    if len(set(labels)) > 1:
        digest.update(repr(labels).encode())
    starts = np.array([rows.start for rows in source.records])
    for sample, row in enumerate(np.linspace(0, source.shape[0] - 1, N_ROWS).astype(np.int64)):
        record = int(np.searchsorted(starts, row, side="right")) - 1
        digest.update(_bytes(source.read(np.array([row]), _columns(source, record, sample))))
    return digest.hexdigest()


def _bytes(values: Array) -> bytes:
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def _columns(source: MatrixSource, record: int, sample: int) -> Indices:
    """Return features of tiles spread over a record, other ones for each sample where there are enough."""
    tiles, n_features = source.tiles(record), source.shape[1]
    n_tiles = -(-n_features // tiles.width)
    n_chosen = min(n_tiles, -(-N_FEATURES // tiles.width))
    shift = sample * n_tiles // (N_ROWS * n_chosen)
    return tiles.members((np.arange(n_chosen) * n_tiles // n_chosen + shift) % n_tiles, n_features)
