"""Penalties on codes, one file each. Importing this package imports every file in it, which registers them."""

from importlib import import_module
from pkgutil import iter_modules

from terafactor.problem.penalties.penalty import Penalty, resolve_penalty
from terafactor.problem.penalties.proximal import ProximalPenalty

__all__ = ["Penalty", "ProximalPenalty", "resolve_penalty"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
