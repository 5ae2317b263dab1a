"""Public docstrings: present, imperative, with the shapes of arrays and an example that the doctests run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import terafactor

HOME = Path(terafactor.__file__).parent
PACKAGES = ["terafactor", *(f"terafactor.{path.parent.name}" for path in sorted(HOME.glob("*/__init__.py")))]
PACKAGES.remove("terafactor.cli")  # its help pages are its documentation
PACKAGES.append("terafactor.errors")
NOT_VERBS = {"A", "An", "The", "This", "It", "There", "Whether", "Class", "Function", "Method"}
ENDS_IN_S = {"Compress", "Pass", "Process", "Access"}
SHAPE = r"\((?:\w[\w +*/]*,)+(?: ?\w[\w +*/,]*)?\)|float|number|shape"
"""A tuple such as (n, k) or (k,), or a remark on scalars."""


def public_objects() -> dict[str, Any]:
    """Return the classes and functions in ``__all__`` of every package, under the first name of each."""
    found: dict[int, tuple[str, Any]] = {}
    for package in PACKAGES:
        module = import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            found.setdefault(id(value), (f"{package}.{name}", value))
    return dict(sorted(found.values()))


OBJECTS = public_objects()


def own_functions(owner: type) -> Iterator[tuple[str, Any, Callable[..., Any]]]:
    """Yield the name, the attribute and the function of each public method and property that a class defines."""
    for name, attribute in vars(owner).items():
        function = getattr(attribute, "__func__", getattr(attribute, "fget", attribute))
        if not name.startswith(("_", "test_")) and inspect.isfunction(function):
            yield name, attribute, function


def documented() -> Iterator[tuple[str, Any, str]]:
    """Yield the name, the object and the docstring, which methods may inherit, of everything public."""
    for name, value in OBJECTS.items():
        yield name, value, inspect.getdoc(value) or ""
        if inspect.isclass(value):
            for method, attribute, _ in own_functions(value):
                yield f"{name}.{method}", attribute, inspect.getdoc(getattr(value, method)) or ""


DOCUMENTED = list(documented())


def is_imperative(line: str) -> bool:
    first = line.split(" ")[0].rstrip(",;:.")
    return first not in NOT_VERBS and first[:1].isupper() and (first in ENDS_IN_S or not first.endswith("s"))


def without_shape(function: Callable[..., Any], text: str) -> list[str]:
    """Return the array parameters that a docstring names without a shape."""
    arrays = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if re.search(r"\b(Array|ndarray|NDArray)\b", str(parameter.annotation))
    ]
    return [name for name in arrays if not re.search(rf"\b{name}\b[^.]{{0,160}}?(?:{SHAPE})", text, re.DOTALL)]


def test_everything_public_has_a_docstring() -> None:
    assert len(OBJECTS) > 80
    assert [name for name, _, text in DOCUMENTED if not text] == []


def test_first_lines_are_sentences() -> None:
    first_lines = {name: text.split("\n")[0] for name, _, text in DOCUMENTED}
    assert {name: line for name, line in first_lines.items() if not line.endswith(".")} == {}


def test_first_lines_of_functions_are_imperative() -> None:
    """Classes and properties are things: theirs may be noun phrases."""
    functions = {
        name: text.split("\n")[0]
        for name, value, text in DOCUMENTED
        if not inspect.isclass(value) and not isinstance(value, property)
    }
    assert {name: line for name, line in functions.items() if not is_imperative(line)} == {}


def test_array_parameters_have_shapes() -> None:
    missing = {
        name: without_shape(function, text)
        for name, value, text in DOCUMENTED
        if inspect.isfunction(function := inspect.unwrap(getattr(value, "__func__", value)))
    }
    assert {name: parameters for name, parameters in missing.items() if parameters} == {}


def test_classes_and_functions_have_examples() -> None:
    """Doctests of the modules run them. One example shows all errors, in the module that defines them."""
    shown = {name: text for name, value, text in DOCUMENTED if name in OBJECTS and not is_error(value)}
    assert [name for name, text in shown.items() if ">>> " not in text] == []
    assert ">>> " in (terafactor.errors.__doc__ or "")


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


@pytest.mark.parametrize("line", ["A source.", "Returns the codes.", "Whether it is sparse.", "the codes"])
def test_other_first_lines_are_found(line: str) -> None:
    assert not is_imperative(line)
