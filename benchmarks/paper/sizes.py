"""Sizes of the experiments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RatingsShape:
    """Size of a table of synthetic ratings."""

    name: str
    n_users: int
    n_items: int
    n_ratings: int


@dataclass(frozen=True)
class Size:
    """Sizes of all experiments, and paths of local copies of the data."""

    name: str
    n_rows: int
    """Training volumes of the simulated study."""

    n_features: int
    """Voxels of the simulated study."""

    n_components: int
    n_epochs: float
    real_epochs: float
    """Passes over the real run, which is short."""

    ratings: tuple[RatingsShape, ...]
    n_splits: int
    """Train/test splits of MovieLens; synthetic tables have one each unless ``all_splits``."""

    rating_epochs: float
    rating_components: int
    n_penalties: int
    """Values on the grid of penalties."""

    all_splits: bool = False
    hcp: Path | None = None
    """Anything that ``open_source`` accepts, one record per image."""

    movielens: Path | None = None
    netflix: Path | None = None


BRAIN_FIELDS = ("n_rows", "n_features", "n_components", "n_epochs", "real_epochs", "hcp")
RATING_FIELDS = ("ratings", "n_splits", "rating_epochs", "rating_components", "n_penalties", "all_splits", "movielens",
                 "netflix")  # fmt: skip
"""Fields that the figures of each kind depend on."""

ML_1M = RatingsShape("1M", 6_040, 3_706, 1_000_000)
ML_10M = RatingsShape("10M", 69_878, 10_677, 10_000_000)
NETFLIX = RatingsShape("100M", 480_189, 17_770, 100_000_000)

TINY = Size("tiny", 160, 216, 4, 2, 2, (RatingsShape("tiny", 80, 60, 2_000), RatingsShape("small", 160, 80, 5_000)),
            2, 2, 3, 2)  # fmt: skip
QUICK = Size(
    "quick", 2_400, 64_000, 40, 10, 40,
    (ML_1M, RatingsShape("3M", 20_960, 6_000, 3_000_000), RatingsShape("9M", 62_890, 10_000, 9_000_000)),
    5, 5, 30, 7,
)  # fmt: skip
FULL = Size("full", 40_000, 54_872, 70, 4, 60, (ML_1M, ML_10M, NETFLIX), 5, 6, 30, 15, all_splits=True)
