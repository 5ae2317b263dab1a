"""Kill runs, or damage files, at random: ``python tests/runs/soak.py 200``, ``soak.py --damages 10000 --seed 1``.

Kills: a process that has everything loaded forks one child per try; the child starts or resumes a run and is killed
after a random time, sometimes in a chain. Then a last child resumes to the end, and the model must be that of a run
that was never disturbed.

Damages: bytes of models, checkpoints and packed stores are changed, cut, removed, exchanged or appended. Each file must
be refused with a TerafactorError; of checkpoints, the newest undamaged one must load with the same bits.
"""

import argparse
import hashlib
import logging
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import sparse

from terafactor import (
    CheckpointPolicy,
    MaskedDictionaryLearning,
    MatrixCompletion,
    RandomMasks,
    load_model,
    open_source,
    pack,
    train,
)
from terafactor.errors import TerafactorError
from terafactor.runs import RunDirectory
from terafactor.runs.checkpoint import newest

POLICY = CheckpointPolicy(seconds=0.05, steps=12)


def estimator():
    return MaskedDictionaryLearning(
        5, alpha=0.1, penalty="l2", constraint="l1", reduction=RandomMasks(4, "masked", "exact"),
        batch_size=10, n_epochs=8, random_state=0, n_threads=1,
    )  # fmt: skip


def work(X, folder):
    train(estimator(), X, folder, resume=RunDirectory(folder).is_run, holdout=40, checkpoints=POLICY)


