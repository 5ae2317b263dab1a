"""Group lasso and sparse group lasso: whole groups of atoms are used by a row, or not at all."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from terafactor._checks import check_flag
from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.kernels.codes import find_gradient, soft_threshold
from terafactor.kernels.jit import jit
from terafactor.problem.penalties.penalty import Penalty
from terafactor.problem.registry import register

logger = logging.getLogger(__name__)

MAX_GROUP_PASSES, INNER_STEPS = 2000, 20
"""Most passes over the groups, and proximal steps per visit of a group."""

GROUP_SHARE = 0.4
"""``alpha="auto"``, relative to the smallest alpha for which the median row has a zero code. The norms of groups differ
less than single codes do: with the share of the lasso, noisy rows use nearly all groups."""


@register
@dataclass(frozen=True)
class GroupLasso(Penalty):
    r"""Omega(a) = (1 - l1_ratio) * sum over groups g of sqrt(size of g) * |a_g|_2 + l1_ratio * |a|_1.

    With ``l1_ratio=0`` it is the group lasso, otherwise the sparse group lasso.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.problem import GroupLasso
    >>> GroupLasso((0, 0, 1)).value(np.array([[3.0, 4.0, -2.0]]))
    array([9.07106781])
    """

    groups: int | tuple[int, ...] = 2
    """Group of each atom, as k labels; or a number: consecutive groups of that many atoms."""

    l1_ratio: float = 0.0
    """Share of the l1 norm, which makes codes sparse within groups; at least 0 and below 1."""

    positive: bool = False
    """Whether codes must be >= 0."""

    def __post_init__(self) -> None:
        if not is_number(self.groups):
            object.__setattr__(self, "groups", tuple(np.asarray(self.groups).tolist()))  # arrays and lists, too
        elif not (int(self.groups) == self.groups and self.groups >= 1):  # type: ignore[arg-type]
            raise ParameterError(f"groups must be k labels or a number of atoms per group >= 1, got {self.groups!r}")
        if not (is_number(self.l1_ratio) and 0 <= self.l1_ratio < 1):
            raise ParameterError(
                f"l1_ratio of the group lasso must be at least 0 and below 1, got {self.l1_ratio!r} (1 is the lasso: "
                "penalty='l1')"
            )
        check_flag("positive of the penalty", self.positive)

    def members(self, k: int) -> tuple[Array, Array, Array]:
        """Return the atoms (k,) sorted by group, where each group starts (g + 1,), and the weights of groups (g,)."""
        labels = np.asarray(self.groups)
        if labels.ndim == 0:
            labels = np.arange(k) // labels
        if len(labels) != k:
            raise ParameterError(f"groups has {len(labels)} labels, but n_components is {k}: pass one label per atom")
        _, group = np.unique(labels, return_inverse=True)
        sizes = np.bincount(group)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return np.argsort(group, kind="stable"), starts, (1 - self.l1_ratio) * np.sqrt(sizes)

    def value(self, codes: Array) -> Array:
        values = codes.astype(np.float64, copy=False)
        atoms, starts, weights = self.members(values.shape[1])
        norms = np.sqrt(np.add.reduceat(np.square(values[:, atoms]), starts[:-1], axis=1))
        return norms @ weights + self.l1_ratio * np.abs(values).sum(axis=1)

    def codes(self, gram: Array, products: Array, strength: Any, tolerance: float) -> Array:
        atoms, starts, weights = self.members(products.shape[1])
        codes, grams = np.zeros(products.shape), gram if gram.ndim == 3 else gram[np.newaxis]
        curvatures = _curvatures(grams, atoms, starts)
        strengths, allowed = np.full(len(products), strength, np.float64), tolerance * np.abs(products).max(axis=1)
        unfinished = group_codes(
            grams, products, atoms, starts, weights, curvatures, self.l1_ratio, strengths, self.positive, allowed, codes
        )
        if unfinished:
            logger.info("%d of %d codes stopped after %d passes", unfinished, len(codes), MAX_GROUP_PASSES)
        return codes

    def violation(self, gram: Array, products: Array, strength: Any, codes: Array) -> Array:
        atoms, starts, weights = self.members(products.shape[1])
        strengths = np.full(len(products), strength, np.float64)
        gradients = products - np.einsum("...i,...ij->...j", codes, gram)
        worst = np.zeros(len(codes))
        for row, (gradient, code, each) in enumerate(zip(gradients, codes, strengths, strict=True)):
            for group, weight in zip(np.split(atoms, starts[1:-1]), weights * each, strict=True):
                violation = group_violation(gradient, code, group, weight, self.l1_ratio * each, self.positive)
                worst[row] = max(worst[row], violation)
        return worst

    def zero_strength(self, products: Array) -> Array:
        """Return the smallest s with ``|soft(h_g, s * l1_ratio)|_2 <= s * weight_g`` for all groups g, by bisection.

        products : (b, k), the rows h; the result is (b,).
        """
        atoms, starts, weights = self.members(products.shape[1])
        values = np.maximum(products, 0.0) if self.positive else np.abs(products)
        low, high = np.zeros(len(values)), np.abs(values).sum(axis=1) / weights.min()
        for _ in range(60):
            middle = (low + high) / 2
            excess = np.square(np.maximum(values - self.l1_ratio * middle[:, np.newaxis], 0.0))[:, atoms]
            norms = np.sqrt(np.add.reduceat(excess, starts[:-1], axis=1))
            zero = (norms <= middle[:, np.newaxis] * weights).all(axis=1)
            low, high = np.where(zero, low, middle), np.where(zero, middle, high)
        return high

    def auto_alpha(self, zero_strength: float, atom_energy: float) -> float:
        return GROUP_SHARE * zero_strength


def _curvatures(grams: Array, atoms: Array, starts: Array) -> Array:
    """Return the largest eigenvalue of each group's Gram matrix (n, g)."""
    groups = np.split(atoms, starts[1:-1])
    largest = [np.linalg.eigvalsh(grams[:, group[:, np.newaxis], group])[:, -1] for group in groups]
    return np.ascontiguousarray(np.stack(largest, axis=1))


