"""Rows from an iterator or a generator, which yields them once."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from terafactor._typing import Array
from terafactor.data.sources.formats import Format, check_matrix, reading_dtype
from terafactor.data.sources.raw import Layout, RawSource
from terafactor.errors import DataError

NAME = "the iterator"


class IteratorSource(RawSource):
    """Batches of rows from an iterator, which is consumed once.

    A fit visits rows in random order, some several times; an iterator yields them once, in its own order. The source
    therefore writes them to an unnamed temporary file, which disappears with the source (or the process, however it
    ends), and reads from there. Memory holds one batch; the disk holds the whole matrix. To learn from a stream without
    storing it, call ``partial_fit`` on each batch instead.

    Parameters
    ----------
    batches : iterable of ndarray of shape (rows, features)
        All with the same features.
    dtype : float32 or float64, optional
        Type to store; by default that of the first batch, which all others must share.
    folder : path, optional
        Folder of the temporary file; by default the system's.

    Examples
    --------
    >>> IteratorSource(np.full((2, 3), float(number)) for number in range(4)).shape
    (8, 3)
    """

    def __init__(self, batches: Iterable[Array], *, dtype: Any = None, folder: str | Path | None = None) -> None:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115, open as long as the source lives
        weakref.finalize(self, file.close)
        super().__init__(_write(iter(batches), file, dtype))


def _write(batches: Iterator[Array], file: BinaryIO, dtype: Any) -> Layout:
    n_rows, n_features, kept = 0, -1, None if dtype is None else reading_dtype(dtype, NAME)
    for number, batch in enumerate(batches):
        batch = np.asarray(batch)
        name = f"batch {number} of {NAME}"
        check_matrix(batch.shape, name)
        read_as = reading_dtype(batch.dtype, name)
        kept = kept or read_as
        if dtype is None and read_as != kept:
            raise DataError(
                f"{name} is read as {read_as}, but the batches before as {kept}: convert some of them, or pass dtype"
            )
        n_features = batch.shape[1] if n_features < 0 else n_features
        if batch.shape[1] != n_features:
            raise DataError(f"{name} has {batch.shape[1]} features, but the batches before have {n_features}")
        file.write(np.ascontiguousarray(batch, kept).data)
        n_rows += len(batch)
    if kept is None or not n_rows:
        raise DataError(f"{NAME} yields no rows; a generator can be consumed once only")
    file.flush()
    return Layout(file, NAME, 0, (n_rows, n_features), kept)


FORMAT = Format(
    name="iterator",
    description="iterators and generators of batches of rows, stored in a temporary file",
    is_object=lambda data: hasattr(data, "__next__"),
    open_object=IteratorSource,
)
