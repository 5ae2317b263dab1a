"""Where a fit stands, as plain values: what a checkpoint or a model file holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from terafactor._typing import Array
from terafactor.errors import DataError

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Position:
    """Numbers and arrays by name. A fit that starts from them goes on to the same bits.

    The arrays of a position taken from a running fit are those of the fit: write or copy them before its next step.
    """

    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Counters and the like: whatever JSON can hold."""

    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Arrays, whose order in memory (by row or by column) is part of them."""

    def number(self, name: str, kind: type = int) -> Any:
        """Return a number, refusing one that is absent or of another kind."""
        value = self.numbers.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise DataError(
                f"invalid {name} in the file (expected {kind.__name__}, got {value!r}): it is not written by "
                "terafactor, or corrupted"
            )
        return kind(value)

    def array(self, name: str, shape: tuple[int | None, ...], *dtypes: Any) -> Array:
        """Return an array, refusing one that is absent or has another shape (None: any length) or dtype."""
        array = self.arrays.get(name)
        if array is None:
            raise DataError(f"there is no array {name!r} in the file, only {', '.join(sorted(self.arrays))}")
        fits = len(shape) == array.ndim and all(
            needed in (None, found) for needed, found in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype not in [np.dtype(dtype) for dtype in dtypes]:
            raise DataError(
                f"array {name!r} must have shape {shape} and dtype {' or '.join(np.dtype(d).name for d in dtypes)}, "
                f"got {array.shape} and {array.dtype}"
            )
        return array

    def with_all(self, other: Position) -> Position:
        """Return a position that also holds all of another."""
        return Position({**self.numbers, **other.numbers}, {**self.arrays, **other.arrays})

    def part(self, name: str) -> Position:
        """Return what is named ``name.something``, under the name something."""

        def below(values: Mapping[str, Any]) -> dict[str, Any]:
            return {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}

        return Position(below(self.numbers), below(self.arrays))

    def named(self, name: str) -> Position:
        """Return the same under the names ``name.something``: the inverse of :meth:`part`."""
        return Position(*({f"{name}.{key}": value for key, value in all_.items()} for all_ in (self.numbers, self.arrays)))


FLOATS = (np.float32, np.float64)


def array_field(shape: str, *dtypes: Any) -> Any:
    """Declare an array of a dataclass: letters for its lengths, the same for the same length, and its types.

    Without types it is float32 or float64, the same for all such arrays of an object.
    """
    return field(metadata={"shape": shape.split(), "dtypes": dtypes})


def position_of(thing: Any) -> Position:
    """Return the fields of a dataclass by name: arrays, numbers, and other dataclasses under their names."""
    position = Position()
    for each in fields(thing):
        value = getattr(thing, each.name)
        if is_dataclass(value):
            position = position.with_all(position_of(value).named(each.name))
        elif isinstance(value, np.ndarray):
            position = position.with_all(Position({}, {each.name: value}))
        else:
            position = position.with_all(Position({each.name: value}))
    return position


def restore(kind: type[Kind], position: Position, **lengths: int) -> Kind:
    """Return the dataclass that a position is of, refusing arrays that do not belong together.

    lengths: those of letters of :func:`array_field` that are known beforehand.
    """
    found: dict[str, Any] = {}
    dtypes: tuple[Any, ...] = FLOATS
    for each in fields(kind):  # type: ignore[arg-type]
        shape = each.metadata.get("shape")
        if shape is None:
            found[each.name] = _number(each, position)
            continue
        needed = tuple(lengths.get(letter, None if letter.isalpha() else int(letter)) for letter in shape)
        array = position.array(each.name, needed, *(each.metadata["dtypes"] or dtypes))  # type: ignore[arg-type]
        if not each.metadata["dtypes"]:
            dtypes = (array.dtype,)
        lengths |= {letter: length for letter, length in zip(shape, array.shape, strict=True) if letter.isalpha()}
        found[each.name] = array
    return kind(**found)


def _number(each: Any, position: Position) -> Any:
    """Return what is not an array; what earlier versions did not have has a default."""
    if each.metadata.get("parse") is not None:
        return each.metadata["parse"](position.numbers.get(each.name, ()))
    return position.number(each.name, {"float": float, "str": str}.get(str(each.type), int))
