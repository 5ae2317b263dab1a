"""How fast the past is forgotten."""

from dataclasses import dataclass

from terafactor._typing import is_number
from terafactor.errors import ParameterError


@dataclass(frozen=True)
class PowerDecay:
    """Weight of step t in the statistics: ``t ** -exponent``.

    With exponent 1 the statistics are plain means over all samples; smaller exponents forget faster the codes
    computed with the poor dictionaries of the beginning. Convergence is proved on (0.75, 1].
    """

    exponent: float = 0.9
    """Between 0.5 (excluded) and 1."""

    def __post_init__(self) -> None:
        if not (is_number(self.exponent) and 0.5 < self.exponent <= 1):
            raise ParameterError(
                f"forgetting must be above 0.5 and at most 1, got {self.exponent!r} (1 keeps all of the past)"
            )

    def weight(self, n_steps: int) -> float:
        """Return the weight of the step number ``n_steps``, the first being 1."""
        return float(n_steps**-self.exponent)
