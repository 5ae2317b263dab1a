"""A name of a module constant has one value in the package."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "terafactor"

ROLES = {
    "EXAMPLE", "FIT_EXAMPLE", "FORMAT", "KIND", "MODULES", "SCHEMA", "SECTION", "TRANSFORM_EXAMPLE",
}  # fmt: skip
"""Constants that several modules define because a caller expects them there."""


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the uppercase names that a module assigns, with the source of their values."""
    for statement in ast.parse(path.read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name(name)], value=value) | ast.AnnAssign(target=ast.Name(name), value=value):
                if name.isupper() and value is not None:
                    yield name, ast.unparse(value)


def test_a_name_has_one_value():
    values = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for name, value in constants(path):
            values[name].add(value)
    assert {name for name, found in values.items() if len(found) > 1} == ROLES
