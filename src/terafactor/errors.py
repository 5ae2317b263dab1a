"""Errors raised by terafactor.

Every error names the thing, the value received, the value needed and the way out::

    TerafactorError
    ├── ParameterError (ValueError)        a parameter has a value that cannot work
    ├── DataError (ValueError)             the numbers, or their shape, cannot be used
    ├── DataTypeError (TypeError)          the object is not something terafactor reads
    └── MissingDependencyError (ImportError)   an optional package is not installed
"""

__all__ = [
    "DataError",
    "DataTypeError",
    "MissingDependencyError",
    "ParameterError",
    "TerafactorError",
]


class TerafactorError(Exception):
    """Base of all errors that terafactor raises on purpose."""


class ParameterError(TerafactorError, ValueError):
    """A parameter has a value that cannot work."""


class DataError(TerafactorError, ValueError):
    """The numbers, or their shape, cannot be used."""


class DataTypeError(TerafactorError, TypeError):
    """The object is not something terafactor reads."""


class MissingDependencyError(TerafactorError, ImportError):
    """An optional package is needed and not installed.

    Parameters
    ----------
    package : str
        The package that could not be imported.
    extra : str
        The extra of terafactor that brings it.
    purpose : str
        What it is needed for.
    """

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'terafactor[{extra}]'")
