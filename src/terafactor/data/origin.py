"""Where a source was opened: a format, a path and options, and how to recognize the file on another machine."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from terafactor.errors import DataError

if TYPE_CHECKING:
    from terafactor.data.source import MatrixSource

METADATA_FILES = ("zarr.json", ".zarray", ".zgroup")
"""Files that mark a folder as a Zarr array or group."""


@dataclass(frozen=True)
class FileStamp:
    """How to recognize a file on another machine without reading it."""

    path: str
    """Absolute path of the file or, for a folder, of the metadata in it."""

    size: int
    """Bytes."""

    modified: int
    """Time of the last change, in whole seconds: copies may have lost the fraction."""

    host: str
    """Machine that saw the file."""

    @classmethod
    def of(cls, path: Path, inside: str | None = None) -> Self | None:
        """Return the stamp of a file, or of the metadata of an array ``inside`` a folder; None if it is not visible."""
        try:
            file = _identifying_file(path.absolute(), inside)
            status = file.stat()
        except OSError:
            return None
        return cls(str(file), status.st_size, int(status.st_mtime), socket.gethostname())

    def check(self) -> None:
        """Raise a DataError if this machine does not see the file, or sees another one."""
        found = FileStamp.of(Path(self.path))
        if found is None:
            raise DataError(
                f"{self.path} is not visible on host {socket.gethostname()}, but was opened on host {self.host}: put "
                "the data on a file system that all machines share, or copy them to the same path on each of them, "
                "with the times of the files (cp -p, rsync -t)"
            )
        if (found.size, found.modified) != (self.size, self.modified):
            raise DataError(
                f"{self.path} on host {found.host} ({found._details}) differs from the one opened on host {self.host} "
                f"({self._details}): copy it again, with its time (cp -p, rsync -t), or, if it was changed, open it "
                "again"
            )

    @property
    def _details(self) -> str:
        return f"{self.size} bytes, changed at {self.modified} s"


@dataclass(frozen=True)
class Origin:
    """Where a source was opened."""

    format: str
    """Name of the format."""

    path: str
    """Absolute path."""

    inside: str | None
    """Name of the matrix in a file that can hold several."""

    options: Mapping[str, Any]
    """Options of the format, as plain values."""

    stamp: FileStamp
    """The file, or the metadata of the folder."""

    absent_as_missing: bool = False
    """Whether entries that are not stored are missing, rather than zero."""

    @classmethod
    def of(cls, form: str, path: Path, inside: str | None, options: Mapping[str, Any]) -> Self | None:
        """Return the origin of a source that is about to be opened; None if its path is not visible."""
        stamp = FileStamp.of(path, inside)
        plain = {name: _plain(value) for name, value in options.items()}
        return None if stamp is None else cls(form, str(path.absolute()), inside, plain, stamp)


def open_origin(*, stamp: Mapping[str, Any], absent_as_missing: bool, **address: Any) -> MatrixSource:
    """Open a source from the fields of its origin; refuse a file that differs from the one described."""
    from terafactor.data.open import open_file  # imports sources, which import this module

    FileStamp(**stamp).check()
    source = open_file(**address)
    return source.absent_as_missing() if absent_as_missing else source


def _identifying_file(path: Path, inside: str | None) -> Path:
    for folder in (path / (inside or "").strip("/"), path) if path.is_dir() else ():
        for name in METADATA_FILES:
            if (folder / name).is_file():
                return folder / name
    return path


def _plain(value: Any) -> Any:
    """Return an option with arrays and other sequences, such as the names of columns, as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
