"""Smooth atoms: a ball, and a penalty on differences between neighboring features of a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from terafactor._threads import n_tiles
from terafactor._typing import Array, Indices, is_number
from terafactor.errors import ParameterError
from terafactor.kernels.jit import jit
from terafactor.kernels.projection import project
from terafactor.problem.constraints.structured_ball import StructuredBall
from terafactor.problem.registry import register

STEPS = 5
"""Projected gradient steps per atom and sweep. They start from the current atom, so that sweeps add up."""


@register
@dataclass(frozen=True)
class SmoothBall(StructuredBall):
    r"""A ball whose atoms are images, with a penalty on their roughness.

    Sweeps minimize the surrogate plus :math:`\frac{\gamma}{2} \sum_j d_j' L d_j`, where L is the Laplacian of the
    grid: :math:`d' L d` is the sum of squared differences between neighbors. With
    :math:`\gamma = \text{smoothness} \cdot \text{mean}_j c_{jj}` the effect does not depend on the units of X.

    A step on a mask of s features reads their neighbors as well, at most two per axis: its cost is linear in s.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.problem import SmoothBall
    >>> from terafactor import MaskedDictionaryLearning
    >>> X = np.random.default_rng(0).standard_normal((100, 36)).cumsum(axis=1)
    >>> ball = SmoothBall(shape=(6, 6), smoothness=0.5)
    >>> MaskedDictionaryLearning(4, constraint=ball, random_state=0).fit(X).components_.shape
    (4, 36)
    """

    shape: tuple[int, ...] = ()
    """Shape of the grid. If X has c features per pixel, such as colors, the last axis of an atom, they are smoothed
    separately."""

    smoothness: float = 0.1
    """Strength of the penalty, relative to the mean squared code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", tuple(np.asarray(self.shape, dtype=object).tolist()))
        if not self.shape or not all(is_number(length) and length >= 1 for length in self.shape):
            raise ParameterError(f"shape of the grid must be a tuple of lengths, such as (12, 12), got {self.shape!r}")
        if not (is_number(self.smoothness) and 0 <= self.smoothness < math.inf):
            raise ParameterError(f"smoothness must be a number >= 0, got {self.smoothness!r}")

    def update_atom(self, atom: Array, features: Indices, target: Array, weight: float, outside: float) -> None:
        """Do projected gradient steps of size 1 / (1 + 4 n_axes gamma), the inverse of a bound of the curvature.

        See :meth:`StructuredBall.update_atom` for ``atom`` (p,), ``features`` and ``target`` (s,). The steps never
        increase the objective. They read the neighbors of the features in the mask only.
        """
        strides, lengths = self.grid(len(atom))
        l1_weight, l2_weight, limit, positive = self.as_scalars()
        scratch, roughness = np.empty((2, n_tiles(len(features)), 4)), np.empty_like(target)
        gamma, moved = self.smoothness * weight, atom[features]
        for _ in range(STEPS):
            laplacian(atom, features, strides, lengths, roughness)
            moved -= (moved - target + gamma * roughness) / (1 + 4 * len(self.shape) * gamma)
            project(moved, l1_weight, l2_weight, limit - outside, positive, scratch)
            atom[features] = moved

    def grid(self, n_features: int) -> tuple[Indices, Indices]:
        """Return the distance between neighbors along each axis of the grid, and the lengths of the axes, (n_axes,)."""
        if n_features % math.prod(self.shape):
            raise ParameterError(
                f"shape {self.shape} has {math.prod(self.shape)} pixels, which does not divide the {n_features} "
                "features of X"
            )
        lengths = np.array(self.shape)
        n_channels = n_features // math.prod(self.shape)
        return n_channels * np.cumprod([1, *lengths[:0:-1]])[::-1], lengths


@jit
def laplacian(atom, features, strides, lengths, result):
    """``result[i] = sum over neighbors n of f of atom[f] - atom[n]``, for f = features[i].

    atom (p,); features, result (s,), result out; strides, lengths (n_axes,): of the grid. Reads the neighbors of the
    given features only, at most two per axis.
    """
    for i in range(len(features)):
        feature = features[i]
        value, total = atom[feature], atom.dtype.type(0)
        for axis in range(len(strides)):
            stride = strides[axis]
            position = feature // stride % lengths[axis]
            if position > 0:
                total += value - atom[feature - stride]
            if position < lengths[axis] - 1:
                total += value - atom[feature + stride]
        result[i] = total
