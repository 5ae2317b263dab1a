"""AnnData: the matrix X of an ``.h5ad`` file or of an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from terafactor.data.array import ArraySource
from terafactor.data.formats import Format, check_matrix, ends_with, is_a, reading_dtype
from terafactor.data.hdf5 import HDF5Source, require_h5py
from terafactor.data.source import MatrixSource
from terafactor.errors import DataError


def open_h5ad(path: Path, inside: str | None = None) -> MatrixSource:
    """Return X of a file, or the matrix called ``inside``, such as ``layers/counts``; never loaded whole."""
    name = (inside or "X").strip("/")
    h5py = require_h5py(path, "anndata")
    if not h5py.is_hdf5(path):
        raise DataError(f"{path} is no HDF5 file, which every .h5ad file is")
    with h5py.File(path, "r") as file:
        sparse = isinstance(file.get(name), h5py.Group)
    if sparse:
        raise DataError(_refusal(f"{path}::{name}"))
    return HDF5Source(path, name, extra="anndata")


def open_anndata(data: Any) -> MatrixSource:
    """Return X of an AnnData object, from its file when it is backed by one."""
    if data.isbacked:
        return open_h5ad(Path(data.filename))
    if not isinstance(data.X, np.ndarray):
        raise DataError(_refusal("X of the AnnData object"))
    check_matrix(data.X.shape, "X of the AnnData object")
    return ArraySource(data.X.astype(reading_dtype(data.X.dtype, "X of the AnnData object"), copy=False))


def _refusal(name: str) -> str:
    return f"{name} is sparse, and only a dense one can be read: write it dense, as in data.X = data.X.toarray()"


FORMAT = Format(
    name="anndata",
    understands=".h5ad files (file.h5ad::layers/name for another matrix than X), AnnData objects; dense",
    is_path=ends_with(".h5ad"),
    open_path=open_h5ad,
    is_object=lambda thing: is_a(thing, "anndata", "AnnData"),
    open_object=open_anndata,
)
