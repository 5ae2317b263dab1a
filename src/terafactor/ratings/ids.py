"""Names of users and items, and the numbers that stand for them inside."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.errors import DataError
from terafactor.solver.position import Position

COMPACT = 4
"""How many times wider than the number of ids a range of integers may be to be handled by counting."""

EXACT = 2**53
"""Whole numbers below it are told apart as floats."""

LIMIT = 2**63
"""Integers from here on are kept as uint64, which no model file holds."""

MISSING = ("None", "nan", "<NA>", "NaT")
"""How NumPy, pandas and Python write what is not there."""


class Ids:
    """Distinct ids, integers or text; their numbers are 0, 1, ...

    Parameters
    ----------
    values : ndarray of shape (n,)
        The ids, in the order of their numbers: int64 (uint64 where one is 2**63 or more) or text.
    """

    def __init__(self, values: Array) -> None:
        self.values = values
        self._order: Indices | None = None
        self._numbers: dict[Any, int] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, ids: Any) -> tuple[Ids, Array]:
        """Return the distinct ids of a sequence in ascending order, and the numbers (n,) int32."""
        array = _of_one_kind(as_ids(ids))
        if array.dtype.kind in "iu" and len(array):
            low, high = array.min(), array.max()
            if int(high) - int(low) < COMPACT * len(array) + 1024:
                return cls._by_counting(array, low, int(high) - int(low) + 1)
        values, numbers = np.unique(array, return_inverse=True)
        return cls(values), numbers.astype(np.int32)

    @classmethod
    def _by_counting(cls, array: Array, low: Any, width: int) -> tuple[Ids, Array]:
        from terafactor.kernels.rating_order import mark_keys, number_keys

        seen = np.zeros(width, np.bool_)
        mark_keys(array, low, seen)
        values = np.flatnonzero(seen).astype(array.dtype) + low
        numbers = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        out = np.empty(len(array), np.int32)
        number_keys(array, low, numbers, out)
        return cls(values), out

    def take(self, numbers: Indices) -> Array:
        """Return the ids of numbers (any shape); that of -1 is -1 among integers, "" among text."""
        nobody = "" if self.values.dtype.kind == "U" else np.int64(-1).astype(self.values.dtype)
        taken = self.values[np.maximum(numbers, 0)] if len(self) else np.empty(numbers.shape, self.values.dtype)
        taken[numbers < 0] = nobody
        return taken

    def find(self, ids: Any) -> Indices:
        """Return the numbers of ids, -1 for those that are not known; integers and text may be mixed."""
        asked = as_ids(ids)
        if self.values.dtype == object or asked.dtype.kind != self.values.dtype.kind:
            return self._find_one_by_one(asked)
        if self._order is None:
            self._order = np.argsort(self.values, kind="stable")
        places = np.searchsorted(self.values, asked, sorter=self._order)
        numbers = self._order[np.minimum(places, len(self) - 1)] if len(self) else np.zeros(len(asked), np.int64)
        return np.where(self.values[numbers] == asked, numbers, -1) if len(self) else numbers - 1

    def _find_one_by_one(self, asked: Array) -> Indices:
        if self._numbers is None:
            self._numbers = {value: number for number, value in enumerate(self.values.tolist())}
        return np.array([self._numbers.get(value, -1) for value in asked.tolist()], np.int64)

    def extended(self, ids: Any) -> tuple[Ids, Indices]:
        """Return these ids with new ones after them, and the numbers of the ids given."""
        asked = as_ids(ids)
        numbers = self.find(asked)
        fresh, places = Ids.of(asked[numbers < 0])
        numbers[numbers < 0] = len(self) + places
        if not len(fresh):
            return self, numbers
        if fresh.values.dtype.kind == self.values.dtype.kind:
            return Ids(np.concatenate([self.values, fresh.values])), numbers
        return Ids(_of_one_kind(as_ids([*self.values.tolist(), *fresh.values.tolist()]))), numbers

    def position(self) -> Position:
        """Return them as what a file holds: integers as an array, text as its bytes and where each ends."""
        if self.values.dtype.kind in "iu":
            if len(self) and int(self.values.max()) >= LIMIT:
                raise DataError(
                    f"a model file holds ids that are integers below 2**63 or text, not {self.values.max()}: "
                    "turn ids into text before fit, as with astype(str)"
                )
            return Position({}, {"integers": self.values.astype(np.int64)})
        texts = self.values.tolist()
        parts = [text.encode() for text in texts]
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return Position({}, {"text": np.frombuffer(b"".join(parts), np.uint8).copy(), "ends": ends})

    @classmethod
    def at(cls, position: Position) -> Ids:
        """Return the ids of a position."""
        if "integers" in position.arrays:
            return cls(position.array("integers", (None,), np.int64))
        ends = position.array("ends", (None,), np.int64)
        content = position.array("text", (None,), np.uint8).tobytes()
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        if len(ends) and (np.any(np.diff(ends, prepend=0) < 0) or ends[-1] != len(content)):
            raise DataError("the texts of ids do not fit together: the file is not ours")
        return cls(np.array([content[a:b].decode() for a, b in zip(starts, ends, strict=True)], dtype=np.str_))


def as_ids(ids: Any) -> Array:
    """Return ids as an array (n,): int64 or uint64, text, or objects where some are integers and some text.

    An array of whole numbers with a point counts as integers.
    """
    if isinstance(ids, list | tuple):  # NumPy would turn 1 beside "a" into text, and beside 2**63 into a float
        return _from_objects(list(ids))
    array = np.asarray(ids.to_numpy() if hasattr(ids, "to_numpy") else ids)
    if array.ndim != 1:
        raise DataError(f"ids must be a sequence of integers or text, got shape {array.shape}")
    if array.dtype.kind == "U" or array.dtype == np.int64:
        return array
    if array.dtype.kind in "iu":
        return array if len(array) and int(array.max()) >= LIMIT else array.astype(np.int64)
    if array.dtype == object or not len(array):
        return _from_objects(array.tolist())
    if array.dtype.kind == "f" and np.all(array == np.rint(array)) and np.abs(array).max() < EXACT:
        return array.astype(np.int64)  # what is left of integers in a table of floats
    raise _refused(array, str(array.dtype))


def _from_objects(values: list[Any]) -> Array:
    """Return integers and text among Python objects as an array, or say which one is neither."""
    kinds = {str if issubclass(kind, str) else int if _is_integer(kind) else kind for kind in set(map(type, values))}
    if not kinds <= {int, str}:
        raise _refused(values)
    if kinds == {str}:
        return np.array(values, dtype=np.str_)
    array = np.empty(len(values), object)
    array[:] = values
    return array if str in kinds else array.astype(_integer_type(values))


def _integer_type(values: list[Any]) -> type:
    low, high = (int(min(values)), int(max(values))) if values else (0, 0)
    if low >= -LIMIT and high < LIMIT:
        return np.int64
    if low >= 0 and high < 2 * LIMIT:
        return np.uint64
    raise DataError(f"ids go from {low} to {high}, which no integer of 64 bits holds: turn them into text")


def _is_integer(kind: type) -> bool:
    return issubclass(kind, Integral) and not issubclass(kind, bool)


def _refused(values: Sequence[Any] | Array, kind: str | None = None) -> DataError:
    """Return what is wrong with the first id that is neither an integer nor text."""
    others = {n: value for n, value in enumerate(values) if not isinstance(value, str) and not _is_integer(type(value))}
    missing = next((n for n, value in others.items() if str(value) in MISSING), None)
    if missing is not None:
        return DataError(f"id number {missing} is missing ({others[missing]!s}): every rating needs a user and an item")
    place, value = next(iter(others.items()))
    return DataError(
        f"ids must be integers or text, and id number {place} is {value!s} of type {kind or type(value).__name__}: "
        "turn them into text, as with astype(str), or into integers with astype(int) where they are whole numbers"
    )


def _of_one_kind(array: Array) -> Array:
    """Return ids that are all integers or all text, and refuse others: "7" and 7 would be two in one model."""
    if array.dtype != object:
        return array
    number = next(value for value in array if not isinstance(value, str))
    text = next(value for value in array if isinstance(value, str))
    raise DataError(f"ids must be all integers or all text, got {number!r} and {text!r}: turn all into text")
