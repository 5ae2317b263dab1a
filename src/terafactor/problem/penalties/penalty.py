"""The interface of penalties on codes.

A penalty finds codes from inner products alone: it never sees features, masks or threads. A new one is one file with a
frozen dataclass, decorated by :func:`~terafactor.problem.registry.register`, that defines ``value`` and ``codes``, or
``value`` and ``prox`` if it subclasses :class:`~terafactor.problem.penalties.proximal.ProximalPenalty`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from terafactor._typing import Array
from terafactor.errors import ParameterError
from terafactor.problem.registry import PENALTIES, from_text

AUTO_ALPHA_SHARE = 0.2
"""``alpha="auto"`` of sparse codes, relative to the smallest alpha for which the median row has a zero code."""


class Penalty:
    """Omega, the penalty on codes. Subclasses are frozen dataclasses.

    Examples
    --------
    >>> from terafactor.problem import Penalty
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> @dataclass(frozen=True)
    ... class Ridge(Penalty):
    ...     is_sparse = False
    ...
    ...     def value(self, codes):
    ...         return (codes**2).sum(axis=1) / 2
    ...
    ...     def codes(self, gram, products, strength, tolerance):
    ...         return np.linalg.solve(gram + strength * np.eye(len(gram)), products.T).T
    >>> Ridge().codes(np.eye(2), np.array([[1.0, 2.0]]), 1.0, 1e-4)
    array([[0.5, 1. ]])
    """

    has_strength: ClassVar[bool] = True
    """Whether alpha has an effect. False for hard constraints on codes, whose Omega is 0 or infinite."""

    @property
    def is_sparse(self) -> bool:
        """Whether a larger alpha makes more codes zero."""
        return self.has_strength

    def value(self, codes: Array) -> Array:
        """Return Omega of each row of ``codes`` (b, k), in float64."""
        raise NotImplementedError

    def codes(self, gram: Array, products: Array, strength: Any, tolerance: float) -> Array:
        """Return the codes (b, k), float64: ``argmin over a of 1/2 a G a' - a h' + strength * Omega(a)`` for each row.

        gram : (k, k), or (b, k, k) if each row observes its own features; G, float64, positive definite to working
        precision. products : (b, k), h, float64, contiguous. strength : a number, or (b,) with one Gram matrix per row.
        tolerance : allowed violation of the optimality conditions, relative to the largest product of a row.
        Several threads may call it at the same time.
        """
        raise NotImplementedError

    def violation(self, gram: Array, products: Array, strength: Any, codes: Array) -> Array:
        """Return how far each row of ``codes`` (b, k) is from optimal (b,): 0 at a minimizer.

        The unit is that of ``products`` (b, k); ``gram`` is (k, k) or (b, k, k), as in :meth:`codes`.
        """
        raise NotImplementedError

    def zero_strength(self, products: Array) -> Array | None:
        """Return the smallest strength for which all codes of a row are zero (b,), infinite if there is none.

        products : (b, k). The result is None if the penalty has no rule.
        """
        return None

    def auto_alpha(self, zero_strength: float, atom_energy: float) -> float | None:
        """Return the value of ``alpha="auto"``, None if there is no rule.

        zero_strength: median over rows of :meth:`zero_strength`. atom_energy: squared norm of a typical atom.
        """
        if not self.has_strength:
            return 0.0
        return AUTO_ALPHA_SHARE * zero_strength if np.isfinite(zero_strength) else None


def resolve_penalty(penalty: Any, *, positive: bool) -> Any:
    """Return the :class:`Penalty` that the parameter ``penalty`` names or is."""
    if isinstance(penalty, str):
        penalty = from_text(penalty, PENALTIES, "penalty")
    if not isinstance(penalty, Penalty):
        raise ParameterError(
            f"penalty must be one of {', '.join(sorted(PENALTIES))}, or a Penalty object, got {penalty!r}"
        )
    if not positive or getattr(penalty, "positive", False):
        return penalty
    if "positive" not in getattr(penalty, "__dataclass_fields__", ()):
        raise ParameterError(f"positive_code=True needs a penalty with a field 'positive', which {penalty!r} lacks")
    return replace(penalty, positive=True)  # type: ignore[type-var]
