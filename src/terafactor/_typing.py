"""Names for the array types that signatures use, and what counts as a number."""

from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""An array of float32 or float64."""

Indices: TypeAlias = npt.NDArray[np.int64]
"""Row or feature numbers."""


def is_number(value: object, kind: type = Real) -> bool:
    """Whether ``value`` is a number of the kind asked for, which True and False are not."""
    return isinstance(value, kind) and not isinstance(value, bool)
