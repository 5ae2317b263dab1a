"""Descriptions of sources: plain values from which another process, on this or another machine, opens the same one."""

from __future__ import annotations

import operator
import socket
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from terafactor.errors import DataError

if TYPE_CHECKING:
    from terafactor.data.source import MatrixSource


def describe_as(source: MatrixSource, opener: Callable[..., MatrixSource], **arguments: Any) -> dict[str, Any]:
    """Return the description of a source that ``opener(**arguments)`` opens again.

    Parameters
    ----------
    source : MatrixSource
    opener : callable
        A function or class of a module that every worker can import.
    **arguments
        Strings, numbers, booleans, None, NumPy arrays, and lists and dicts of these.

    Examples
    --------
    >>> from terafactor.data import describe_as
    >>> import numpy as np
    >>> from terafactor import MatrixSource
    >>> class Zeros(MatrixSource):
    ...     def __init__(self, n_rows):
    ...         self.shape, self.dtype = (n_rows, 2), np.dtype(np.float64)
    ...
    ...     def read(self, rows, columns=None):
    ...         return np.zeros((len(rows), 2 if columns is None else len(columns)))
    ...
    ...     def describe(self):
    ...         return describe_as(self, Zeros, n_rows=self.shape[0])
    >>> Zeros(5).describe()["arguments"]
    {'n_rows': 5}
    """
    return {
        "opener": f"{opener.__module__}:{opener.__qualname__}",
        "arguments": arguments,
        "shape": list(source.shape),
        "dtype": str(source.dtype),
    }


def open_description(description: Mapping[str, Any]) -> MatrixSource:
    """Return the source that :meth:`MatrixSource.describe` described, in this process or another one.

    A description names the function that opens it, so accept descriptions only from processes that you trust.

    Parameters
    ----------
    description : mapping

    Returns
    -------
    MatrixSource
        A source that reads the same values, in the same records, blocks of rows and tiles.

    Raises
    ------
    DataError
        If this machine does not see the files, or if they differ from those that were described.

    Examples
    --------
    >>> from terafactor.data import open_description
    >>> import tempfile
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.eye(3))
    ...     description = open_source(f"{folder}/X.npy").describe()
    ...     open_description(description).read(np.array([1]))
    array([[0., 1., 0.]])
    """
    source = _find_opener(description["opener"])(**description["arguments"])
    expected = tuple(description["shape"]), description["dtype"]
    found = source.shape, str(source.dtype)
    if found != expected:
        raise DataError(
            f"{source.record_name(0)} has shape {found[0]} and type {found[1]} on host {socket.gethostname()}, but was "
            f"described with shape {expected[0]} and type {expected[1]}: use the same data and the same versions of "
            "packages on every machine"
        )
    return source


def _find_opener(name: str) -> Callable[..., MatrixSource]:
    module, _, inside = name.partition(":")
    try:
        return operator.attrgetter(inside)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise DataError(
            f"{name} cannot be imported on host {socket.gethostname()}, but opens the data: define it in a module that "
            "is installed on every worker"
        ) from error
