"""Smooth atoms: a ball, and a penalty on differences between neighboring features of a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from terafactor._threads import n_tiles
from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.kernels.atoms import UNUSED
from terafactor.kernels.projection import project
from terafactor.problem.constraint import NormBall
from terafactor.problem.registry import register

STEPS = 5
"""Projected gradient steps per atom and sweep. Each starts from the atom as it is, so that sweeps add up."""


@register
@dataclass(frozen=True)
class SmoothBall(NormBall):
    r"""A :class:`NormBall` whose atoms are images, with a penalty on their roughness.

    Each sweep minimizes the surrogate plus :math:`\frac{\gamma}{2} \sum_j d_j' L d_j`, where L is the Laplacian of the
    grid: :math:`d' L d` is the sum of squared differences between neighbors. With
    :math:`\gamma = \text{smoothness} \cdot \text{mean}_j c_{jj}` the effect does not depend on the units of X. A step
    costs O(p) per atom, as without it.

    It needs whole rows (``reduction=1``, no missing values): the neighbors of a masked feature are rarely in the mask.

    Examples
    --------
    >>> from terafactor import MaskedDictionaryLearning
    >>> X = np.random.default_rng(0).standard_normal((100, 36)).cumsum(axis=1)
    >>> ball = SmoothBall(shape=(6, 6), smoothness=0.5)
    >>> MaskedDictionaryLearning(4, constraint=ball, random_state=0).fit(X).components_.shape
    (4, 36)
    """

    shape: tuple[int, ...] = ()
    """Shape of the grid. If rows have more features than the grid, the last axis are channels, each smoothed apart."""

    smoothness: float = 0.1
    """Strength of the penalty, relative to the mean squared code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", tuple(np.asarray(self.shape, dtype=object).tolist()))
        if not self.shape or not all(is_number(length) and length >= 1 for length in self.shape):
            raise ParameterError(f"shape of the grid must be a tuple of lengths, such as (12, 12), got {self.shape!r}")
        if not (is_number(self.smoothness) and 0 <= self.smoothness < math.inf):
            raise ParameterError(f"smoothness must be a number >= 0, got {self.smoothness!r}")

    def update_atoms(self, atoms: Array, data_code: Array, code_gram: Array) -> None:
        """Sweep once over the atoms (k, p), in place; data_code (k, p), code_gram (k, k).

        With the others fixed, atom j minimizes ``1/2 |d - u|^2 + gamma / (2 c_jj) d' L d`` in the ball, where u is its
        minimizer without smoothness. Projected gradient steps of size 1 / (1 + 4 n_axes gamma / c_jj), the inverse of a
        bound of the curvature, never increase that.
        """
        if atoms.shape[1] % math.prod(self.shape):
            raise ParameterError(
                f"shape {self.shape} has {math.prod(self.shape)} pixels, which does not divide the {atoms.shape[1]} "
                "features of X"
            )
        scalars, scratch = self.as_scalars(), np.empty((2, n_tiles(atoms.shape[1]), 4))
        gamma = self.smoothness * float(np.diagonal(code_gram).mean())
        for j in np.flatnonzero(np.diagonal(code_gram) > UNUSED * code_gram.trace()):
            curvature = code_gram[j, j]
            target = atoms[j] + (data_code[j] - code_gram[j] @ atoms) / curvature
            step = 1 / (1 + 4 * len(self.shape) * gamma / curvature)
            for _ in range(STEPS):
                gradient = atoms[j] - target + gamma / curvature * self.laplacian(atoms[j])
                atoms[j] -= step * gradient
                project(atoms[j], *scalars, scratch)

    def laplacian(self, atom: Array) -> Array:
        """Return L d (p,) of an ``atom`` d (p,): for each pixel, the sum of its differences from its neighbors."""
        image = atom.reshape(*self.shape, -1)
        result = np.zeros_like(image)
        for axis in range(len(self.shape)):
            difference = np.diff(image, axis=axis)
            before, after = [slice(None)] * image.ndim, [slice(None)] * image.ndim
            before[axis], after[axis] = slice(None, -1), slice(1, None)
            result[tuple(before)] -= difference
            result[tuple(after)] += difference
        return result.reshape(-1)
