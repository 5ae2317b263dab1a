"""Read randomly changed files with every loader: ``python -m tests.fuzz.run 120``, 120 seconds per loader.

A changed file must load, or be refused with a TerafactorError, within seconds and a gigabyte of memory. Each loader
works in a process of its own, because some damages crash readers written in C; it is started again after a crash. A
finding names the seed of the changes: ``python -m tests.fuzz.run --loader npz --seed 17`` repeats it, and
``--keep folder`` saves the files.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.loaders import LOADERS, Loader
from tests.fuzz.mutations import mutated

from terafactor._memory import LIMIT_VARIABLE
from terafactor.errors import TerafactorError

ROOT = Path(__file__).parents[2]
"""Folder in which Python finds this module."""

MAX_SECONDS = 5
"""CPU time of the longest allowed read."""

HANG_SECONDS = 30
"""A read that takes longer by the clock hangs."""

MAX_BYTES = 2**30
"""Memory that reading a small file may take; half of it is what loaders are allowed to use."""

REPAIRED = 0.75
"""Share of the tries after which checksums are made right."""

KNOWN = re.compile(r"(hang|crash -11) at h5py/\S+\.py:\d+|costly HDF5 string|allocation at polars/\S+\.py:\d+")
"""Findings that are counted, but no failures: on some damaged heaps and headers the HDF5 library loops forever or
crashes, and it allocates as much as a string claims, up to 4 GB, before it looks whether the file is as long. polars
ends the process if a damaged page of a Parquet file claims more values than fit in memory.
"""

FAILED_ALLOCATION = re.compile(r"memory allocation of \d+ bytes failed")
"""What a library in Rust writes before it ends the process."""

COSTLY_STRING = re.compile("past end of allocation|bad heap index")
"""Part of the error of HDF5 after it allocated the memory for a string that claims too much."""

START_SECONDS = 120
"""Time to import packages and write the samples."""


@dataclass
class Outcome:
    """What became of the tries with a loader."""

    tries: int = 0
    loaded: int = 0
    known: int = 0
    """Findings that are known, and those of other packages."""

    findings: dict[str, str] = field(default_factory=dict)
    """Descriptions of distinct findings by what went wrong; the first of each kind is described."""

    def add(self, kind: str, text: str) -> None:
        """Add a finding."""
        if KNOWN.fullmatch(kind):
            self.known += 1
        else:
            self.findings.setdefault(kind, text)


class Tries:
    """Tries of a loader on samples in a folder.

    Parameters
    ----------
    name : str
        Name of the loader.
    folder : Path
        An empty folder.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.loader: Loader = LOADERS[name]
        with quiet():
            self.loader.make(folder)
        self.samples = sorted(folder.iterdir())
        self.contents = {
            sample: {path: path.read_bytes() for path in sorted([sample, *sample.rglob("*")]) if path.is_file()}
            for sample in self.samples
        }
        self._check_samples()

    def _check_samples(self) -> None:
        """Read the samples as they are, which also compiles kernels; those named so are refused for what they hold."""
        for sample in self.samples:
            if sample.name.startswith("refused"):
                continue
            with quiet():
                self.loader.read(sample)

    def change(self, seed: int) -> Path:
        """Change a sample and return it."""
        chance = random.Random(f"{self.name} {seed}")
        sample = chance.choice(self.samples)
        contents = self.contents[sample]
        for _ in range(chance.choice([1, 1, 1, 2])):
            path = chance.choice(list(contents))
            other = contents[chance.choice(list(contents))]
            if len(contents) > 1 and chance.random() < 0.03:
                path.unlink(missing_ok=True)
                continue
            with quiet():  # of archives that hold a name twice
                path.write_bytes(mutated(contents[path], chance, other))
        if chance.random() < REPAIRED:
            with suppress(Exception):  # too damaged to be repaired
                self.loader.repair(sample)
        return sample

    def restore(self, sample: Path) -> None:
        """Write a sample as it was."""
        expected = self.contents[sample]
        if sample.is_dir():
            for path in [path for path in sample.rglob("*") if not path.is_dir() and path not in expected]:
                path.unlink()
        for path, content in expected.items():
            if not path.is_file() or path.read_bytes() != content:
                path.write_bytes(content)

    def finding(self, sample: Path) -> tuple[bool, BaseException | None]:
        """Read a sample; return whether it loaded, and what went wrong."""
        started, peak, refusal = time.process_time(), _peak_memory(), None
        try:
            with quiet():
                self.loader.read(sample)
        except TerafactorError as error:
            refusal = error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also the panics of polars
            return False, error
        seconds, grown = time.process_time() - started, _peak_memory() - peak
        cost: Exception | None = None
        if seconds > MAX_SECONDS:
            cost = TimeoutError(f"reading took {seconds:.0f} seconds of CPU time")
        elif grown > MAX_BYTES:
            cost = MemoryError("reading took more than a gigabyte")
        if cost is not None:
            cost.__cause__ = refusal
        return refusal is None, cost


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings and the log."""
    logger = logging.getLogger("terafactor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def kind_of(error: BaseException) -> str:
    """Return what went wrong and where, the same for all findings with one cause."""
    if COSTLY_STRING.search(str(error.__cause__)):
        return "costly HDF5 string"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/terafactor/" in frame.filename]
    last = traceback.extract_tb(error.__traceback__)[-1:]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in (*frames[-1:], *last)]
    return f"{type(error).__name__} at {' > '.join(dict.fromkeys(places))}"


def in_process(name: str, folder: Path, seeds: range) -> Outcome:
    """Try some seeds in this process."""
    tries, outcome = Tries(name, folder), Outcome()
    for seed in seeds:
        sample = tries.change(seed)
        loaded, error = tries.finding(sample)
        outcome.tries, outcome.loaded = outcome.tries + 1, outcome.loaded + loaded
        if error is not None:
            outcome.add(kind_of(error), f"{name}, seed {seed}, {sample.name}: {error!r}")
        tries.restore(sample)
    return outcome


def work(name: str, folder: Path, seed: int, seconds: float, report: Any, keep: Path | None) -> None:
    """Try seeds for some time; write the number of each to the report before it is tried, and what was found.

    A read that hangs ends the process, with a traceback.
    """
    tries = Tries(name, folder)
    found: set[str] = set()
    end, first = time.monotonic() + seconds, seed
    while seed == first or time.monotonic() < end:
        print(json.dumps({"seed": seed}), file=report)
        sample = tries.change(seed)
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        loaded, error = tries.finding(sample)
        faulthandler.cancel_dump_traceback_later()
        if error is not None and kind_of(error) not in found:
            found.add(kind_of(error))
            line = {"kind": kind_of(error), "text": f"{name}, seed {seed}, {sample.name}: {error!r}"[:2000]}
            print(json.dumps(line), file=report)
            save(sample, keep, f"{name}-{seed}")
        elif loaded:
            print(json.dumps({"loaded": seed}), file=report)
        tries.restore(sample)
        seed += 1


def save(sample: Path, keep: Path | None, name: str) -> None:
    """Copy a changed sample."""
    if keep is not None:
        target = keep / name / sample.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(sample, target) if sample.is_dir() else shutil.copy(sample, target)


def campaign(name: str, seconds: float, seed: int, keep: Path | None = None) -> Outcome:
    """Try a loader for some time in processes of its own."""
    outcome, end = Outcome(), time.monotonic() + seconds
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as place:
            seed = _one_process(name, Path(place), seed, end - time.monotonic(), outcome, keep)
    return outcome


def _one_process(name: str, place: Path, seed: int, seconds: float, outcome: Outcome, keep: Path | None) -> int:
    """Run a process until it ends or crashes; add what it reports to an outcome, and return the next seed."""
    report, errors, samples = place / "report", place / "errors", place / "samples"
    samples.mkdir()
    command = [sys.executable, "-m", "tests.fuzz.run", str(seconds), "--loader", name, "--seed", str(seed)]
    command += ["--work", str(samples), "--report", str(report), *(["--keep", str(keep.absolute())] if keep else [])]
    environment = os.environ | {LIMIT_VARIABLE: str(MAX_BYTES // 2), "OPENBLAS_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}
    with errors.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=ROOT)
        try:
            status = process.wait(seconds + START_SECONDS + 2 * HANG_SECONDS)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            process.kill()
            process.wait()
    lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    seeds = [line["seed"] for line in lines if "seed" in line]
    stderr = errors.read_text(errors="replace")
    if not seeds:
        raise RuntimeError(f"the samples of {name} cannot be read: {stderr[-3000:]}")
    outcome.tries += len(seeds)
    outcome.loaded += sum("loaded" in line for line in lines)
    for line in lines:
        if "kind" in line:
            outcome.add(line["kind"], line["text"])
    if status != 0:
        outcome.add(_crash(status, stderr), f"{name}, seed {seeds[-1]}: status {status}: {stderr[-1500:]}")
        for sample in samples.iterdir() if keep else ():
            save(sample, keep, f"{name}-{seeds[-1]}")
    return seeds[-1] + 1


def _crash(status: int, stderr: str) -> str:
    """Return what went wrong in a process that died, from what it wrote."""
    places = re.findall(r'File "([^"]+)", line (\d+)', stderr)
    where = " > ".join(f"{file.rpartition('/site-packages/')[2]}:{line}" for file, line in places[:1])
    what = "hang" if "Timeout" in stderr else "allocation" if FAILED_ALLOCATION.search(stderr) else f"crash {status}"
    return f"{what} at {where}"


def repeat(name: str, seed: int, keep: Path | None) -> None:
    """Show what happens with one seed."""
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as place:
        tries = Tries(name, Path(place))
        sample = tries.change(seed)
        save(sample, keep, f"{name}-{seed}")
        tries.loader.read(sample)
        print(f"{sample.name} was loaded")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, nargs="?", help="seconds per loader; none repeats one seed")
    parser.add_argument("--loader", choices=list(LOADERS), action="append", help="by default all")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to save files with findings")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    seed = random.SystemRandom().randrange(2**40) if wanted.seed is None else wanted.seed
    if wanted.work:
        faulthandler.enable()
        with wanted.report.open("w", buffering=1) as report:
            work(wanted.loader[0], wanted.work, seed, wanted.seconds, report, wanted.keep)
    elif wanted.seconds is None:
        repeat(wanted.loader[0], seed, wanted.keep)
    else:
        sys.exit(_campaigns(wanted.loader or list(LOADERS), wanted.seconds, seed, wanted.keep))


def _campaigns(names: list[str], seconds: float, seed: int, keep: Path | None) -> int:
    """Try loaders in turn, print the counts, and return the status of the program."""
    total, failed = 0, False
    for name in names:
        outcome = campaign(name, seconds, seed, keep)
        print(
            f"{name:14s} {outcome.tries:9,d} tries {outcome.loaded:9,d} loaded {outcome.known:3d} known "
            f"{len(outcome.findings):3d} findings"
        )
        for kind, text in outcome.findings.items():
            print(f"    {kind}\n        {text}")
        sys.stdout.flush()
        total, failed = total + outcome.tries, failed or bool(outcome.findings)
    print(f"{total:,} tries from seed {seed}: {'see the findings' if failed else 'each loaded or was refused'}")
    return int(failed)


if __name__ == "__main__":
    main()
