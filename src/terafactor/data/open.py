"""From a path, a glob, a list of paths or an object to the source that reads it."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from terafactor.data.source import MatrixSource
from terafactor.data.sources.formats import Format
from terafactor.data.views.joined import JoinedSource
from terafactor.errors import DataError, DataTypeError, ParameterError

MODULES = (
    "sources.array", "sources.npy", "sources.sparse", "packed.reader", "sources.anndata", "sources.hdf5",
    "sources.zarr", "sources.dask", "sources.table", "sources.text", "sources.iterator",
)  # fmt: skip
"""Modules that declare a ``FORMAT``; the first that recognises a thing opens it."""

_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z0-9]+)://)?(?P<path>.+?)(?:::(?P<inside>.+))?", re.DOTALL)


def open_source(thing: Any, **options: Any) -> MatrixSource:
    """Return a source that reads ``thing`` in parts.

    Parameters
    ----------
    thing : str, path, list of these, array or other object
        Text is ``[format://]path[::inside]``. The path may be a glob; ``inside`` is the name of a matrix in a file that
        can hold several, such as HDF5; ``format`` overrides what the name of the file suggests. Several files are read
        as one matrix, each a record, globs in alphabetical order. A :class:`MatrixSource` is returned as it is.
    **options
        For the implementation that opens it; see ``docs/sources.md``.

    Examples
    --------
    >>> import numpy as np
    >>> open_source(np.eye(3)).shape
    (3, 3)
    """
    if isinstance(thing, MatrixSource):
        return thing
    if isinstance(thing, str):
        return _open_text(thing, options)
    if isinstance(thing, os.PathLike):
        return _open_path(Path(thing), None, None, options)
    if is_paths(thing):
        return joined([open_source(path, **options) for path in thing])
    for form in formats():
        if form.is_object(thing):
            _check_options(form.open_object, options, _type_name(thing))
            return form.open_object(thing, **options)
    raise DataTypeError(f"cannot read an object of type {_type_name(thing)}; {understood()}")


def is_paths(thing: Any) -> bool:
    """Whether ``thing`` is a list of paths."""
    return (
        isinstance(thing, list | tuple) and bool(thing) and all(isinstance(path, str | os.PathLike) for path in thing)
    )


def must_be_opened(thing: Any) -> bool:
    """Whether ``thing`` is something to open rather than rows at hand: no array, sparse matrix or data frame."""
    if isinstance(thing, np.ndarray):
        return False
    if isinstance(thing, MatrixSource | str | os.PathLike) or is_paths(thing):
        return True
    return any(form.is_object(thing) for form in formats() if form.name not in ("array", "npy", "sparse", "table"))


def from_anywhere(address: str) -> str:
    """Return what means the same as ``[format://]path[::inside]`` in whatever folder it is opened."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return address
    path, folder = match["path"], os.getcwd()
    if glob.has_magic(path) and not os.path.lexists(path):
        path, folder = _pattern(path), glob.escape(folder)
    return address[: match.start("path")] + str(Path(folder, path)) + address[match.end("path") :]


def joined(sources: list[MatrixSource]) -> MatrixSource:
    """Return the only source of a list, or all of them as one."""
    return sources[0] if len(sources) == 1 else JoinedSource(sources)


def understood() -> str:
    """Return what can be opened, as the end of a sentence."""
    lines = [f"  {form.name}: {form.understands}" for form in formats()]
    return "\n".join(["what is understood:", *lines, "and globs and lists of files, each file a record"])


@cache
def formats() -> tuple[Format, ...]:
    """Return the formats in the order in which they are asked."""
    return tuple(import_module(f"terafactor.data.{module}").FORMAT for module in MODULES)


def _open_text(text: str, options: dict[str, Any]) -> MatrixSource:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise DataError(f"{text!r} is no path; {understood()}")
    scheme, path, inside = match["scheme"], match["path"], match["inside"]
    if not glob.has_magic(path) or os.path.lexists(path):
        return _open_path(Path(path), inside, scheme, options)
    return joined([_open_path(Path(name), inside, scheme, options) for name in files_matching(path)])


def files_matching(path: str) -> list[str]:
    """Return the files that a glob finds, in the order of their names; at least one."""
    found = sorted(glob.glob(_pattern(path), recursive=True))
    if not found:
        raise DataError(f"no file matches {path!r}")
    return found


def _pattern(path: str) -> str:
    """Return a glob in which a folder that is there is taken as it is written, brackets and all."""
    folder, name = os.path.split(path)
    return os.path.join(glob.escape(folder), name) if os.path.isdir(folder) else path


def _open_path(path: Path, inside: str | None, scheme: str | None, options: dict[str, Any]) -> MatrixSource:
    form = None if scheme is None else _of_scheme(scheme)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    for candidate in formats() if form is None else (form,):
        if form is not None or candidate.is_path(path):
            _check_options(candidate.open_path, options, str(path))
            return candidate.open_path(path, inside, **options)
    hint = f"for the files of a folder give a glob, such as {path}/*.npy; " if path.is_dir() else ""
    raise DataError(f"cannot tell what {path} is; {hint}{understood()}")


def _check_options(opener: Callable[..., MatrixSource], options: dict[str, Any], name: str) -> None:
    """Raise if a format does not have one of the options."""
    known = signature(opener).parameters
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ParameterError(
            f"{', '.join(f'{option}=' for option in unknown)} cannot be used with {name}; columns= and drop= "
            "(--columns, --drop) are for tables, such as CSV and Parquet files"
        )


def _of_scheme(scheme: str) -> Format:
    from_files = {form.name: form for form in formats() if form.open_path is not Format.open_path}
    if scheme not in from_files:
        raise DataError(f"{scheme}:// is none of {', '.join(f'{name}://' for name in from_files)}")
    return from_files[scheme]


def _type_name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
