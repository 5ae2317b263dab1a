"""Array types for signatures, and a test for numbers."""

from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""An array of float32 or float64."""

Indices: TypeAlias = npt.NDArray[np.int64]
"""Row or feature numbers."""


def is_number(value: object, kind: type = Real) -> bool:
    """Return whether ``value`` is a number of a kind; True and False are not numbers."""
    return isinstance(value, kind) and not isinstance(value, bool)
