"""Errors raised by terafactor.

Every error message names the parameter or file, the value received, the value needed and what to do::

    TerafactorError
    ├── ParameterError (ValueError)        a parameter has a value that cannot work
    ├── DataError (ValueError)             the numbers, or their shape, cannot be used
    ├── DataTypeError (TypeError)          terafactor does not read objects of this type
    ├── StorageError (OSError)             a file could not be read or written
    ├── RunInterruptedError                a signal stopped a run, which can be resumed
    ├── ClusterError (RuntimeError)        the cluster cannot compute; a run can be resumed
    └── MissingDependencyError (ImportError)   an optional package is not installed

A fit that succeeds, but whose result is likely not what the user wants, issues a ``FitWarning`` (UserWarning).

>>> import terafactor
>>> terafactor.MaskedDictionaryLearning(0).fit([[1.0, 2.0]])
Traceback (most recent call last):
...
terafactor.errors.ParameterError: n_components must be ...
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "ClusterError",
    "DataError",
    "DataTypeError",
    "FitWarning",
    "MissingDependencyError",
    "ParameterError",
    "RunInterruptedError",
    "StorageError",
    "TerafactorError",
]


class TerafactorError(Exception):
    """Base class of all errors that terafactor raises on purpose."""


class FitWarning(UserWarning):
    """The fit succeeded, but its result is likely not what the user wants."""


class ParameterError(TerafactorError, ValueError):
    """A parameter has a value that cannot work."""


class DataError(TerafactorError, ValueError):
    """The numbers, or their shape, cannot be used."""


class DataTypeError(TerafactorError, TypeError):
    """terafactor does not read objects of this type."""


class StorageError(TerafactorError, OSError):
    """A file could not be read or written: no space, no permission, a failing disk.

    Parameters
    ----------
    error : OSError
        The error of the system.
    path : path or str
        The file.
    action : str
        The operation that failed: "read", "write", ...
    """

    def __init__(self, error: OSError, path: Path | str, action: str = "write") -> None:
        super().__init__(error.errno, f"cannot {action} {path}: {error.strerror or error}")

    def __str__(self) -> str:
        return str(self.strerror)


class ClusterError(TerafactorError, RuntimeError):
    """The workers or the scheduler of a cluster are gone, or do not fit; a run can be resumed from its checkpoint."""


class RunInterruptedError(TerafactorError):
    """A signal stopped a run before its end; it can be resumed from its last checkpoint."""


class MissingDependencyError(TerafactorError, ImportError):
    """An optional package is not installed.

    Parameters
    ----------
    package : str
        The package that could not be imported.
    extra : str
        The extra of terafactor that installs it.
    purpose : str
        What needs it.
    """

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'terafactor[{extra}]'")
