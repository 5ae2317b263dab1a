"""How the problem is solved: everything that is not the problem itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Literal

from terafactor._typing import is_number
from terafactor.errors import ParameterError
from terafactor.problem import PowerDecay, Schedule

Statistics = Literal["masked", "full"]
Projection = Literal["masked", "exact"]


@dataclass(frozen=True)
class SolverOptions:
    """Options of :func:`terafactor.solver.fit`, validated when built."""

    n_components: int
    """Number of atoms, k."""

    seed: int = 0
    """Every mask, row order and random start is a function of it."""

    batch_size: int = 40
    """Rows per step."""

    reduction: float = 1.0
    """How many times fewer features than there are a step sees."""

    statistics: Statistics = "full"
    """"masked": learn from the masked features only; "full": from whole rows, the mask serving codes and atoms."""

    projection: Projection = "masked"
    """How atoms return to the ball: "masked" with the entries outside the mask fixed, "exact" with all of them."""

    schedule: Schedule = field(default_factory=PowerDecay)
    """How fast the statistics forget."""

    n_epochs: float = 1
    """Passes over the data; a fraction is a part of a pass."""

    tol: float = 0.0
    """Stop when the objective on a sample falls by less, relatively, while the rows seen double; 0: never."""

    max_time: float | None = None
    """Seconds after which the fit stops; None: never."""

    missing: bool = False
    """Whether NaN stands for a missing value."""

    n_threads: int = 1
    """Threads; the result does not depend on it."""

    shuffle: bool = True
    """Whether rows are visited in random order."""

    reseed_after: int = 1000
    """Rows without a nonzero code after which an atom counts as unused and starts anew."""

    @property
    def masked(self) -> bool:
        """Whether the statistics see some of the features at a time."""
        return self.statistics == "masked" and self.reduction > 1

    @property
    def exact(self) -> bool:
        """Whether projections reach beyond the features of a step; where there are none, both are the same."""
        return self.projection == "exact" and (self.reduction > 1 or self.missing)

    def __post_init__(self) -> None:
        _at_least("n_components", self.n_components, 1, Integral, "it is the number of atoms to learn")
        _at_least("batch_size", self.batch_size, 1, Integral, "it is the number of rows per step")
        _at_least("reduction", self.reduction, 1, Real, "reduction=10 uses a tenth of the features per step")
        _at_least("tol", self.tol, 0, Real, "0 means no early stop")
        _at_least("reseed_after", self.reseed_after, 1, Integral, "it is a number of rows")
        if self.statistics not in ("masked", "full"):
            raise ParameterError(f"statistics must be 'masked', 'full' or 'auto', got {self.statistics!r}")
        if self.projection not in ("masked", "exact"):
            raise ParameterError(f"projection must be 'masked' or 'exact', got {self.projection!r}")
        if not (is_number(self.n_epochs, Real) and 0 < self.n_epochs < math.inf):
            raise ParameterError(f"n_epochs must be a number > 0, got {self.n_epochs!r}")
        if self.max_time is not None and not (is_number(self.max_time, Real) and self.max_time > 0):
            raise ParameterError(f"max_time must be a number of seconds > 0, or None, got {self.max_time!r}")


def _at_least(name: str, value: object, least: float, kind: type, hint: str) -> None:
    if not (is_number(value, kind) and value >= least and value < math.inf):  # type: ignore[operator]
        what = "an integer" if kind is Integral else "a number"
        raise ParameterError(f"{name} must be {what} >= {least}, got {value!r} ({hint})")
