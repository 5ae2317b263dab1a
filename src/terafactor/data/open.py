"""Open a path, a glob, a list of paths or an object as a source."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._checks import check_regular
from terafactor.data.source import MatrixSource
from terafactor.data.sources.formats import Format
from terafactor.data.views.joined import JoinedSource
from terafactor.errors import DataError, DataTypeError, ParameterError

MODULES = (
    "sources.array", "sources.npy", "sources.sparse", "packed.reader", "sources.anndata", "sources.hdf5",
    "sources.zarr", "sources.dask", "sources.table", "sources.text", "sources.iterator", "sources.raw",
)  # fmt: skip
"""Modules that declare a ``FORMAT``; the first that recognizes the data opens it."""

TEXT_SUFFIXES = (".txt", ".dat")
"""Suffixes of files that may be text, but need not be."""

URL_SCHEMES = ("http", "https", "ftp", "s3", "gs")

_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z0-9]+)://)?(?P<path>.+?)(?:::(?P<inside>.+))?", re.DOTALL)


def open_source(data: Any, **options: Any) -> MatrixSource:
    """Return a source that reads ``data`` in parts.

    Parameters
    ----------
    data : str, path, list of these, array or other object
        A string is ``[format://]path[::inside]``. The path may be a glob; ``inside`` is the name of a matrix in a file
        that can hold several, such as HDF5; ``format`` overrides the format that the file name suggests. Several files
        are read as one matrix, each a record, globs in alphabetical order. A :class:`MatrixSource` is returned
        unchanged.
    **options
        Options of the format; see ``docs/sources.md``. Tables have ``columns``, the names of the columns to read, in
        this order, and ``drop``, those of columns to skip.

    Returns
    -------
    MatrixSource

    Examples
    --------
    >>> from terafactor import open_source
    >>> import numpy as np
    >>> open_source(np.eye(3)).shape
    (3, 3)
    """
    if isinstance(data, MatrixSource):
        return data
    if isinstance(data, str):
        return _open_address(data, options)
    if isinstance(data, os.PathLike):
        return _open_path(Path(data), None, None, options)
    if _is_path_list(data):
        return _join([open_source(path, **options) for path in data])
    for form in formats():
        if form.is_object(data):
            _check_options(form.open_object, options, _type_name(data))
            return form.open_object(data, **options)
    raise DataTypeError(f"cannot read an object of type {_type_name(data)}; {_supported()}")


def open_file(*, format: str, path: str, inside: str | None, options: Mapping[str, Any]) -> MatrixSource:  # noqa: A002
    """Open a path with the format of this name."""
    return _format_of_scheme(format).open(Path(path), inside, **options)


def needs_opening(data: Any) -> bool:
    """Return whether ``data`` is to be opened, rather than an array, sparse matrix or data frame in memory."""
    if isinstance(data, np.ndarray):
        return False
    if isinstance(data, MatrixSource | str | os.PathLike) or _is_path_list(data):
        return True
    return any(form.is_object(data) for form in formats() if form.name not in ("array", "npy", "sparse", "table"))


def absolute_address(address: str) -> str:
    """Return ``[format://]path[::inside]`` with an absolute path, valid in any working directory."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return address
    path, folder = match["path"], os.getcwd()
    if glob.has_magic(path) and not os.path.lexists(path):
        path, folder = _escape_folder(path), glob.escape(folder)
    return address[: match.start("path")] + str(Path(folder, path)) + address[match.end("path") :]


def files_matching(path: str) -> list[str]:
    """Return the files that a glob matches, sorted by name; at least one."""
    found = sorted(glob.glob(_escape_folder(path), recursive=True))
    if not found:
        raise DataError(f"no file matches {path!r}")
    return found


@cache
def formats() -> tuple[Format, ...]:
    """Return all formats, in the order in which they are tried."""
    return tuple(import_module(f"terafactor.data.{module}").FORMAT for module in MODULES)


def _is_path_list(data: Any) -> bool:
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(path, str | os.PathLike) for path in data)


def _join(sources: list[MatrixSource]) -> MatrixSource:
    return sources[0] if len(sources) == 1 else JoinedSource(sources)


def _supported() -> str:
    """Return the list of formats, as the end of an error message."""
    lines = [f"  {form.name}: {form.description}" for form in formats()]
    return "\n".join(["supported:", *lines, "and globs and lists of files, each file a record"])


def _open_address(address: str, options: dict[str, Any]) -> MatrixSource:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise DataError(f"{address!r} is not a path; {_supported()}")
    scheme, path, inside = match["scheme"], match["path"], match["inside"]
    if not glob.has_magic(path) or os.path.lexists(path):
        return _open_path(Path(path), inside, scheme, options)
    return _join([_open_path(Path(name), inside, scheme, options) for name in files_matching(path)])


def _escape_folder(path: str) -> str:
    """Return a glob in which the name of an existing folder is literal, even if it contains brackets."""
    folder, name = os.path.split(path)
    return os.path.join(glob.escape(folder), name) if os.path.isdir(folder) else path


def _open_path(path: Path, inside: str | None, scheme: str | None, options: dict[str, Any]) -> MatrixSource:
    form = None if scheme is None else _format_of_scheme(scheme)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    check_regular(path)
    for candidate in formats() if form is None else (form,):
        if form is not None or candidate.is_path(path):
            _check_options(candidate.open_path, options, str(path))
            return candidate.open(path, inside, **options)
    hint = f"for the files of a folder pass a glob, such as {path}/*.npy; " if path.is_dir() else ""
    if path.suffix in TEXT_SUFFIXES:
        hint = f"if it is a CSV, use text://{path}; "
    raise DataError(f"the format of {path} is unknown; {hint}{_supported()}")


def _check_options(opener: Callable[..., MatrixSource], options: dict[str, Any], name: str) -> None:
    """Raise if a format does not have one of the options."""
    known = signature(opener).parameters
    unknown = [option for option in options if option not in known]
    if {"columns", "drop"}.issuperset(unknown) and unknown:
        raise ParameterError(
            f"{', '.join(f'{option}=' for option in unknown)} cannot be used with {name}; columns= and drop= "
            "(--columns, --drop) are for tables, such as CSV and Parquet files"
        )
    if unknown:
        accepted = [option for option, each in known.items() if each.kind is each.KEYWORD_ONLY]
        raise ParameterError(
            f"unknown option {unknown[0]!r} for {name}: its format takes {' and '.join(accepted) or 'no options'}"
        )


def _format_of_scheme(scheme: str) -> Format:
    from_files = {form.name: form for form in formats() if form.open_path is not Format.open_path}
    if scheme in URL_SCHEMES:
        raise DataError(f"{scheme}:// is a URL, and these are not supported: download the file first")
    if scheme not in from_files:
        raise DataError(f"{scheme}:// is none of {', '.join(f'{name}://' for name in from_files)}")
    return from_files[scheme]


def _type_name(data: Any) -> str:
    return f"{type(data).__module__}.{type(data).__qualname__}"
