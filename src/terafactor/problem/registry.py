"""Registry of objects in parameters: how parameters, the command line and model files refer to them by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, TypeVar

from terafactor.errors import ParameterError

Kind = TypeVar("Kind", bound=type)

REGISTERED: dict[str, Any] = {}
"""Frozen dataclasses that estimator parameters may hold, by class name, as model files store them."""

PENALTIES: dict[str, Callable[..., Any]] = {}
"""Factories of penalties by the names that ``penalty=`` and ``--penalty`` accept."""

CONSTRAINTS: dict[str, Callable[..., Any]] = {}
"""Factories of constraints by the names that ``constraint=`` and ``--constraint`` accept."""


def storable(kind: Kind) -> Kind:
    """Class decorator for a frozen dataclass that estimator parameters may hold: let model files store it."""
    known = REGISTERED.setdefault(kind.__name__, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ParameterError(f"{kind.__name__} is already registered by {known.__module__}: choose another name")
    REGISTERED[kind.__name__] = kind
    return kind


def register(kind: Kind) -> Kind:
    """Make a frozen dataclass, a penalty or a constraint, known by name: a class decorator.

    A class ``CappedNorm`` with a method ``codes`` becomes the penalty "capped-norm". To load a model file that holds an
    object of a class of yours, import the class first.

    Examples
    --------
    >>> from terafactor.problem.registry import PENALTIES, from_text
    >>> from_text("elastic-net:0.5", PENALTIES, "penalty")
    ElasticNet(l1_ratio=0.5, positive=False)
    """
    storable(kind)
    (PENALTIES if hasattr(kind, "codes") else CONSTRAINTS)[option_name(kind.__name__)] = kind
    return kind


def option_name(class_name: str) -> str:
    """Return the name of a class in parameters and on the command line: "group-lasso" for GroupLasso."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", class_name).lower()


def from_text(text: str, factories: dict[str, Callable[..., Any]], what: str) -> Any:
    """Return the object that a text such as "l1", "omp:5" or "group-lasso:4,l1_ratio=0.5" describes.

    After the colon come the arguments, as in a call in Python; only literals are accepted. what: the parameter, for
    errors.
    """
    name, _, arguments = text.partition(":")
    if name not in factories:
        raise ParameterError(
            f"{what} must be one of {', '.join(sorted(factories))}, or an object, got {text!r} (import the module that "
            "registers your own first, on the command line with --import)"
        )
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError("more than arguments")
        positional = [ast.literal_eval(argument) for argument in call.args]
        named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        return factories[name](*positional, **named)
    except ParameterError:
        raise
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise ParameterError(
            f"invalid arguments of {what} {text!r}: write {name}:value or {name}:name=value"
        ) from error