def in_child(X, folder):
    """Fork a child that works, and return its number."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(X, folder)
            status = 0
        finally:
            os._exit(status)
    return child


def digest(folder):
    parts = [(folder / "model" / name).read_bytes() for name in ("manifest.json", "arrays.safetensors")]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def soak(n_kills: int, root: Path, seed: int = 0) -> int:
    """Kill until ``n_kills`` have hit a running child; return how many tries that took. Raise when a model differs."""
    chance = random.Random(seed)
    X = np.random.default_rng(0).standard_normal((400, 200)).astype(np.float32)
    work(X, root / "undisturbed")  # loads kernels, too
    started = time.monotonic()
    work(X, root / "timed")
    duration = time.monotonic() - started
    expected, number, hits = digest(root / "undisturbed"), 0, 0
    if digest(root / "timed") != expected:
        raise AssertionError("two undisturbed runs differ")
    while hits < n_kills:
        folder = root / f"run{number}"
        child = in_child(X, folder)
        time.sleep(chance.random() * duration)
        os.kill(child, signal.SIGKILL)
        hits += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        if number % 3 == 2:  # a second kill while it resumes
            child = in_child(X, folder)
            time.sleep(chance.random() * duration)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        status = os.waitstatus_to_exitcode(os.waitpid(in_child(X, folder), 0)[1])
        if status != 0 or digest(folder) != expected:
            raise AssertionError(f"kill {number}: the resumed run left with {status} or has another model: {folder}")
        number += 1
    return number


def all_arrays(model):
    """Return every learned array of a model, by name."""
    return {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray) and name[-1] == "_"}


def read_store(path):
    source = open_source(path)
    return {"rows": source.read(np.arange(source.shape[0]))}


def read_checkpoint(path):
    found = newest(path)
    return {} if found is None else {found[0].name: np.zeros(0), **found[1].state_dict.arrays}


def targets(root: Path):
    """Write models, checkpoints and stores; return the function that reads each, by its path."""
    X = np.random.default_rng(0).standard_normal((48, 40))
    ratings = sparse.csr_array(np.round(np.abs(X)) + (np.abs(X) > 1))
    small = {"n_epochs": 1, "random_state": 0, "n_threads": 1}
    MaskedDictionaryLearning(3, batch_size=8, **small).fit(X).save(root / "dense")
    MaskedDictionaryLearning(3, batch_size=8, reduction=RandomMasks(2, "masked"), **small).fit(X).save(root / "masked")
    MatrixCompletion(3, **small).fit(ratings).save(root / "ratings")
    run = MaskedDictionaryLearning(3, batch_size=8, **small)
    train(run, X, root / "run", checkpoints=CheckpointPolicy(seconds=None, steps=2, keep=3))
    found = {root / name: lambda path: all_arrays(load_model(path)) for name in ("dense", "masked", "ratings")}
    found |= {root / "run" / "checkpoints": read_checkpoint}
    for dtype in ("int16", "float32", "float64"):
        pack(X, root / dtype, block_rows=8, dtype=dtype)
        found[root / dtype] = read_store
    return found


def change(chance: random.Random, content: bytes, other: bytes) -> bytes | None:
    """Return damaged content, or None for a file to remove."""
    damaged, kind = bytearray(content), chance.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return content[: chance.randrange(len(content) + 1)]
    if kind == 2:
        return content + chance.randbytes(chance.randint(1, 9))
    if kind == 3:
        return other
    start = chance.randrange(max(1, len(damaged)))
    if kind == 4:
        return bytes(damaged[:start] + damaged[start + chance.randint(1, 9) :])
    stop = start + (1 if kind == 5 else chance.randint(1, 64))
    fill = bytes([damaged[start] ^ 1 << chance.randrange(8)]) if kind == 5 else chance.choice([b"\0", b"\xff"]) * 64
    damaged[start:stop] = fill[: len(damaged[start:stop])]
    return bytes(damaged)


def same(one, other):
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes() for name in one
    )


def outcome(read, path, expected):
    """Return how reading damaged files ends; raise unless they are refused, or an undamaged checkpoint is found."""
    try:
        found = read(path)
    except TerafactorError:
        if read is read_checkpoint:
            raise
        return "refused"
    if read is not read_checkpoint:
        raise AssertionError("damage went unnoticed")
    age = next(age for age, older in enumerate(expected) if older and same(found, older))
    return "newest" if age == 0 else "earlier"


def earlier(read, path):
    """Return what reading gives now, and after the newest checkpoints are gone."""
    expected = [read(path)]
    while read is read_checkpoint and expected[-1]:
        shutil.rmtree(newest(path)[0])
        expected.append(read(path))
    return expected


def damage(n_damages: int, root: Path, seed: int = 0) -> Counter:
    """Damage a file at a time and read; return the number of outcomes per target. Raise when a damage is silent."""
    logging.getLogger("terafactor").setLevel(logging.ERROR)
    chance, outcomes = random.Random(seed), Counter()
    (root / "copy").mkdir()
    readers = targets(root)
    expected = {}
    for path, read in readers.items():
        shutil.copytree(path, root / "copy" / path.name)
        expected[path] = earlier(read, root / "copy" / path.name)
    files = {path: sorted(file for file in path.rglob("*") if file.is_file()) for path in readers}
    while outcomes.total() < n_damages:
        path = chance.choice(list(readers))
        file = chance.choice(files[path])
        before = file.read_bytes()
        after = change(chance, before, chance.choice(files[path]).read_bytes())
        if after == before:
            continue
        file.unlink() if after is None else file.write_bytes(after)
        try:
            outcomes[path.name, outcome(readers[path], path, expected[path])] += 1
        except Exception as error:
            raise AssertionError(f"{file}, damage {outcomes.total()} of seed {seed}: {error!r}") from error
        file.write_bytes(before)
    for path, read in readers.items():
        if not same(read(path), expected[path][0]):
            raise AssertionError(f"{path} differs after its files were restored")
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int, nargs="?", default=200)
    parser.add_argument("--damages", type=int, default=0, help="damage files instead of killing runs")
    parser.add_argument("--seed", type=int, default=time.time_ns())
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if wanted.damages:
            outcomes = damage(wanted.damages, Path(place), wanted.seed)
            for (name, how), number in sorted(outcomes.items()):
                print(f"{name:12s} {how:20s} {number:6,d}")
            print(f"{wanted.damages} damages: each was refused, and an undamaged checkpoint was always found")
        else:
            tries = soak(wanted.kills, Path(place), wanted.seed)
            print(
                f"{wanted.kills} kills of a run in progress, in {tries} tries: each resume gave the undisturbed model"
            )


if __name__ == "__main__":
    main()
