"""Random masks: the part of the features that a step of the paper's algorithm uses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from terafactor._typing import is_number
from terafactor.errors import ParameterError
from terafactor.problem.registry import storable

Statistics = Literal["masked", "full"]
Projection = Literal["masked", "exact"]


@storable
@dataclass(frozen=True)
class RandomMasks:
    """Use a random part of the features in each step, as in the paper.

    The features are split into ``ceil(reduction)`` random masks; a cycle of as many steps uses each of them once.

    Parameters
    ----------
    reduction : float
        Each step uses 1 / reduction of the features.
    statistics : {"auto", "full", "masked"}, default="auto"
        "masked" reads only the features of the mask, and needs about 30 visits of each feature. "full" reads whole
        rows, updates the statistics of all features, and uses the mask only to save computation. "auto" is "full" for
        data in memory, and "masked" otherwise.
    projection : {"masked", "exact"}, default="masked"
        How atoms are projected on the ball after a step: "masked" keeps the entries outside the mask fixed, "exact"
        projects whole atoms, which costs a pass over them and does not guarantee descent. Without masks and missing
        values, both are the same.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import MaskedDictionaryLearning, RandomMasks
    >>> X = np.random.default_rng(0).standard_normal((200, 50))
    >>> masks = RandomMasks(5, statistics="masked")
    >>> MaskedDictionaryLearning(4, reduction=masks, n_epochs=2, random_state=0).fit(X).reduction_
    5
    """

    reduction: float
    statistics: Literal["auto", "full", "masked"] = "auto"
    projection: Projection = "masked"

    def __post_init__(self) -> None:
        if not (is_number(self.reduction) and 1 <= self.reduction < math.inf):
            raise ParameterError(
                f"reduction must be a number >= 1, 'auto' or RandomMasks, got {self.reduction!r} "
                "(reduction=10 uses a tenth of the features per step)"
            )
        if self.statistics not in ("auto", "masked", "full"):
            raise ParameterError(f"statistics must be 'masked', 'full' or 'auto', got {self.statistics!r}")
        if self.projection not in ("masked", "exact"):
            raise ParameterError(f"projection must be 'masked' or 'exact', got {self.projection!r}")


def resolve_masks(reduction: Any) -> RandomMasks:
    """Return the masks that a parameter ``reduction`` requests; "auto" is 1, all features in every step."""
    if isinstance(reduction, RandomMasks):
        return reduction
    return RandomMasks(1 if isinstance(reduction, str) and reduction == "auto" else reduction)
