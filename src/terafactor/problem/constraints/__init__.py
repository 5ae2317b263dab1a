"""Constraints on atoms, one file each. Importing this package imports every file in it, which registers them."""

from importlib import import_module
from pkgutil import iter_modules

from terafactor.problem.constraints.norm_ball import NormBall, resolve_constraint
from terafactor.problem.constraints.structured_ball import StructuredBall

__all__ = ["NormBall", "StructuredBall", "resolve_constraint"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
