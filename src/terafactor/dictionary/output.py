"""What ``transform`` hands back."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any, TypeVar

Estimator = TypeVar("Estimator", bound=type)


def hand_back_files(estimator: Estimator) -> Estimator:
    """Let ``transform(X, out=...)`` of a class return what is on the disk, whatever ``set_output`` asks for.

    scikit-learn makes every ``transform`` put its codes into the frame that ``set_output`` chose. Those of a file would
    all be read for it, or, from a Zarr array, be refused.
    """
    framed = estimator.transform  # type: ignore[attr-defined]
    plain = inspect.unwrap(framed)

    @functools.wraps(plain)
    def transform(self: Any, X: Any, *, out: str | Path | None = None) -> Any:
        return framed(self, X) if out is None else plain(self, X, out=out)

    estimator.transform = transform  # type: ignore[attr-defined]
    return estimator
