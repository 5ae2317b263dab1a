"""Ids of users and items, and the row and column numbers that the model uses for them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.errors import DataError
from terafactor.solver.state_dict import StateDict

MAX_RANGE_RATIO = 4
"""Integer ids are numbered by counting if their range is at most this many times their number, otherwise by sorting."""

IDS_AT_ONCE = 2**20
"""Ids numbered at once, which bounds the memory of intermediate results."""

MAX_EXACT_FLOAT = 2**53
"""Floats represent all integers up to this one."""

INT64_END = 2**63
"""Integers from this one on are kept as uint64, which model files cannot hold."""

MAX_ID_LENGTH = 1000
"""Largest length of a text id. All entries of an array of text have the longest length: one could fill the memory."""

NO_ID = ("None", "nan", "<NA>", "NaT")
"""Missing values of Python, NumPy and pandas, as text."""


class Ids:
    """Distinct ids of any hashable type, numbered 0, 1, ...

    Parameters
    ----------
    values : ndarray of shape (n,)
        The ids, in the order of their numbers: int64 (uint64 if one is 2**63 or more), text, or objects.
    """

    def __init__(self, values: Array) -> None:
        self.values = values
        self._order: Indices | None = None
        self._numbers: dict[Any, int] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> tuple[type[Ids], tuple[Array]]:
        """Exclude the lookup tables from copies and pickles."""
        return Ids, (self.values,)

    @classmethod
    def of(cls, ids: Any) -> tuple[Ids, Array]:
        """Return the distinct ids of a sequence, sorted if they can be, and their numbers (n,) int32."""
        array = as_ids(ids)
        if array.dtype.kind in "iu" and len(array):
            low, high = array.min(), array.max()
            if int(high) - int(low) < MAX_RANGE_RATIO * len(array) + 1024:
                return cls._by_counting(array, low, int(high) - int(low) + 1)
        if array.dtype == object:
            return cls._by_hashing(array)
        values, numbers = np.unique(array, return_inverse=True)
        return cls(values), numbers.astype(np.int32)

    @classmethod
    def _by_counting(cls, array: Array, low: Any, width: int) -> tuple[Ids, Array]:
        parts = [slice(start, start + IDS_AT_ONCE) for start in range(0, len(array), IDS_AT_ONCE)]
        present, out = np.zeros(width, np.bool_), np.empty(len(array), np.int32)
        for part in parts:
            present[array[part] - low] = True
        values = np.flatnonzero(present).astype(array.dtype) + low
        numbers = np.cumsum(present, dtype=np.int32) - np.int32(1)
        for part in parts:
            out[part] = numbers[array[part] - low]
        return cls(values), out

    @classmethod
    def _by_hashing(cls, array: Array) -> tuple[Ids, Array]:
        known: dict[Any, int] = {}
        numbers = np.array([known.setdefault(value, len(known)) for value in array.tolist()], np.int32)
        return cls(_objects(list(known))), numbers

    def take(self, numbers: Indices) -> Array:
        """Return the ids of numbers (any shape); number -1 gives -1 among integers, "" among text, None otherwise."""
        kind = self.values.dtype.kind
        absent: Any = np.int64(-1).astype(self.values.dtype) if kind in "iu" else "" if kind == "U" else None
        taken = self.values[np.maximum(numbers, 0)] if len(self) else np.empty(numbers.shape, self.values.dtype)
        taken[numbers < 0] = absent
        return taken

    def find(self, ids: Any) -> Indices:
        """Return the numbers of ids, -1 for unknown ones; types may be mixed."""
        wanted = as_ids(ids)
        if self.values.dtype == object or wanted.dtype.kind != self.values.dtype.kind:
            return self._find_by_hash(wanted)
        if self._order is None:
            self._order = np.argsort(self.values, kind="stable")
        places = np.searchsorted(self.values, wanted, sorter=self._order)
        numbers = self._order[np.minimum(places, len(self) - 1)] if len(self) else np.zeros(len(wanted), np.int64)
        return np.where(self.values[numbers] == wanted, numbers, -1) if len(self) else numbers - 1

    def _find_by_hash(self, wanted: Array) -> Indices:
        if self._numbers is None:
            self._numbers = {value: number for number, value in enumerate(self.values.tolist())}
        return np.array([self._numbers.get(value, -1) for value in wanted.tolist()], np.int64)

    def extended(self, ids: Any) -> tuple[Ids, Indices]:
        """Return these ids followed by the new ones among ``ids``, and the numbers of ``ids``."""
        wanted = as_ids(ids)
        numbers = self.find(wanted)
        new, new_numbers = Ids.of(wanted[numbers < 0])
        numbers[numbers < 0] = len(self) + new_numbers
        if not len(new):
            return self, numbers
        if new.values.dtype.kind == self.values.dtype.kind:
            return Ids(np.concatenate([self.values, new.values])), numbers
        return Ids(as_ids([*self.values.tolist(), *new.values.tolist()])), numbers

    def state_dict(self) -> StateDict:
        """Return the content of a model file: an array of integers, or UTF-8 bytes and the end of each text."""
        if self.values.dtype.kind in "iu":
            if len(self) and int(self.values.max()) >= INT64_END:
                raise DataError(
                    f"ids in a model file must be integers below 2**63 or text, got {self.values.max()}: "
                    "convert ids to text before fit, for example with astype(str)"
                )
            return StateDict({}, {"integers": self.values.astype(np.int64)})
        texts = self.values.tolist()
        if not all(isinstance(text, str) for text in texts):
            kinds = ", ".join(sorted({type(text).__name__ for text in texts}))
            raise DataError(
                f"ids in a model file must be integers below 2**63 or text, got {kinds}: "
                "convert ids to text before fit, for example with astype(str)"
            )
        parts = [text.encode() for text in texts]
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return StateDict({}, {"text": np.frombuffer(b"".join(parts), np.uint8).copy(), "ends": ends})

    @classmethod
    def from_state_dict(cls, state_dict: StateDict) -> Ids:
        """Return the ids of a state_dict."""
        if "integers" in state_dict.arrays:
            return cls(state_dict.array("integers", (None,), np.int64))
        ends = state_dict.array("ends", (None,), np.int64)
        content = state_dict.array("text", (None,), np.uint8).tobytes()
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        if len(ends) and (np.any(np.diff(ends, prepend=0) < 0) or ends[-1] != len(content)):
            raise DataError("invalid text ids in the model file: not written by terafactor, or corrupted")
        return cls(np.array([content[a:b].decode() for a, b in zip(starts, ends, strict=True)], dtype=np.str_))


def as_ids(ids: Any) -> Array:
    """Return ids as an array (n,): int64 or uint64, text, or objects of any other or of mixed types.

    Integral values in a float array become integers: a table of floats stores integer ids that way.
    """
    if isinstance(ids, list | tuple):  # NumPy would convert [1, "a"] to text, and [1, 2**63] to floats
        return _from_objects(list(ids))
    array = np.asarray(ids.to_numpy() if hasattr(ids, "to_numpy") else ids)
    if array.ndim != 1:
        raise DataError(f"ids must be a sequence, got shape {array.shape}")
    if array.dtype.kind == "U" or array.dtype == np.int64:
        return array
    if array.dtype.kind in "iu":
        return array if len(array) and int(array.max()) >= INT64_END else array.astype(np.int64)
    if (
        array.dtype.kind == "f"
        and len(array)
        and np.all(array == np.rint(array))
        and np.abs(array).max() < MAX_EXACT_FLOAT
    ):
        return array.astype(np.int64)
    return _from_objects(list(array) if array.dtype.kind == "M" else array.tolist())


def _from_objects(values: list[Any]) -> Array:
    """Return Python objects as an array of integers or text, otherwise of objects, with datetime64 as datetime."""
    kinds = {str if issubclass(kind, str) else int if _is_integer(kind) else kind for kind in set(map(type, values))}
    if kinds == {str}:
        longest = max(range(len(values)), key=lambda place: len(values[place]))
        if len(values[longest]) > MAX_ID_LENGTH:
            raise DataError(
                f"id number {longest} has {len(values[longest]):,} characters, at most {MAX_ID_LENGTH:,} are allowed: "
                f"{values[longest][:40]!r}..."
            )
        return np.array(values, dtype=np.str_)
    if kinds <= {int}:
        low, high = (int(min(values)), int(max(values))) if values else (0, 0)
        fitting = [kind for kind in (np.int64, np.uint64) if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
        return _objects(values).astype(fitting[0]) if fitting else _objects(values)
    for place, value in enumerate(values):
        _check_hashable(place, value)
        if not isinstance(value, str) and str(value) in NO_ID:
            raise DataError(f"id number {place} is missing ({value!s}): every rating needs a user and an item")
    return _objects([v.astype("M8[us]").item() if isinstance(v, np.datetime64) else v for v in values])


def match_id_types(known: Array, given: Sequence[Any]) -> list[Any]:
    """Convert ids to the type of the known ids: text and integral floats to integers, or anything to text.

    Text that is not the usual form of an integer, such as ``007``, is a different id, and stays text.
    """
    if known.dtype.kind == "U":
        return [str(value) for value in given]
    return [_to_integer(value) for value in given] if known.dtype.kind in "iu" else list(given)


def _to_integer(value: Any) -> Any:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return value
    return number if str(number) == str(value) or (isinstance(value, float) and number == value) else value


def _objects(values: list[Any]) -> Array:
    return np.fromiter(values, object, len(values))


def _check_hashable(place: int, value: Any) -> None:
    try:
        hash(value)
    except TypeError as error:
        raise DataError(
            f"id number {place} is {str(value)[:40]!r} of type {type(value).__name__}: ids must be hashable, such as "
            "integers and text, in a flat sequence"
        ) from error


def _is_integer(kind: type) -> bool:
    return issubclass(kind, Integral) and not issubclass(kind, bool)
