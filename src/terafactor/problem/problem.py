"""The optimization problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from terafactor._typing import Array, is_number
from terafactor.errors import ParameterError
from terafactor.problem.constraints.norm_ball import NormBall
from terafactor.problem.penalties.elastic_net import ElasticNet
from terafactor.problem.penalties.penalty import Penalty


@dataclass(frozen=True)
class Problem:
    r"""Minimize the mean over rows x of l(x) over dictionaries whose atoms satisfy the constraint.

    ``l(x) = min over a of p / (2 s) |x_S - a D_S|^2 + alpha * Omega(a)``, with S the s observed features among p.

    Examples
    --------
    >>> from terafactor.problem import Problem
    >>> import numpy as np
    >>> problem = Problem(alpha=0.25)
    >>> problem.codes(np.eye(2), np.array([[1.0, 0.1]]), 1.0)  # the lasso with orthogonal atoms: a soft threshold
    array([[0.75, 0.  ]])
    """

    alpha: float = 1.0
    """Strength of the penalty."""

    penalty: Penalty = field(default_factory=ElasticNet)
    """Omega, the penalty on codes."""

    constraint: NormBall = field(default_factory=NormBall)
    """The ball that contains every atom."""

    code_tolerance: float = 1e-4
    """Violation of the optimality conditions allowed in codes, relative to their largest product."""

    def __post_init__(self) -> None:
        if not (is_number(self.alpha) and 0 <= self.alpha < math.inf):
            raise ParameterError(f"alpha must be a number >= 0, got {self.alpha!r} (0 means no penalty)")

    def codes(self, gram: Array, products: Array, share: Any) -> Array:
        """Return the codes (b, k), float64, for given inner products.

        gram (k, k) or (b, k, k), products (b, k): see :meth:`Penalty.codes`. share: s / p, for all rows or per row
        (b,). The paper scales the data term by p / s. Scaling the penalty by s / p instead has the same minimizer;
        the codes of steps and of ``encode`` get it here.
        """
        return self.penalty.codes(gram, products, float(self.alpha) * share, self.code_tolerance)

    def losses(self, squares: Array, codes: Array, share: Any) -> Array:
        """Return l(x) of each row (b,).

        squares (b,): squared norms of the residuals on the observed features. codes (b, k). share: s / p.
        """
        return 0.5 * squares / share + float(self.alpha) * self.penalty.value(codes)
