"""Results of benchmarks as files: numbers with settings, machine, commit and date. Pages come from these alone."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import terafactor
from benchmarks.harness import machine

OUTPUT = Path(__file__).parent / "output"
SOURCES = Path(terafactor.__file__).parent


def measured(
    name: str, settings: dict[str, Any], measure: Callable[[], Any], folder: Path, *, again: bool = False
) -> dict[str, Any]:
    """Return the record on file if code, settings and machine are the same; else measure, and write a new one."""
    path = folder / f"{name}.json"
    here = machine()
    if path.exists() and not again:
        record = json.loads(path.read_text())
        same = all(record["machine"].get(part) == here[part] for part in ("processor", "cores"))
        wanted = json.loads(json.dumps(settings))
        if same and is_current(record) and all(record["settings"].get(key) == value for key, value in wanted.items()):
            return record
    started, clock = time.strftime("%Y-%m-%d %H:%M"), time.perf_counter()
    result = measure()
    record = {"name": name, **code(), "settings": settings, "started": started,
              "seconds": time.perf_counter() - clock, "machine": here, "result": result}  # fmt: skip
    write(record, path)
    return json.loads(path.read_text())


def write(record: dict[str, Any], path: Path) -> None:
    """Write a record with a line for each entry, except that lists of numbers take one line."""
    text = json.dumps(record, indent=1)
    text = re.sub(r"\[[^][{}\"]*\]", lambda numbers: " ".join(numbers[0].split()), text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def load(name: str, folder: Path) -> dict[str, Any] | None:
    """Return a record on file, None when there is none."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


@cache
def code() -> dict[str, str]:
    """Return the commit of the package that is measured, and a digest of its source files.

    The digest decides whether a record is current: commits that leave the sources alone keep it valid. Sources with
    changes that are not committed add their digest to the commit; outside a checkout the version replaces the commit.
    """
    files = sorted(SOURCES.rglob("*.py"))
    digest = hashlib.sha256(b"".join(f"{file.relative_to(SOURCES)}\n".encode() + file.read_bytes() for file in files))
    sources = digest.hexdigest()[:12]
    commit = _git("rev-parse", "--short", "HEAD")
    if not commit or not _git("ls-files", str(SOURCES)):
        return {"commit": f"{version('terafactor')}+{sources}", "sources": sources}
    changed = _git("status", "--porcelain", "--", str(SOURCES))
    return {"commit": f"{commit}+{sources}" if changed else commit, "sources": sources}


def _git(*arguments: str) -> str:
    """Return what git prints, an empty string where there is no git or no repository."""
    try:
        command = ["git", "-C", str(SOURCES), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def is_current(record: dict[str, Any]) -> bool:
    """Return whether a record was measured with the sources as they are now."""
    return record.get("sources") == code()["sources"]


def commit_of(record: dict[str, Any]) -> str:
    """Return the commit that a record was measured at, marked if code has changed since, or is not in the history."""
    commit = record.get("commit", "unknown")
    if is_current(record):
        return commit
    if _git("rev-parse", "HEAD") and not _git("cat-file", "-t", commit.partition("+")[0]):
        sources = record.get("sources", "unknown")
        return f"{commit} (older code that is not in the history of this repository; digest of its sources {sources})"
    return f"{commit} (older code)"
