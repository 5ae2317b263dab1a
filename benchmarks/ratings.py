"""Bars of matrix completion. ``python -m benchmarks.get_data`` fetches MovieLens-1M."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.get_data import FOLDER
from benchmarks.harness import Bar, Result, Skipped, best_times
from benchmarks.results import OUTPUT, load
from terafactor import MatrixCompletion, MatrixCompletionCV, RatingTable
from terafactor.datasets import make_ratings
from terafactor.ratings import read_ratings, split_randomly
from terafactor.ratings.evaluation.metrics import rmse
from terafactor.ratings.table.ids import Ids

THREADS = 2
TARGET = 0.857
MOVIELENS = FOLDER / "ml-1m" / "ratings.npz"
LIKE_10M = {"n_users": 69_878, "n_items": 10_677, "n_ratings": 10_000_000, "n_components": 10, "noise": 0.9}
LIKE_NETFLIX = {"n_users": 480_189, "n_items": 17_770, "n_ratings": 100_000_000, "n_components": 10, "noise": 0.9}
NETFLIX_PASSES = (1, 2, 4, 8)
COLUMNS = ("users", "items", "ratings")


def movielens() -> RatingTable:
    """Return all ratings of MovieLens-1M."""
    return read_ratings(MOVIELENS)


def needs_movielens(benchmark: Callable[[bool], Iterator[Result]]) -> Callable[[bool], Iterator[Result]]:
    """Skip a benchmark if its data is missing."""

    def run(quick: bool) -> Iterator[Result]:
        if not MOVIELENS.is_file():
            yield Skipped(benchmark.__name__, f"{MOVIELENS} is missing: python -m benchmarks.get_data")
            return
        yield from benchmark(quick)

    return run


@needs_movielens
def paper(quick: bool) -> Iterator[Result]:
    """1: the paper's method, alpha by cross-validation on the training part."""
    base = MatrixCompletion(30, statistics="masked", random_state=0, n_threads=THREADS)
    errors: dict[str, float | str] = {}
    for seed in range(3):
        known, held_out = split_randomly(movielens(), 0.25, seed)
        if seed == 0 or not quick:
            search = MatrixCompletionCV(base.set_params(n_epochs=2), n_splits=1 if quick else 3).fit(known)
            alpha = search.alpha_
        model = base.set_params(alpha=alpha, n_epochs=10).fit(known)
        errors[f"alpha {alpha:.3g}, seed {seed}"] = -model.score(held_out)
        base.set_params(alpha=None)
    yield Bar("1 RMSE of the paper's method", float(np.mean(list(errors.values()))), 0.869, unit="", details=errors)


@needs_movielens
def accuracy(quick: bool) -> Iterator[Result]:
    """2: the default parameters."""
    errors: dict[str, float | str] = {}
    for seed in range(3):
        known, held_out = split_randomly(movielens(), 0.25, seed)
        model = MatrixCompletion(30, random_state=seed, n_threads=THREADS).fit(known)
        errors[f"seed {seed}"] = -model.score(held_out)
    yield Bar("2 RMSE of the default", float(np.mean(list(errors.values()))), 0.8525, unit="", details=errors)


def as_coo(table: RatingTable) -> Any:
    return sparse.coo_array((table.values, (table.users, table.items)), shape=table.shape)


class Ours:
    """Contestant that fits the default for a number of passes."""

    def __init__(self, known: RatingTable, held_out: RatingTable) -> None:
        self.X, self.held_out = as_coo(known), held_out

    def fit(self, n_epochs: float) -> Any:
        return MatrixCompletion(30, random_state=0, n_threads=THREADS, n_epochs=n_epochs).fit(self.X)

    def error(self, n_epochs: float) -> float:
        return self.error_of(self.fit(n_epochs))

    def error_of(self, model: Any) -> float:
        return -model.score(self.held_out)


class Cmfrec:
    """Contestant that fits cmfrec: ALS with conjugate gradients, ridge scaled by counts."""

    def __init__(self, known: RatingTable, held_out: RatingTable) -> None:
        self.X = sparse.coo_matrix(as_coo(known))
        self.held_out, self.low, self.high = held_out, known.values.min(), known.values.max()

    def fit(self, n_epochs: float) -> Any:
        from cmfrec import CMF

        model = CMF(
            k=30, lambda_=0.08, scale_lam=True, method="als", use_cg=True, niter=int(n_epochs), nthreads=THREADS,
            use_float=True, random_state=0, verbose=False,
        )  # fmt: skip
        return model.fit(self.X)

    def error(self, n_epochs: float) -> float:
        return self.error_of(self.fit(n_epochs))

    def error_of(self, model: Any) -> float:
        predicted = model.predict(user=self.held_out.users, item=self.held_out.items)
        return rmse(np.clip(predicted, self.low, self.high), self.held_out.values)


