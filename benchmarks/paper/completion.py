"""Data and methods of figures 4 and 5 and of table 1: matrix completion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coordinate_descent import coordinate_descent
from benchmarks.paper.sizes import RatingsShape, Size
from benchmarks.recording import CpuRecorder, recorded
from terafactor.datasets import make_ratings
from terafactor.ratings import MatrixCompletion, RatingTable, read_ratings, split_randomly
from terafactor.ratings.evaluation.metrics import rmse
from terafactor.ratings.methods.biases import Biases
from terafactor.ratings.readers.netflix import read_netflix, split_probe
from terafactor.ratings.table.holdout import HeldOut
from terafactor.solver.callbacks import Snapshot
from terafactor.solver.loop import RunningFit

MOVIELENS = Path.home() / ".cache" / "terafactor-data" / "ml-1m"
TEST_SHARE = 0.25
MOST_CYCLES = 30
USERS_FOR_PENALTY = 6_000
"""Users that penalties are compared on: as many as in a small table."""

Curve = dict[str, list[float]]


@dataclass(frozen=True)
class Ratings:
    """A set of ratings and how it is split."""

    name: str
    splits: Callable[[], Iterator[tuple[RatingTable, RatingTable]]]


def tables(size: Size) -> list[Ratings]:
    """Return synthetic ratings of three sizes, and the real ones available."""
    n_splits = size.n_splits if size.all_splits else 1
    found = [
        Ratings(f"synthetic {shape.name}", _splits(lambda shape=shape: synthetic(shape), n_splits))
        for shape in size.ratings
    ]
    movielens = size.movielens or (MOVIELENS if MOVIELENS.exists() and size.name != "tiny" else None)
    if movielens is not None:
        found.append(Ratings(f"MovieLens {movielens.name}", _splits(lambda: read_movielens(movielens), size.n_splits)))
    if size.netflix is not None:
        folder = size.netflix
        found.append(Ratings("Netflix", lambda: iter([split_probe(read_netflix(folder), folder)])))
    return found


def _splits(read: Callable[[], RatingTable], n_splits: int) -> Callable[[], Iterator[tuple[RatingTable, RatingTable]]]:
    def splits() -> Iterator[tuple[RatingTable, RatingTable]]:
        table = read()
        for seed in range(n_splits):
            yield split_randomly(table, TEST_SHARE, seed)

    return splits


def synthetic(shape: RatingsShape) -> RatingTable:
    """Return a table with noise close to the error of the best methods on real ratings."""
    rank = 10 if shape.n_items > 500 else 3
    users, items, values = make_ratings(
        shape.n_users, shape.n_items, shape.n_ratings, n_components=rank, noise=0.8, seed=0
    )
    return RatingTable.of(users, items, np.clip(values, 0.5, 5.5))


def read_movielens(folder: Path) -> RatingTable:
    """Return the ratings in a folder of MovieLens."""
    return read_ratings(folder / "ratings.dat")


def with_coordinate_descent(
    train: RatingTable, test: RatingTable, penalty: float, size: Size, n_cycles: int = MOST_CYCLES
) -> Curve:
    """Return the curve of the baseline, up to three consecutive cycles that gain less than 0.02 %."""
    biases = Biases.of(train)
    centered = RatingTable(train.users, train.items, biases.remove(train), train.user_ids, train.item_ids)
    left = biases.remove(test)
    found: Curve = {"seconds": [], "epochs": [], "rmse": []}
    matrix, clock = centered.as_matrix(), [0.0, 0.0]

    def note(users: np.ndarray, items: np.ndarray) -> bool:
        now = time.process_time()
        found["seconds"].append(now - clock[0] - clock[1])
        found["epochs"].append(len(found["epochs"]) + 1)
        found["rmse"].append(rmse(products(users, items, test), left))
        clock[1] += time.process_time() - now
        errors = found["rmse"]
        return len(errors) > 3 and errors[-4] / errors[-1] < 1.0002

    clock[0] = time.process_time()
    coordinate_descent(matrix, size.rating_components, penalty, n_cycles, note)
    return found


def products(users: np.ndarray, items: np.ndarray, test: RatingTable) -> np.ndarray:
    """Return code . factors for each test rating; one factor at a time, to save memory."""
    total = np.zeros(len(test), np.float32)
    for factor in range(len(users)):
        total += users[factor, test.users] * items[factor, test.items]
    return total


class SparseRecorder(CpuRecorder):
    """Records at 1, 2, 5, 10, 20, 30, 50, 75 % of the first pass, then four times per pass."""

    EARLY = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75)

    def _is_due(self, snapshot: Snapshot) -> bool:
        passed = snapshot.batches_done / snapshot.batches_per_epoch
        early = any(abs(passed - mark) < 0.5 / snapshot.batches_per_epoch for mark in self.EARLY)
        return early or (passed > 1 and (4 * snapshot.batches_done) % snapshot.batches_per_epoch == 0) or passed == 1


def with_paper_method(train: RatingTable, test: RatingTable, alpha: float, size: Size, **changes: Any) -> Curve:
    """Return the curve of Algorithm 1; as in the paper, a user is predicted by the code of the last step."""
    left = Biases.of(train).remove(test)

    def error(learner: RunningFit) -> float:
        return rmse(products(learner.last_codes.T, np.asarray(learner.atoms()), test), left)  # type: ignore[attr-defined]

    estimator = MatrixCompletion(
        size.rating_components, statistics="masked", alpha=alpha, codes="last", clip=False, random_state=0,
        n_threads=1, **({"n_epochs": size.rating_epochs} | changes),
    )  # fmt: skip
    return _recorded(estimator, train, SparseRecorder(error))


def with_today_method(train: RatingTable, test: RatingTable, size: Size, **changes: Any) -> Curve:
    """Return the curve of our default; every point includes the time of the final user codes."""
    estimator = MatrixCompletion(
        size.rating_components, clip=False, random_state=0, n_threads=1,
        **({"n_epochs": size.rating_epochs} | changes),
    )  # fmt: skip
    recorder = CpuRecorder(estimator._task().objective(HeldOut(train, test)))
    found = _recorded(estimator, train, recorder)
    started = time.process_time()
    estimator.transform(train)
    coding = time.process_time() - started
    return found | {"seconds": [seconds + coding for seconds in found["seconds"]]}


def _recorded(estimator: MatrixCompletion, train: RatingTable, recorder: CpuRecorder) -> Curve:
    recorded(estimator, train, recorder)
    return {
        "seconds": recorder.cpu_seconds,
        "epochs": [line.n_samples / train.shape[0] for line in recorder.history],
        "rmse": [float(line.objective or np.nan) for line in recorder.history],
    }


def choose(train: RatingTable, grid: np.ndarray, learn: Callable[[RatingTable, RatingTable, float], Curve]) -> float:
    """Return the penalty with the lowest error on held-out ratings of some users."""
    some = train.take(train.users < USERS_FOR_PENALTY)
    inner, held_out = split_randomly(some, 0.33, seed=1)
    errors = [learn(inner, held_out, penalty)["rmse"][-1] for penalty in grid]
    return float(grid[int(np.nanargmin(errors))])


def converged(curve: Curve) -> float:
    """Return the seconds after which the error is within 0.1 % of the last."""
    return next(
        seconds
        for seconds, error in zip(curve["seconds"], curve["rmse"], strict=True)
        if error <= 1.001 * curve["rmse"][-1]
    )


def warm_up(size: Size) -> None:
    """Compile kernels, untimed."""
    shape = RatingsShape("warm-up", 200, 60, 3_000)
    train, test = split_randomly(synthetic(shape), TEST_SHARE, 0)
    with_coordinate_descent(train, test, 0.1, size, n_cycles=1)
    for projection in ("masked", "exact"):
        with_paper_method(train, test, 1.0, size, n_epochs=1, projection=projection)
    with_today_method(train, test, size, n_epochs=1)
