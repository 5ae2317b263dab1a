"""The ball that contains every atom."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from terafactor._checks import check_flag
from terafactor._threads import n_tiles
from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.kernels.atoms import add_sizes
from terafactor.kernels.projection import ball_size, project
from terafactor.problem.registry import CONSTRAINTS, from_text, register

Norm = Literal["l2", "l1", "elastic-net"]

LARGEST_RADIUS = 1e150
"""Its square is still finite in float64."""

FAR = 1e3
"""Entries larger than this many radii are projected in float64: in float32 rounding would dominate the result."""


@register
@dataclass(frozen=True)
class NormBall:
    """The ball that contains every atom.

    - ``"l2"``: ``|d|_2 <= radius``
    - ``"l1"``: ``|d|_1 <= radius`` (sparse atoms)
    - ``"elastic-net"``: ``l1_ratio * |d|_1 + (1 - l1_ratio) / 2 * |d|_2^2 <= radius``

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor import NormBall
    >>> NormBall("l1").project(np.array([[3.0, 1.0], [0.2, 0.1]]))
    array([[1. , 0. ],
           [0.2, 0.1]])
    """

    updates_atoms: ClassVar[bool] = False
    """Whether a step calls ``update_atom`` of the constraint instead of the sweep of the backend."""

    norm: Norm = "l2"
    """Which norm is bounded."""

    radius: float = 1.0
    """The bound."""

    l1_ratio: float = 0.5
    """Share of the l1 norm in the elastic-net ball; not used by the others."""

    positive: bool = False
    """Whether atoms must be >= 0."""

    def __post_init__(self) -> None:
        if self.norm not in ("l2", "l1", "elastic-net"):
            raise ParameterError(f"norm of the ball must be 'l2', 'l1' or 'elastic-net', got {self.norm!r}")
        if not (is_number(self.radius) and 1 / LARGEST_RADIUS <= self.radius <= LARGEST_RADIUS):
            raise ParameterError(
                f"radius of the ball must be a number > 0, at most {LARGEST_RADIUS:g} and at least its inverse, "
                f"got {self.radius!r}"
            )
        if not (is_number(self.l1_ratio) and 0 <= self.l1_ratio <= 1):
            raise ParameterError(f"l1_ratio of the ball must be between 0 and 1, got {self.l1_ratio!r}")
        check_flag("positive of the ball", self.positive)

    def as_scalars(self) -> tuple[float, float, float, bool]:
        """Return (l1_weight, l2_weight, limit, positive) of ``l1_weight |d|_1 + l2_weight / 2 |d|^2 <= limit``."""
        if self.norm == "l2":
            return 0.0, 2.0, float(self.radius) ** 2, self.positive
        if self.norm == "l1":
            return 1.0, 0.0, float(self.radius), self.positive
        return float(self.l1_ratio), 1.0 - float(self.l1_ratio), float(self.radius), self.positive

    def size(self, dictionary: Array) -> Array:
        """Return psi of each atom of ``dictionary`` (k, p) relative to its limit: at most 1 inside the ball."""
        return self.psi(dictionary) / self.as_scalars()[2]

    def psi(self, dictionary: Array) -> Array:
        """Return psi of every atom of ``dictionary`` (k, p), float64 (k,)."""
        l1_weight, l2_weight, _, _ = self.as_scalars()
        return atom_sizes(dictionary, l1_weight, l2_weight)

    def project(self, dictionary: Array) -> Array:
        """Return the projection of each atom of ``dictionary`` (k, p) on the ball."""
        l1_weight, l2_weight, limit, positive = self.as_scalars()
        projected = np.array(dictionary, order="C")
        scratch = np.empty((2, n_tiles(projected.shape[1]), 4))
        for atom in projected:
            far = np.abs(atom).max(initial=0) > FAR * self.radius
            moved = atom.astype(np.float64) if far else atom
            project(moved, l1_weight, l2_weight, limit, positive, scratch)
            atom[:] = moved
        return projected

    def fill(self, dictionary: Array, share: float = 1.0) -> Array:
        """Return the atoms of ``dictionary`` (k, p), each scaled to a share of the ball's limit.

        In a positive ball, negative entries are cut to zero first. Zero atoms stay zero. Scaling by c multiplies
        ``u = l1_weight |d|_1`` by c and ``v = l2_weight / 2 |d|^2`` by c^2, so c is the positive root of
        ``v c^2 + u c = limit``, computed without cancellation.
        """
        atoms = np.array(dictionary, order="C")
        self.fill_in_place(atoms, share)
        return atoms

    def fill_in_place(self, atoms: Array, share: float = 1.0) -> None:
        """Apply :meth:`fill` to ``atoms`` (k, p) in place, for matrices too large to copy."""
        l1_weight, l2_weight, limit, positive = self.as_scalars()
        if positive:
            np.maximum(atoms, 0, out=atoms)
        for atom in atoms:  # scale by a power of two, which is exact, so that squares do not overflow
            np.ldexp(atom, -np.frexp(np.abs(atom).max(initial=0))[1], out=atom)
        linear = atom_sizes(atoms, l1_weight, 0.0)
        quadratic = atom_sizes(atoms, 0.0, l2_weight)
        root = linear + np.sqrt(linear**2 + 4 * quadratic * limit * share)
        scale = np.divide(2 * limit * share, root, out=np.zeros_like(root), where=root > 0)
        atoms *= scale[:, np.newaxis].astype(atoms.dtype)


def atom_sizes(dictionary: Array, l1_weight: float, l2_weight: float) -> Array:
    """Return ``l1_weight |d|_1 + l2_weight / 2 |d|^2`` of every atom, float64 (k,).

    dictionary (k, p) in either memory order, read once.
    """
    if dictionary.flags.c_contiguous:
        return np.array([ball_size(atom, l1_weight, l2_weight) for atom in dictionary])
    sizes = np.zeros(len(dictionary))
    add_sizes(dictionary.T, l1_weight, l2_weight, sizes)
    return sizes


def resolve_constraint(constraint: Any, *, positive: bool) -> NormBall:
    """Return the :class:`NormBall` that the parameter ``constraint`` names or is."""
    if isinstance(constraint, str):
        constraint = from_text(constraint, CONSTRAINTS, "constraint")
    if not isinstance(constraint, NormBall):
        raise ParameterError(
            f"constraint must be one of {', '.join(sorted(CONSTRAINTS))}, or a NormBall, got {constraint!r}"
        )
    return replace(constraint, positive=positive or constraint.positive)


CONSTRAINTS |= {
    "l2": partial(NormBall, "l2"),
    "l1": partial(NormBall, "l1"),
    "elastic-net": lambda l1_ratio=0.5: NormBall("elastic-net", l1_ratio=l1_ratio),
}
