"""Lines with nothing on them."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLANK = re.compile(rb"\n\s*\n")
"""Lines of white space, from the end of the line before them to their own."""


def read_passing_over_blank_lines(path: Path, parse: Callable[[str | bytes], Any]) -> Any:
    """Return what ``parse`` makes of a file or, where that is None, of the same without blank lines.

    A file without any, as most are, is read once and at full speed. What ``parse`` is given is a pattern, as polars
    takes paths to be, that no other file matches.
    """
    found = parse(glob.escape(str(path)))
    return parse(without_blank_lines(path)) if found is None else found


def without_blank_lines(path: Path) -> bytes:
    """Return the content of a file but for lines of white space."""
    return BLANK.sub(b"\n", b"\n" + path.read_bytes() + b"\n")[1:]