@jit
def group_violation(gradient, code, atoms, weight, l1, positive):
    """Return the violation of the optimality conditions in one group.

    gradient, code (k,): minus the gradient of the smooth part, and the code; atoms: the group; weight, l1: strengths of
    the two norms. A zero group is optimal if ``|soft(gradient_g, l1)|_2 <= weight``.
    """
    norm = 0.0
    for j in atoms:
        norm += code[j] * code[j]
    norm = np.sqrt(norm)
    if norm == 0.0:
        excess = 0.0
        for j in atoms:
            excess += soft_threshold(gradient[j], l1, positive) ** 2
        return max(np.sqrt(excess) - weight, 0.0)
    largest = 0.0
    for j in atoms:
        slope = gradient[j] - weight * code[j] / norm
        if code[j] != 0.0:
            largest = max(largest, abs(slope - (l1 if code[j] > 0.0 else -l1)))
        else:
            largest = max(largest, (slope if positive else abs(slope)) - l1)
    return largest


@jit
def visit_group(gram, gradient, code, atoms, weight, l1, positive, curvature, allowed, local, change, total):
    """Minimize over the codes of one group by proximal gradient steps, the others fixed; update the gradient.

    gram (k, k); gradient, code (k,) in/out; local, change, total (k,): scratch. A step of size 1 / curvature goes to
    ``a_g = shrink(soft(a_g + gradient_g / curvature, l1 / curvature), weight / curvature)``. Steps update the gradient
    of the group only; that of all atoms follows at the end.
    """
    n = len(atoms)
    for a in range(n):
        local[a], total[a] = gradient[atoms[a]], 0.0
    for _ in range(INNER_STEPS):
        norm = 0.0
        for a in range(n):
            value = soft_threshold(code[atoms[a]] + local[a] / curvature, l1 / curvature, positive)
            norm += value * value
        norm = np.sqrt(norm)
        shrink = max(1.0 - weight / (curvature * norm), 0.0) if norm > 0.0 else 0.0
        largest = 0.0
        for a in range(n):
            j = atoms[a]
            new = shrink * soft_threshold(code[j] + local[a] / curvature, l1 / curvature, positive)
            change[a] = new - code[j]
            total[a] += change[a]
            largest = max(largest, abs(change[a]))
            code[j] = new
        if largest * curvature <= 0.1 * allowed:
            break
        for a in range(n):
            row = gram[atoms[a]]
            for b in range(n):
                local[b] -= change[a] * row[atoms[b]]
    for a in range(n):
        if total[a] != 0.0:
            row = gram[atoms[a]]
            for i in range(len(code)):
                gradient[i] -= total[a] * row[i]


@jit
def group_codes(grams, products, atoms, starts, weights, curvatures, l1_ratio, strengths, positive, allowed, codes):
    """Code rows by block coordinate descent over the groups; return how many did not converge.

    grams (b, k, k) or (1, k, k); products (b, k); atoms (k,), starts (g + 1,), weights (g,): the groups; curvatures
    (b or 1, g); strengths, allowed (b,); codes (b, k) in/out. Passes over the nonzero groups alternate with passes over
    all, because most groups stay at zero. Groups within the tolerance do not move: the last pass changes nothing.
    """
    n_rows, k = products.shape
    gradient, local, change, total = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    unfinished = 0
    for row in range(n_rows):
        shared = 0 if len(grams) == 1 else row
        gram, code, l1 = grams[shared], codes[row], l1_ratio * strengths[row]
        find_gradient(gram, products[row], code, gradient)
        only_active, worst = False, np.inf
        for _ in range(MAX_GROUP_PASSES):
            worst = 0.0
            for g in range(len(weights)):
                group, weight = atoms[starts[g] : starts[g + 1]], weights[g] * strengths[row]
                if only_active:
                    is_zero = True
                    for j in group:
                        is_zero = is_zero and code[j] == 0.0
                    if is_zero:
                        continue
                violation = group_violation(gradient, code, group, weight, l1, positive)
                worst = max(worst, violation)
                if violation > allowed[row] and curvatures[shared, g] > 0.0:
                    visit_group(
                        gram, gradient, code, group, weight, l1, positive, curvatures[shared, g], allowed[row], local,
                        change, total,
                    )  # fmt: skip
            if worst <= allowed[row] and not only_active:
                break
            only_active = worst > allowed[row]
        unfinished += worst > allowed[row]
    return unfinished
