"""Names for the array types that signatures use."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""An array of float32 or float64."""

Indices: TypeAlias = npt.NDArray[np.int64]
"""Row or feature numbers."""
