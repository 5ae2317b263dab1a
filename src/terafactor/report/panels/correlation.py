"""Cosines between the atoms."""

from __future__ import annotations

import numpy as np

from terafactor._typing import Array
from terafactor.report import pictures
from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel
from terafactor.report.similarity import Similarity

MAX_SIDE = 500
"""Width of the picture in pixels; if there are more atoms, a pixel is the largest correlation of several."""

SECTION = """
<div class="side-by-side">
<img class="matrix" src="{{ image }}" alt="correlation between atoms">
<div>
<p>{{ note }} <span class="key orange"></span>similar, <span class="key blue"></span>opposite; the diagonal is left
out.</p>
<table class="figures"><caption>Most similar pairs</caption>
<thead><tr><th>atoms</th><th>correlation</th></tr></thead><tbody>
{% for first, second, value in pairs %}
<tr><td>{{ first }} and {{ second }}</td><td>{{ "%.2f" | format(value) }}</td></tr>
{% endfor %}
</tbody></table>
<p class="note">Correlation is the cosine of the angle between two atoms. Near 1 or -1, one of the two is
redundant.</p>
</div></div>
"""


class CorrelationPanel(Panel):
    """Cosines between atoms."""

    name, title = "correlation", "Correlation between atoms"

    def applies(self, context: ReportContext) -> bool:
        return context.components is not None and len(context.components) > 1

    def draw(self, context: ReportContext) -> str:
        found = context.similarity
        picture = pictures.signed(coarse(found.cosines, MAX_SIDE), 1.0)
        return fragment(SECTION, image=pictures.picture(picture), note=_note(found, context), pairs=found.closest(5))


def coarse(matrix: Array, side: int) -> Array:
    """Return a square matrix with at most ``side`` rows: the entry of largest absolute value of each block."""
    block = -(-len(matrix) // side)
    if block <= 1:
        return matrix
    n_blocks = -(-len(matrix) // block)
    padded = np.zeros((n_blocks * block, n_blocks * block), matrix.dtype)
    padded[: len(matrix), : len(matrix)] = matrix
    blocks = padded.reshape(n_blocks, block, n_blocks, block).swapaxes(1, 2).reshape(n_blocks, n_blocks, -1)
    largest = np.abs(blocks).argmax(axis=2)
    return np.asarray(np.take_along_axis(blocks, largest[..., np.newaxis], axis=2)[..., 0])


def _note(found: Similarity, context: ReportContext) -> str:
    total = 0 if context.components is None else len(context.components)
    shown = len(found.atoms)
    which = f"All {total:,} atoms" if shown == total else f"The first {shown:,} of {total:,} atoms"
    return f"{which}, {'by number' if context.sample is None else 'the most used first'}."
