"""Public docstrings: present, imperative, with the shapes of arrays and an example that the doctests run."""

from __future__ import annotations

import ast
import builtins
import doctest
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import terafactor

HOME = Path(terafactor.__file__).parent
PACKAGES = ["terafactor", *(f"terafactor.{path.parent.name}" for path in sorted(HOME.glob("*/__init__.py")))]
PACKAGES.remove("terafactor.cli")  # its help pages are its documentation
PACKAGES.append("terafactor.errors")
ROOT = Path(__file__).parents[2]
VERBS = {
    "Add", "Apply", "Build", "Call", "Check", "Complete", "Compute", "Convert", "Copy", "Create", "Decrease", "Do",
    "Draw", "Encode", "Estimate", "Evaluate", "Fit", "Learn", "Load", "Log", "Make", "Open", "Plot", "Predict",
    "Project", "Raise", "Read", "Recommend", "Release", "Replace", "Return", "Run", "Send", "Set", "Show", "Solve",
    "Split", "Start", "Store", "Take", "Update", "Use", "Wait", "Write", "Yield",
}  # fmt: skip
"""Verbs that first lines of functions start with; extend the list if necessary."""
SHAPE = r"\((?:\w[\w +*/]*,)+(?: ?\w[\w +*/,]*)?\)|float|shape"
"""A tuple such as (n, k) or (k,), or a remark on scalars."""
ARRAY = r"\b(?:Array|ndarray|NDArray|Indices|Pixels)\b"
ELSEWHERE = r":(?:meth|class|attr|func):|``(?:fit|transform)``"
"""A reference to the docstring that has the shape."""
EXAMPLE_LINE = re.compile(r"^\s*(?:>>>|\.\.\.) (.*)$", re.MULTILINE)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
NOT_SHOWN = {
    "get_params": "scikit-learn",
    "set_params": "scikit-learn",
    "write_viewers": "report(viewers=True) calls it",
}
"""Methods of estimators without an example, and the reason."""


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


def members(owner: type) -> Iterator[tuple[str, Any, Callable[..., Any]]]:
    """Yield name, attribute and function of each public method and property, including those of our base classes."""
    for name in dir(owner):
        home = next((base for base in owner.__mro__ if name in vars(base)), object)
        if name.startswith(("_", "test_")) or not home.__module__.startswith("terafactor"):
            continue
        attribute = vars(home)[name]
        if isinstance(attribute, property):
            function = attribute.fget
        elif isinstance(attribute, functools.cached_property):
            function = attribute.func
        else:
            function = getattr(attribute, "__func__", attribute)
        if inspect.isfunction(function):
            yield name, attribute, inspect.unwrap(function)


def own_doc(value: Any) -> str:
    """Return a docstring, not that of a base class: a class without one would show the example of another."""
    return inspect.cleandoc(vars(value).get("__doc__") or "") if inspect.isclass(value) else inspect.getdoc(value) or ""


def documented() -> Iterator[tuple[str, Any, str]]:
    """Yield the name, the object and the docstring, which methods may inherit, of everything public."""
    for name, value in OBJECTS.items():
        yield name, value, own_doc(value)
        if inspect.isclass(value):
            for method, attribute, function in members(value):
                text = inspect.getdoc(getattr(value, method)) or inspect.getdoc(function) or ""
                yield f"{name}.{method}", attribute, text


DOCUMENTED = list(documented())


def is_imperative(line: str) -> bool:
    return line.split(" ")[0].rstrip(",;:.") in VERBS


def function_of(value: Any) -> Callable[..., Any] | None:
    """Return the function of a method or property; None for a class."""
    for name in ("fget", "func", "__func__"):
        value = getattr(value, name, value)
    return inspect.unwrap(value) if inspect.isfunction(value) else None


def returns_array(function: Callable[..., Any]) -> bool:
    return re.search(ARRAY, str(inspect.signature(function).return_annotation)) is not None


def without_shape(function: Callable[..., Any], text: str) -> list[str]:
    """Return the array parameters that a docstring names without a shape."""
    arrays = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if re.search(ARRAY, str(parameter.annotation))
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
        if not inspect.isclass(value) and not isinstance(value, property | functools.cached_property)
    }
    assert {name: line for name, line in functions.items() if not is_imperative(line)} == {}


