"""Balls with further structure on the atoms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from terafactor._typing import Array, Indices
from terafactor.problem.constraints.norm_ball import NormBall


@dataclass(frozen=True)
class StructuredBall(NormBall):
    """A ball with further structure on the atoms. Subclasses are frozen dataclasses that define :meth:`update_atom`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from terafactor.problem import StructuredBall
    >>> import numpy as np
    >>> @dataclass(frozen=True)
    ... class ZeroMean(StructuredBall):
    ...     needs_whole_rows = True
    ...
    ...     def update_atom(self, atom, features, target, weight, outside):
    ...         atom[:] = self.project([target - target.mean()])[0]
    >>> from terafactor import MaskedDictionaryLearning
    >>> X = np.random.default_rng(0).random((100, 8))
    >>> model = MaskedDictionaryLearning(3, constraint=ZeroMean(), random_state=0).fit(X)
    >>> bool(np.abs(model.components_.sum(axis=1)).max() < 1e-12)
    True
    """

    updates_atoms: ClassVar[bool] = True

    needs_whole_rows: ClassVar[bool] = False
    """Whether masks and missing values are refused."""

    def update_atom(self, atom: Array, features: Indices, target: Array, weight: float, outside: float) -> None:
        """Decrease ``1/2 |d - target|^2 + weight * R(d)`` over the atom d in the ball, in place; other atoms are fixed.

        R is a penalty of the subclass. atom : (p,), changes at ``features`` (s,) only: all, or those of a mask.
        target : (s,), the minimizer without R and the ball. weight : a number, the mean energy of codes over that of
        this atom's codes. outside : psi of the entries outside the mask, which count toward the limit of the ball.
        """
        raise NotImplementedError
