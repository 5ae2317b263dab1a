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
            case ast.Assign(targets=[ast.Tuple(names)], value=ast.Tuple(values)):
                pairs = zip(names, values, strict=True)
            case ast.Assign(targets=[name], value=value) | ast.AnnAssign(target=name, value=value):
                pairs = [(name, value)]
            case _:
                continue
        for name, value in pairs:
            if isinstance(name, ast.Name) and name.id.isupper() and value is not None:
                yield name.id, ast.unparse(value)


def test_a_name_has_one_value():
    values = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for name, value in constants(path):
            values[name].add(value)
    assert {name for name, found in values.items() if len(found) > 1} == ROLES
