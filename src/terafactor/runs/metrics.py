"""The history of a run, one evaluation per line of ``metrics.jsonl``."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

from terafactor._durable import flush, no_follow, storage_errors, write_durably
from terafactor.errors import DataError
from terafactor.runs.schema import COUNT, NUMBER, POSITIVE_COUNT, SECONDS, Schema, check_document
from terafactor.solver.callbacks import Evaluation

SCHEMA: Schema = {
    "step": COUNT,
    "n_samples": POSITIVE_COUNT,
    "seconds": SECONDS,
    "bytes_read": COUNT,
    "surrogate": NUMBER.or_none(),
    "objective": NUMBER.or_none(),
    "sparsity": NUMBER.or_none(),
    "memory": COUNT,
    "n_reseeded": COUNT,
}


class Metrics:
    """The evaluations of a run, in memory and in a file.

    Parameters
    ----------
    path : Path
        The file; created with the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history: list[Evaluation] = []

    def add(self, evaluation: Evaluation) -> None:
        """Append an evaluation."""
        self.history.append(evaluation)
        with storage_errors(self.path), open(self.path, "ab", opener=no_follow) as file:
            file.write(to_line(evaluation))

    def make_durable(self) -> None:
        """Wait until the lines are on the disk."""
        with storage_errors(self.path):
            if self.path.exists():
                with open(self.path, "ab", opener=no_follow) as file:
                    flush(file.fileno())

    def truncate(self, step: int) -> None:
        """Load the file of an interrupted run, and remove the lines after ``step`` and an incomplete last line."""
        self.history = [evaluation for evaluation in read_metrics(self.path) if evaluation.step <= step]
        write_durably(self.path, b"".join(map(to_line, self.history)))


def to_line(evaluation: Evaluation) -> bytes:
    """Return an evaluation as a line of JSON; NaN and infinity, which JSON cannot represent, become null."""
    values = {
        name: value if not isinstance(value, float) or math.isfinite(value) else None
        for name, value in asdict(evaluation).items()
    }
    return (json.dumps(values) + "\n").encode()


def read_metrics(path: Path) -> list[Evaluation]:
    """Return the evaluations in a file, none if there is no file. An incomplete last line is ignored."""
    with storage_errors(path, "read"):
        lines = path.read_bytes().split(b"\n") if path.is_file() else []
    return [_from_line(line, f"line {number} of {path}") for number, line in enumerate(lines[:-1], start=1)]


def _from_line(line: bytes, name: str) -> Evaluation:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} is not JSON: {line[:80]!r}") from error
    check_document(values, SCHEMA, name)
    known = {field: values[field] for field in SCHEMA}
    for field in ("surrogate", "sparsity"):
        known[field] = math.nan if known[field] is None else float(known[field])
    return Evaluation(**known)
