"""Results of benchmarks as files: numbers with settings, machine and date. The pages are written from these alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import machine

OUTPUT = Path(__file__).parent / "output"


def measured(
    name: str, settings: dict[str, Any], measure: Callable[[], Any], folder: Path, *, again: bool = False
) -> dict[str, Any]:
    """Return the record of a measurement: the one on file if settings and machine are the same, else a new one."""
    path = folder / f"{name}.json"
    here = machine()
    if path.exists() and not again:
        record = json.loads(path.read_text())
        same = all(record["machine"].get(part) == here[part] for part in ("processor", "cores", "terafactor"))
        wanted = json.loads(json.dumps(settings))
        if same and all(record["settings"].get(setting) == value for setting, value in wanted.items()):
            return record
    started, clock = time.strftime("%Y-%m-%d %H:%M"), time.perf_counter()
    result = measure()
    record = {"name": name, "settings": settings, "started": started, "seconds": time.perf_counter() - clock,
              "machine": here, "result": result}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return json.loads(path.read_text())


def load(name: str, folder: Path) -> dict[str, Any] | None:
    """Return a record on file, None when there is none."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
