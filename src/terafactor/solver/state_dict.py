"""State dicts: dataclasses as plain numbers and arrays, for checkpoints and model files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from terafactor._typing import Array
from terafactor.errors import DataError

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class StateDict:
    """Numbers and arrays by name. A fit that resumes from them ends with the same bits.

    The arrays of a running fit are shared, not copied: write or copy them before its next step.
    """

    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Anything that JSON can hold."""

    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Arrays; their memory order (C or F) is preserved."""

    def number(self, name: str, kind: type = int) -> Any:
        """Return a number; raise DataError if it is absent, not finite, or of another type."""
        value: Any = self.numbers.get(name)
        fits = not isinstance(value, bool) and isinstance(value, (int, float) if kind is float else kind)
        if not fits or (kind is float and not abs(value) <= sys.float_info.max):
            raise DataError(
                f"invalid {name} in the file (expected {kind.__name__}, got {value!r}): not written by terafactor, "
                "or corrupted"
            )
        return kind(value)

    def array(self, name: str, shape: tuple[int | None, ...], *dtypes: Any) -> Array:
        """Return an array; raise DataError if it is absent, has another shape (None: any length) or dtype, or NaN.

        NaN and infinity in atoms would silently give codes of zero.
        """
        array = self.arrays.get(name)
        if array is None:
            raise DataError(f"the file has no array {name!r}, only {', '.join(sorted(self.arrays))}")
        fits = len(shape) == array.ndim and all(
            needed in (None, found) for needed, found in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype not in [np.dtype(dtype) for dtype in dtypes]:
            raise DataError(
                f"array {name!r} must have shape {shape} and dtype {' or '.join(np.dtype(d).name for d in dtypes)}, "
                f"got {array.shape} and {array.dtype}"
            )
        if array.dtype.kind == "f" and array.size and not np.isfinite([array.min(), array.max()]).all():
            raise DataError(f"array {name!r} of the file has NaN or infinity: the fit that wrote it had diverged")
        return array

    def merged_with(self, other: StateDict) -> StateDict:
        """Return the union of two state dicts; ``other`` wins."""
        return StateDict({**self.numbers, **other.numbers}, {**self.arrays, **other.arrays})

    def section(self, name: str) -> StateDict:
        """Return the entries named ``name.*``, without that prefix."""

        def below(values: Mapping[str, Any]) -> dict[str, Any]:
            return {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}

        return StateDict(below(self.numbers), below(self.arrays))

    def prefixed(self, name: str) -> StateDict:
        """Return the same entries named ``name.*``: the inverse of :meth:`section`."""
        return StateDict(
            *({f"{name}.{key}": value for key, value in all_.items()} for all_ in (self.numbers, self.arrays))
        )


MAX_COUNT = 2**62
"""Counts of steps, rows and visits are below this, so that a fit can add to them."""

FLOATS: tuple[Any, ...] = (np.float32, np.float64)


def array_of(shape: str, *dtypes: Any) -> dict[str, Any]:
    """Return field metadata for an array. shape: one letter per axis; the same letter means the same length.

    Without dtypes the array is float32 or float64, the same for all such arrays of an object.
    """
    return {"shape": shape.split(), "dtypes": dtypes}


def at_least(bound: float) -> dict[str, Any]:
    """Return field metadata for a number that is not below a bound."""
    return {"least": bound}


POSITIVE = at_least(float(np.finfo(np.float32).tiny))
"""Metadata of numbers by which kernels divide in float32."""


def part_of(kind: type) -> dict[str, Any]:
    """Return field metadata for a nested dataclass, saved under the name of the field."""
    return {"part": kind}


def saved_fields(kind: type) -> list[Any]:
    """Return the fields of a dataclass that are saved: all except those with ``saved=False`` in their metadata."""
    return [each for each in fields(kind) if each.metadata.get("saved", True)]


def to_state_dict(thing: Any) -> StateDict:
    """Return the fields of a dataclass as a state dict; nested dataclasses become sections."""
    state_dict = StateDict()
    for each in saved_fields(type(thing)):
        value = getattr(thing, each.name)
        if is_dataclass(value):
            state_dict = state_dict.merged_with(to_state_dict(value).prefixed(each.name))
        elif isinstance(value, np.ndarray):
            state_dict = state_dict.merged_with(StateDict({}, {each.name: value}))
        else:
            state_dict = state_dict.merged_with(StateDict({each.name: value}))
    return state_dict


def restore(kind: type[Kind], state_dict: StateDict, lengths: dict[str, int] | None = None) -> Kind:
    """Return the dataclass that a state dict holds; raise DataError if shapes or types do not fit each other.

    lengths: known lengths of the letters of :func:`array_of`; those found are added.
    """
    found: dict[str, Any] = {}
    dtypes, lengths = FLOATS, {} if lengths is None else lengths
    for each in saved_fields(kind):
        if "part" in each.metadata:
            found[each.name] = restore(each.metadata["part"], state_dict.section(each.name), lengths)
        elif "shape" in each.metadata:
            found[each.name] = array = _array(each, state_dict, dtypes, lengths)
            dtypes = dtypes if each.metadata["dtypes"] else (array.dtype,)
        else:
            found[each.name] = _number(each, state_dict)
    return kind(**found)


def _array(each: Any, state_dict: StateDict, dtypes: tuple[Any, ...], lengths: dict[str, int]) -> Array:
    """Return the array of a field, and add its lengths to ``lengths``."""
    shape = each.metadata["shape"]
    known = tuple(int(letter) if letter.isdigit() else lengths.get(letter) for letter in shape)
    array = state_dict.array(each.name, known, *(each.metadata["dtypes"] or dtypes))
    if array.dtype.kind == "i" and array.size and not 0 <= array.min() <= array.max() < MAX_COUNT:
        raise DataError(f"array {each.name!r} of the file counts from {array.min()} to {array.max()}: it is corrupted")
    lengths |= {letter: length for letter, length in zip(shape, array.shape, strict=True) if not letter.isdigit()}
    if tuple(lengths.get(letter, length) for letter, length in zip(shape, array.shape, strict=True)) != array.shape:
        raise DataError(f"array {each.name!r} has shape {array.shape}: axes that must have equal lengths differ")
    return array


def _number(each: Any, state_dict: StateDict) -> Any:
    """Return the value of a scalar field: a number, a parsed list, or None for an absent optional field.

    Integers count something.
    """
    if "parse" in each.metadata:
        return each.metadata["parse"](state_dict.numbers.get(each.name, ()))
    kind, _, optional = getattr(each.type, "__name__", str(each.type)).partition(" | ")
    if optional and state_dict.numbers.get(each.name) is None:
        return None
    value = state_dict.number(each.name, {"float": float, "str": str}.get(kind, int))
    if isinstance(value, int) and not 0 <= value < MAX_COUNT:
        raise DataError(
            f"{each.name} in the file must be a count, got {value}: not written by terafactor, or corrupted"
        )
    least = each.metadata.get("least")
    if least is not None and value < least:
        raise DataError(
            f"{each.name} in the file must be at least {least:g}, got {value:g}: not written by terafactor, or "
            "corrupted"
        )
    return value
