"""Options of the solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Integral, Real

from terafactor._typing import is_number
from terafactor.errors import ParameterError
from terafactor.problem import PowerDecay, RandomMasks, Schedule
from terafactor.problem.masks import Projection, Statistics


@dataclass(frozen=True)
class SolverOptions:
    """How :func:`terafactor.solver.fit` solves a problem. Validated on construction.

    Examples
    --------
    >>> from terafactor.solver import SolverOptions
    >>> SolverOptions(n_components=5, reduction=10, statistics="masked").masked
    True
    """

    n_components: int
    """Number of atoms, k."""

    seed: int = 0
    """Seed of masks, row order and initialization."""

    batch_size: int = 40
    """Rows per step."""

    reduction: float = 1.0
    """Each step uses 1 / reduction of the features."""

    statistics: Statistics = "full"
    """"masked": update the statistics of the masked features only; "full": of all features, from whole rows."""

    projection: Projection = "masked"
    """How atoms are projected: "masked" keeps entries outside the mask fixed, "exact" projects whole atoms."""

    schedule: Schedule = field(default_factory=PowerDecay)
    """Decay of the statistics."""

    n_epochs: float = 1
    """Passes over the data, possibly a fraction."""

    tol: float = 0.0
    """Stop when doubling the rows seen lowers the objective on a sample by less than this, relatively; 0: never."""

    max_time: float | None = None
    """Seconds after which the fit stops; None: never."""

    missing: bool = False
    """Whether NaN marks missing values."""

    n_threads: int = 1
    """Number of threads. The result does not depend on it."""

    shuffle: bool = True
    """Whether rows are visited in random order."""

    shards: int = 1
    """Shards that learn on their own in each round; 1 for ordinary steps."""

    round_steps: int = 1
    """Steps of each shard in a round."""

    reseed_after: int = 1000
    """Re-initialize an atom after this many rows without a nonzero code."""

    @property
    def masked(self) -> bool:
        """Whether steps update the statistics of some of the features only."""
        return self.statistics == "masked" and self.reduction > 1

    @property
    def exact(self) -> bool:
        """Whether projections change entries outside the features of a step."""
        return self.projection == "exact" and (self.reduction > 1 or self.missing)

    def __post_init__(self) -> None:
        _at_least("n_components", self.n_components, 1, Integral, "it is the number of atoms to learn")
        _at_least("batch_size", self.batch_size, 1, Integral, "it is the number of rows per step")
        RandomMasks(self.reduction, self.statistics, self.projection)  # validates them
        if self.statistics not in ("masked", "full"):
            raise ParameterError(f"statistics of the solver must be 'masked' or 'full', got {self.statistics!r}")
        _at_least("shards", self.shards, 1, Integral, "it is the number of shards that learn at the same time")
        _at_least("round_steps", self.round_steps, 1, Integral, "it is the number of steps of a shard between merges")
        _at_least("tol", self.tol, 0, Real, "0 means no early stop")
        _at_least("reseed_after", self.reseed_after, 1, Integral, "it is a number of rows")
        if not (is_number(self.n_epochs, Real) and 0 < self.n_epochs < math.inf):
            raise ParameterError(f"n_epochs must be a number > 0, got {self.n_epochs!r}")
        if self.max_time is not None and not (is_number(self.max_time, Real) and self.max_time > 0):
            raise ParameterError(f"max_time must be a number of seconds > 0, or None, got {self.max_time!r}")


def _at_least(name: str, value: object, least: float, kind: type, hint: str) -> None:
    if not (is_number(value, kind) and value >= least and value < math.inf):  # type: ignore[operator]
        what = "an integer" if kind is Integral else "a number"
        raise ParameterError(f"{name} must be {what} >= {least}, got {value!r} ({hint})")
