"""What reports on ratings show in the place of atoms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terafactor._typing import Array
from terafactor.report import Panel, ReportContext, fragment

MOST_DIRECTIONS = 12
ENDS = 5
"""Items shown at either end of a direction."""

SECTION = """
<p>Directions in which items differ most, whatever their mean, with the items at either end. Items that few users rated
stay near the middle.</p>
<table class="figures"><thead><tr><th></th><th>share of the differences</th><th>one end</th><th>the other</th></tr>
</thead><tbody>
{% for direction in directions %}
<tr><td>{{ loop.index }}</td><td>{{ "%.1f" | format(100 * direction.share) }} %</td>
<td>{{ direction.low | join(", ") }}</td><td>{{ direction.high | join(", ") }}</td></tr>
{% endfor %}
</tbody></table>
"""


@dataclass(frozen=True)
class Direction:
    """One axis along which items differ."""

    share: float
    """Of the variance of their factors."""

    low: list[str]
    high: list[str]


class DirectionsPanel(Panel):
    """Principal directions of the factors of items: factors themselves may be rotated without changing anything."""

    name, title = "atoms", "What items differ in"

    def applies(self, context: ReportContext) -> bool:
        return context.components is not None and context.components.shape[1] > 1

    def draw(self, context: ReportContext) -> str:
        components = np.asarray(context.components)
        names = context.feature_names or [str(number) for number in range(components.shape[1])]
        return fragment(SECTION, directions=directions(components, list(names)))


class NoSimilarityPanel(Panel):
    """Stands in the place of correlations between atoms, which say nothing about factors that may be rotated."""

    name, title = "correlation", "Correlation between factors"

    def applies(self, context: ReportContext) -> bool:
        return False

    def draw(self, context: ReportContext) -> str:
        return ""


def directions(components: Array, names: list[str]) -> list[Direction]:
    """Return the principal directions of the items (k, p), the strongest first."""
    centred = components - components.mean(axis=1, keepdims=True)
    _, strengths, axes = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    total = float((strengths**2).sum()) or 1.0
    found = []
    for strength, axis in list(zip(strengths, axes, strict=True))[:MOST_DIRECTIONS]:
        order = np.argsort(axis, kind="stable")
        low, high = ([names[item] for item in part] for part in (order[:ENDS], order[: -ENDS - 1 : -1]))
        found.append(Direction(float(strength**2) / total, low, high))
    return found
