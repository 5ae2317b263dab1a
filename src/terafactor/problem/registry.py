"""Penalties and constraints by name: how model files and run directories know them."""

from __future__ import annotations

from typing import Any, TypeVar

from terafactor.errors import ParameterError

Kind = TypeVar("Kind", bound=type)

REGISTERED: dict[str, Any] = {}
"""Frozen dataclasses that parameters of estimators may hold, by the name that files give them."""


def register(kind: Kind) -> Kind:
    """Let model files hold objects of a frozen dataclass, such as a penalty of one's own: a class decorator.

    Whoever loads such a file must have imported the class.
    """
    known = REGISTERED.setdefault(kind.__name__, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ParameterError(f"{kind.__name__} is registered already, by {known.__module__}: choose another name")
    REGISTERED[kind.__name__] = kind
    return kind