def test_array_parameters_have_shapes() -> None:
    missing = {
        name: without_shape(function, text)
        for name, value, text in DOCUMENTED
        if (function := function_of(value)) is not None
    }
    assert {name: parameters for name, parameters in missing.items() if parameters} == {}


def test_returned_arrays_have_shapes() -> None:
    arrays = {
        name: text
        for name, value, text in DOCUMENTED
        if (function := function_of(value)) is not None and returns_array(function)
    }
    assert len(arrays) > 50
    assert [name for name, text in arrays.items() if not re.search(f"{SHAPE}|{ELSEWHERE}", text)] == []


def estimators() -> dict[str, type]:
    return {name: value for name, value in OBJECTS.items() if hasattr(value, "fit") and hasattr(value, "get_params")}


def test_methods_of_estimators_document_every_parameter() -> None:
    missing = {}
    for owner, estimator in estimators().items():
        for method, _, function in members(estimator):
            text = inspect.getdoc(getattr(estimator, method)) or ""
            names = [] if method in NOT_SHOWN else list(inspect.signature(function).parameters)[1:]
            missing[f"{owner}.{method}"] = [
                name for name in names if name != "y" and not re.search(rf"\b{name}\b", text)
            ]
    assert len(missing) > 60
    assert {name: parameters for name, parameters in missing.items() if parameters} == {}


def test_examples_show_every_method_of_an_estimator() -> None:
    """The examples of docstrings and of pages; tests run both."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    blocks = [block for page in pages for block in PYTHON_BLOCK.findall(page.read_text(encoding="utf-8"))]
    code = "\n".join(blocks + [line for _, _, text in DOCUMENTED for line in EXAMPLE_LINE.findall(text)])
    methods = {
        method
        for estimator in estimators().values()
        for method, attribute, _ in members(estimator)
        if inspect.isfunction(attribute) and method not in NOT_SHOWN
    }
    assert {"fit", "label", "recommend", "to_local"} <= methods
    assert [name for name in sorted(methods) if not re.search(rf"(?:\.|\bdef ){name}\(", code)] == []


def test_classes_and_functions_have_examples() -> None:
    """Doctests of the modules run them. One example shows all errors, in the module that defines them."""
    shown = {name: text for name, value, text in DOCUMENTED if name in OBJECTS and not is_error(value)}
    assert [name for name, text in shown.items() if ">>> " not in text or "+SKIP" in text] == []
    assert ">>> " in (terafactor.errors.__doc__ or "")


def test_examples_import_what_they_use() -> None:
    """Doctests see the names of the module, readers do not."""
    needed = {name: unbound_names(text) for name, _, text in DOCUMENTED if ">>> " in text}
    assert {name: names for name, names in needed.items() if names} == {}
    assert unbound_names(">>> np.arange(3)") == {"np"}


def unbound_names(text: str) -> set[str]:
    """Return the names that the example of a docstring uses and does not bind."""
    nodes = list(ast.walk(ast.parse("".join(each.source for each in doctest.DocTestParser().get_examples(text)))))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {
        name.asname or name.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {node.id for node in names} - bound - set(dir(builtins))


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


@pytest.mark.parametrize(
    "line", ["A source.", "Returns the codes.", "Whether it is sparse.", "the codes", "Mean of the codes.", ""]
)
def test_other_first_lines_are_found(line: str) -> None:
    assert not is_imperative(line)


class Documented:
    """A class.

    Examples
    --------
    >>> 1 + 1
    2
    """

    def inherited(self, values: np.ndarray) -> np.ndarray:
        return values


class Undocumented(Documented):
    @functools.cached_property
    def cached(self) -> int:
        return 0


def test_missing_docstrings_and_shapes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Documented, "__module__", "terafactor.somewhere")
    monkeypatch.setattr(Undocumented, "__module__", "terafactor.somewhere")
    assert own_doc(Undocumented) == ""
    assert [name for name, _, _ in members(Undocumented)] == ["cached", "inherited"]
    assert without_shape(Documented.inherited, "Return the values.") == ["values"]
    assert without_shape(Documented.inherited, "Return the number of values.") == ["values"]
    assert without_shape(Documented.inherited, "Return values (n, k).") == []
    assert returns_array(Documented.inherited)
