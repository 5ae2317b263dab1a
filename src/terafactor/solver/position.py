"""Where a fit stands, as plain values: what a checkpoint or a model file holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.errors import DataError


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
                f"{name} must be of type {kind.__name__} to go on from, got {value!r}: the file is not ours"
            )
        return kind(value)

    def array(self, name: str, shape: tuple[int | None, ...], *dtypes: Any) -> Array:
        """Return an array, refusing one that is absent or has another shape (None: any length) or dtype."""
        array = self.arrays.get(name)
        if array is None:
            raise DataError(f"there is no array {name!r} to go on from, only {', '.join(sorted(self.arrays))}")
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
