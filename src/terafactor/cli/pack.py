"""The command that packs, with a progress bar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from terafactor.data import MatrixSource, open_source, pack


def run(source: str, out: Path, **options: Any) -> None:
    """Pack ``source`` into ``out``, showing the rows done and the time left."""
    opened = open_source(source)
    console = Console(stderr=True)
    columns = (TextColumn("packing"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("packing", total=opened.shape[0])
        pack(opened, out, progress=lambda n_rows: bar.advance(task, n_rows), **options)
    console.print(_summary(opened, out), highlight=False, markup=False, soft_wrap=True)


def _summary(source: MatrixSource, out: Path) -> str:
    n_rows, n_features = source.shape
    size = decimal(sum(path.stat().st_size for path in out.rglob("*") if path.is_file()))
    return f"packed {n_rows} rows of {n_features} features into {out} ({size})"
