"""The history of a run, one evaluation per line of ``metrics.jsonl``."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from pathlib import Path

from terafactor._durable import flush, naming, no_follow, write_durably
from terafactor.errors import DataError
from terafactor.solver.callbacks import Evaluation

NAMES = [field.name for field in fields(Evaluation)]


class Metrics:
    """The evaluations of a run, in memory and in a file that grows by a line at a time.

    Parameters
    ----------
    path : Path
        The file; made with the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history: list[Evaluation] = []

    def add(self, evaluation: Evaluation) -> None:
        """Append an evaluation."""
        self.history.append(evaluation)
        with naming(self.path), open(self.path, "ab", opener=no_follow) as file:
            file.write(to_line(evaluation))

    def make_durable(self) -> None:
        """Wait until the lines are on the disk."""
        if self.path.exists():
            with naming(self.path), open(self.path, "ab", opener=no_follow) as file:
                flush(file.fileno())

    def cut_back(self, step: int) -> None:
        """Take up the file of an interrupted run, without the lines after ``step`` and a half-written last one."""
        self.history = [evaluation for evaluation in read_metrics(self.path) if evaluation.step <= step]
        write_durably(self.path, b"".join(map(to_line, self.history)))


def to_line(evaluation: Evaluation) -> bytes:
    """Return an evaluation as a line of JSON; what is not a finite number is null, which all readers know."""
    values = {
        name: value if not isinstance(value, float) or math.isfinite(value) else None
        for name, value in asdict(evaluation).items()
    }
    return (json.dumps(values) + "\n").encode()


def read_metrics(path: Path) -> list[Evaluation]:
    """Return the evaluations in a file, none if there is no file. A half-written last line is passed over."""
    if not path.is_file():
        return []
    with naming(path, "read"):
        lines = path.read_bytes().split(b"\n")
    evaluations = []
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last end of line is half-written
        evaluations.append(_from_line(line, f"{path}, line {number}"))
    return evaluations


def _from_line(line: bytes, where: str) -> Evaluation:
    try:
        values = json.loads(line)
        known = {name: values[name] for name in NAMES}
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{where} is not an evaluation: {line[:80]!r}") from error
    for name in ("surrogate", "sparsity", "seconds"):
        known[name] = math.nan if known[name] is None else float(known[name])
    return Evaluation(**known)