def passes_to(contestant: Ours | Cmfrec, target: float, most: int) -> int | None:
    """Return the fewest passes that reach an error of at most ``target``, by bisection: the error falls with passes."""
    low, high = 0, most
    if contestant.error(most) > target:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if contestant.error(middle) <= target else (middle, high)
    return high


@needs_movielens
def speed(quick: bool) -> Iterator[Result]:
    """3: time of a whole fit that reaches a test RMSE of 0.857, from a sparse matrix, over that of cmfrec."""
    if find_spec("cmfrec") is None:
        yield Skipped("3 time to RMSE 0.857", "cmfrec is not installed")
        return
    name, ratios, details = "3 time to RMSE 0.857 over that of cmfrec, mean of splits", [], {}
    for seed in range(1 if quick else 3):
        parts = split_randomly(movielens(), 0.25, seed)
        result = race(name, Ours(*parts), Cmfrec(*parts), TARGET, quick)
        if isinstance(result, Skipped):
            yield result
            return
        ratios.append(result.figure)
        details |= {f"{key}, split {seed}": value for key, value in result.details.items()}
    yield Bar(name, float(np.mean(ratios)), 0.2, details=details)


def race(name: str, ours: Ours, theirs: Cmfrec, target: float | None, quick: bool, most: int = 20) -> Result:
    """Return the ratio of times to a common target, or without one, to within 0.1 % of the final error of each."""
    goals = [target, target]
    details: dict[str, float | str] = {}
    if target is None:
        ends = {"ours": ours.error(8), "cmfrec": theirs.error(10)}
        goals = [1.001 * end for end in ends.values()]
        details |= {f"final RMSE of {who}": end for who, end in ends.items()}
    passes = [passes_to(contestant, goal, most) for contestant, goal in zip((ours, theirs), goals, strict=True)]
    if None in passes:
        return Skipped(name, f"target not reached within {most} passes: {passes}")
    times = best_times(
        {"ours s": lambda: ours.fit(passes[0]), "cmfrec s": lambda: theirs.fit(passes[1])}, repeats=2 if quick else 3
    )
    details |= {"our passes": float(passes[0]), "their iterations": float(passes[1]), **times}
    return Bar(name, times["ours s"] / times["cmfrec s"], 0.2, details=details)


def large(quick: bool) -> Iterator[Result]:
    """4: as many ratings as MovieLens-10M has, each method to within 0.1 % of its final error."""
    if find_spec("cmfrec") is None:
        yield Skipped("4 time to convergence at the size of MovieLens-10M", "cmfrec is not installed")
        return
    size = LIKE_10M | ({"n_users": 7_000, "n_ratings": 1_000_000} if quick else {})
    known, held_out = split_randomly(RatingTable.of(*make_ratings(**size)), 0.1, 0)
    ours, theirs = Ours(known, held_out), Cmfrec(known, held_out)
    result = race("4 time to convergence over that of cmfrec, 1e7 ratings", ours, theirs, None, True, most=10)
    yield result
    if isinstance(result, Bar):
        final = [float(result.details[f"final RMSE of {who}"]) for who in ("ours", "cmfrec")]
        yield Bar("4 final RMSE over that of cmfrec", final[0] / final[1], 1.0)


def netflix(quick: bool) -> Iterator[Result]:
    """5: as many ratings as the Netflix Prize has: memory, time per pass, time to convergence."""
    if quick:
        yield Skipped("5 as many ratings as the Netflix Prize", "takes minutes: run it without --quick")
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, column in zip(COLUMNS, make_ratings(**LIKE_NETFLIX), strict=True):
            np.save(Path(folder) / name, column)
        yield from race_like_netflix(folder)


def race_like_netflix(folder: str) -> Iterator[Result]:
    """Yield the bars of ratings in a folder; each contestant runs in a separate process, for its memory."""
    ours = run_separately("ours", folder)
    slope = np.polyfit(ours["passes"], ours["seconds"], 1)[0]
    details: dict[str, float | str] = {"seconds per pass": float(slope)}
    yield Bar("5 peak memory with 1e8 ratings", ours["GB"], 8, unit="GB", details=details)
    if find_spec("cmfrec") is None:
        yield Skipped("5 time to convergence over that of cmfrec", "cmfrec is not installed")
        return
    theirs = run_separately("cmfrec", folder)
    at_10m = load("ratings.large", OUTPUT / "bars")
    bound = 0.2 if at_10m is None else at_10m["result"][0]["figure"]
    ends = {"ours": seconds_to_end(ours), "cmfrec": seconds_to_end(theirs)}
    details = {f"{who} s": seconds for who, seconds in ends.items()}
    details |= {
        "RMSE of ours": ours["errors"][-1],
        "RMSE of cmfrec": theirs["errors"][-1],
        "GB of cmfrec": theirs["GB"],
    }
    name = "5 time to convergence over that of cmfrec, 1e8 ratings, against bar 4"
    yield Bar(name, ends["ours"] / ends["cmfrec"], bound, details=details)


