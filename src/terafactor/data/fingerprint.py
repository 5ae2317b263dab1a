"""What tells one matrix from another without reading all of it."""

from __future__ import annotations

import hashlib

import numpy as np

from terafactor.data.source import MatrixSource

N_ROWS = 16
"""Rows that are read, spread over the matrix."""


def fingerprint(source: MatrixSource) -> str:
    """Return a hash of shape, dtype, lengths of records and the values of some rows: equal for equal data.

    A source that knows what it is without being read gives its identity instead of values.
    """
    digest = hashlib.sha256()
    digest.update(repr((source.shape, str(source.dtype), [len(record) for record in source.records])).encode())
    identity = source.identity()
    if identity is not None:
        digest.update(identity.encode())
        return digest.hexdigest()
    rows = np.unique(np.linspace(0, source.shape[0] - 1, N_ROWS).astype(np.int64))
    for row in rows:
        digest.update(source.read(np.array([row])).astype(source.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()
