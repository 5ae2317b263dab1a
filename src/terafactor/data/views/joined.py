"""Several matrices stacked vertically."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.describe import describe_as, open_description
from terafactor.data.source import FeatureTiles, MatrixSource, check_indices
from terafactor.errors import DataError


class JoinedSource(MatrixSource):
    """The rows of several sources, one after another; the records of each stay records.

    Parameters
    ----------
    sources : sequence of MatrixSource
        All with the same features and dtype. Features with names are matched by name, in the order of the first source
        that has names.

    Examples
    --------
    >>> from terafactor import ArraySource
    >>> JoinedSource([ArraySource(np.eye(3)), ArraySource(np.ones((2, 3)))]).records
    [range(0, 3), range(3, 5)]
    """

    def __init__(self, sources: Sequence[MatrixSource]) -> None:
        named = next((source for source in sources if source.feature_names is not None), None)
        self.sources = [source if named is None else _by_name(source, named) for source in sources]
        first = self.sources[0]
        for source in self.sources[1:]:
            _check_compatible(source, first)
        self._starts = np.cumsum([0, *(source.shape[0] for source in self.sources)])
        self._parts = [
            (number, record) for number, source in enumerate(self.sources) for record in range(len(source.records))
        ]
        self._records = [
            _shifted(rows, int(start))
            for start, source in zip(self._starts[:-1], self.sources, strict=True)
            for rows in source.records
        ]
        self.shape = (int(self._starts[-1]), first.shape[1])
        self.dtype = first.dtype
        parts = [(self.sources[number], inner) for number, inner in self._parts]
        self._labels = distinct_labels(
            [source.record_label(inner) for source, inner in parts],
            [source.record_name(inner) for source, inner in parts],
            [number for number, _ in self._parts],
        )
        self.in_memory = all(source.in_memory for source in self.sources)
        self.whole_records = any(source.whole_records for source in self.sources)
        self.checked = all(source.checked for source in self.sources)
        self.holds_nan = any(source.holds_nan for source in self.sources)
        self.stored_share = self._stored_share()
        self.geometry = first.geometry
        self.feature_names = None if named is None else named.feature_names

    @property
    def records(self) -> Sequence[range]:
        return self._records

    def record_name(self, record: int) -> str:
        number, inner = self._parts[record]
        return self.sources[number].record_name(inner)

    def record_label(self, record: int) -> str:
        return self._labels[record]

    def locate(self, row: int) -> tuple[int, int]:
        owner = int(self._owners(np.array([row]))[0])
        inner, number = self.sources[owner].locate(row - int(self._starts[owner]))
        return self._parts.index((owner, inner)), number

    def record_identity(self, record: int) -> str | None:
        number, inner = self._parts[record]
        return self.sources[number].record_identity(inner)

    def describe(self) -> dict[str, Any] | None:
        described = [source.describe() for source in self.sources]
        return None if None in described else describe_as(self, open_joined, sources=described)

    def stored_bytes(self, rows: Indices, columns: Indices | None = None) -> int:
        owners = self._owners(rows)
        return sum(
            self.sources[number].stored_bytes(rows[owners == number] - self._starts[number], columns)
            for number in np.unique(owners)
        )

    def absent_as_missing(self) -> Self:
        return type(self)([source.absent_as_missing() for source in self.sources])

    def reorder_features(self, names: Sequence[str]) -> JoinedSource:
        return type(self)(
            [source if source.feature_names is None else source.reorder_features(names) for source in self.sources]
        )

    def row_blocks(self, record: int) -> Sequence[range] | None:
        number, inner = self._parts[record]
        blocks = self.sources[number].row_blocks(inner)
        return None if blocks is None else [_shifted(block, int(self._starts[number])) for block in blocks]

    def tiles(self, record: int) -> FeatureTiles:
        number, inner = self._parts[record]
        return self.sources[number].tiles(inner)

    def read(self, rows: Indices, columns: Indices | None = None) -> Array:
        check_indices(rows, self.shape[0], "rows")
        owners = self._owners(rows)
        touched = np.unique(owners)
        if len(touched) == 1:
            return self._read_from(int(touched[0]), rows, columns)
        values = np.empty((len(rows), self.shape[1] if columns is None else len(columns)), self.dtype)
        for number in touched:
            mine = owners == number
            values[mine] = self._read_from(int(number), rows[mine], columns)
        return values

    def read_stored(self, rows: Indices) -> Any:
        from scipy.sparse import vstack

        check_indices(rows, self.shape[0], "rows")
        owners = self._owners(rows)
        places = np.argsort(owners, kind="stable")  # rows of one source after those of another
        parts = [
            self.sources[number].read_stored(rows[owners == number] - self._starts[number])
            for number in np.unique(owners)
        ]
        return vstack(parts, format="csr")[np.argsort(places, kind="stable")]

    def _stored_share(self) -> float:
        """Return the share of stored entries; 1 if any source is dense."""
        shares = [source.stored_share for source in self.sources]
        heights = [source.shape[0] for source in self.sources]
        return 1.0 if max(shares) == 1 else float(np.average(shares, weights=heights))

    def _owners(self, rows: Indices) -> Indices:
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _read_from(self, number: int, rows: Indices, columns: Indices | None) -> Array:
        return self.sources[number].read(rows - self._starts[number], columns)


def open_joined(sources: Sequence[Mapping[str, Any]]) -> JoinedSource:
    """Join the sources with these descriptions."""
    return JoinedSource([open_description(source) for source in sources])


def _shifted(rows: range, start: int) -> range:
    return range(rows.start + start, rows.stop + start)


def _by_name(source: MatrixSource, first: MatrixSource) -> MatrixSource:
    """Return a source with its features in the order of the first; features without names keep their order."""
    names, needed = source.feature_names, first.feature_names
    if names is None or needed is None or list(names) == list(needed):
        return source
    _check_names(source, first)
    _check_names(first, source)
    return source.reorder_features(needed)


def _check_names(source: MatrixSource, other: MatrixSource) -> None:
    """Refuse a source that lacks a feature of another."""
    known = set(source.feature_names or ())
    absent = next((name for name in other.feature_names or () if name not in known), None)
    if absent is not None:
        raise DataError(
            f"{source.record_name(0)} has no feature {absent!r}, which {other.record_name(0)} has: matrices that are "
            "joined need the same features; choose common ones, as in open_source(files, columns=[...])"
        )


def _check_compatible(source: MatrixSource, first: MatrixSource) -> None:
    one, other = source.record_name(0), first.record_name(0)
    if source.shape[1] != first.shape[1]:
        raise DataError(
            f"{one} has {source.shape[1]} features, but {other} has {first.shape[1]}: "
            "matrices that are joined need the same features"
        )
    if source.dtype != first.dtype:
        raise DataError(f"{one} is read as {source.dtype}, but {other} as {first.dtype}: convert one of them")


def distinct_labels(labels: Sequence[str], names: Sequence[str], owners: Sequence[int]) -> list[str]:
    """Return labels, distinct for records of different files: with folders, or else with numbers, where necessary.

    labels: names of the records without folders; names: with folders; owners: number of the file of each record.
    """
    if _are_distinct(labels, owners):
        return list(labels)
    plain = [name.replace("\\", "/") for name in names]
    shared = os.path.commonprefix(plain).rfind("/") + 1  # noqa: RUF071, cut at a folder
    inside = [name[shared:] for name in plain]
    if _are_distinct(inside, owners):
        return inside
    return [f"{label} ({owner})" for label, owner in zip(labels, owners, strict=True)]


def _are_distinct(labels: Sequence[str], owners: Sequence[int]) -> bool:
    """Return whether no label is shared by records of different files."""
    last = dict(zip(labels, owners, strict=True))
    return all(last[label] == owner for label, owner in zip(labels, owners, strict=True))