def run_separately(who: str, folder: str) -> dict[str, Any]:
    """Run :func:`learn_like_netflix` in a separate process; return what it prints."""
    program = f"from benchmarks.ratings import learn_like_netflix; learn_like_netflix({who!r}, {folder!r})"
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def learn_like_netflix(who: str, folder: str) -> None:
    """Print as JSON the peak memory, and seconds and errors of fits of a growing number of passes."""
    users, items, ratings = (np.load(Path(folder) / f"{name}.npy") for name in COLUMNS)
    ids = (Ids(np.arange(LIKE_NETFLIX["n_users"])), Ids(np.arange(LIKE_NETFLIX["n_items"])))
    known, held_out = split_randomly(RatingTable(users, items, ratings, *ids), 0.01, 0)
    del users, items, ratings
    few = known.take(known.users < 1000)
    contestant: Ours | Cmfrec = Cmfrec(known, held_out) if who == "cmfrec" else Ours(known, held_out)
    type(contestant)(few, few).error(1)  # compiles
    seconds, errors = [], []
    for n_passes in NETFLIX_PASSES:
        started = time.perf_counter()
        model = contestant.fit(n_passes)
        seconds.append(time.perf_counter() - started)
        errors.append(contestant.error_of(model))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({"GB": peak, "passes": NETFLIX_PASSES, "seconds": seconds, "errors": errors}))


def seconds_to_end(facts: dict[str, Any]) -> float:
    """Return the seconds to within 0.1 % of the last error."""
    pairs = zip(facts["seconds"], facts["errors"], strict=True)
    return next(seconds for seconds, error in pairs if error <= 1.001 * facts["errors"][-1])


@needs_movielens
def recommend(quick: bool) -> Iterator[Result]:
    """6: the ten best unseen items of every user, over the time of implicit with the same factors."""
    if find_spec("implicit") is None:
        yield Skipped("6 recommendations over those of implicit", "implicit is not installed")
        return
    from implicit.cpu.topk import topk

    table = movielens()
    model = MatrixCompletion(30, random_state=0, n_threads=THREADS, clip=False, n_epochs=3).fit(table)
    seen = sparse.csr_matrix(table.as_matrix())
    seen.sort_indices()
    users, items = np.ascontiguousarray(model.user_factors_), np.ascontiguousarray(model.components_.T)

    def theirs() -> Any:
        return topk(items, users, 10, filter_query_items=seen, num_threads=THREADS)

    same = np.mean(model.recommend(n=10)[0] == theirs()[0])
    times = best_times({"ours s": lambda: model.recommend(n=10), "implicit s": theirs}, repeats=3 if quick else 7)
    ratio = times["ours s"] / times["implicit s"]
    yield Bar("6 top 10 of all users over implicit", ratio, 1.0, details={**times, "same places": float(same)})
    yield Bar("6 places with the same item", float(same), 0.999, at_most=False, unit="")


def reading(quick: bool) -> Iterator[Result]:
    """7: reading ratings.csv, over polars alone reading the same columns."""
    import polars

    n_lines = 1_000_000 if quick else 10_000_000
    users, items, _ = make_ratings(int(n_lines / 140), 10_677, int(1.05 * n_lines), n_components=1)
    frame = polars.DataFrame({"userId": users + 1, "movieId": items + 1})[:n_lines]
    random = np.random.default_rng(0)
    frame = frame.with_columns(
        rating=random.integers(1, 11, len(frame)) / 2, timestamp=random.integers(8e8, 1.6e9, len(frame))
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        frame.write_csv(path)
        times = best_times(
            {"ours s": lambda: read_ratings(path), "polars s": lambda: polars.read_csv(path)}, repeats=2 if quick else 4
        )
    ratio = times["ours s"] / times["polars s"]
    yield Bar(f"7 reading {len(frame):,} lines over polars", ratio, 2.0, details=times)


BENCHMARKS = {
    "paper": paper,
    "accuracy": accuracy,
    "speed": speed,
    "large": large,
    "netflix": netflix,
    "recommend": recommend,
    "reading": reading,
}
