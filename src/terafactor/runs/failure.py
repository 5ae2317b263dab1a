"""What becomes of a fitted estimator when learning fails."""

from __future__ import annotations

import contextlib
from collections.abc import Generator


@contextlib.contextmanager
def unless_it_fails(estimator: object) -> Generator[None, None, None]:
    """Leave an estimator as it was when what follows raises, be it a second Ctrl-C; arrays must not change in place."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
