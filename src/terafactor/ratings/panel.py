"""Report panels of rating models, which replace those about atoms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array
from terafactor.report import Panel, ReportContext, fragment

MAX_DIRECTIONS = 12
N_EXTREMES = 5
"""Items shown at each end of a direction."""

SECTION = """
<p>Principal directions of the item factors, with the items at each end. Items with few ratings are near the
middle.</p>
<table class="figures"><thead><tr><th></th><th>share of the variance</th><th>one end</th><th>the other end</th></tr>
</thead><tbody>
{% for direction in directions %}
<tr><td>{{ loop.index }}</td><td>{{ "%.1f" | format(100 * direction.share) }} %</td>
<td>{{ direction.low | join(", ") }}</td><td>{{ direction.high | join(", ") }}</td></tr>
{% endfor %}
</tbody></table>
"""


@dataclass(frozen=True)
class Direction:
    """A principal direction of the item factors."""

    share: float
    """Share of the variance."""

    low: list[str]
    high: list[str]


class DirectionsPanel(Panel):
    """Show principal directions of the item factors: single factors have no meaning, since they can be rotated."""

    name, title = "atoms", "How items differ"

    def applies(self, context: ReportContext) -> bool:
        return context.components is not None and context.components.shape[1] > 1

    def draw(self, context: ReportContext) -> str:
        components = np.asarray(context.components)
        names = context.feature_names or [str(number) for number in range(components.shape[1])]
        return fragment(SECTION, directions=directions(components, list(names)))


class NoSimilarityPanel(Panel):
    """Hide the correlations between atoms, which have no meaning for factors that can be rotated."""

    name, title = "correlation", "Correlation between factors"

    def applies(self, context: ReportContext) -> bool:
        return False

    def draw(self, context: ReportContext) -> str:
        return ""


def directions(components: Array, names: list[str]) -> list[Direction]:
    """Return the principal directions of item factors (k, p), the strongest first."""
    centered = components - components.mean(axis=1, keepdims=True)
    _, strengths, axes = np.linalg.svd(centered.astype(np.float64), full_matrices=False)
    total = float((strengths**2).sum()) or 1.0
    found = []
    for strength, axis in list(zip(strengths, axes, strict=True))[:MAX_DIRECTIONS]:
        order = np.argsort(axis, kind="stable")
        low, high = ([names[item] for item in part] for part in (order[:N_EXTREMES], order[: -N_EXTREMES - 1 : -1]))
        found.append(Direction(float(strength**2) / total, low, high))
    return found
