"""Which atoms are used, and how sparse codes and atoms are."""

from __future__ import annotations

import numpy as np

from terafactor._typing import Indices
from terafactor.report.charts import Axis, bar_chart, histogram
from terafactor.report.context import ReportContext, RowSample
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel

SECTION = """
<p class="note">{{ sentence }}</p>
<div class="pair">{% for chart in charts %}{{ chart }}{% endfor %}</div>
"""


class UsagePanel(Panel):
    """Use of atoms by a sample of rows."""

    name, title = "usage", "Use of atoms"

    def applies(self, context: ReportContext) -> bool:
        return context.sample is not None or _atom_zeros(context) > 0

    def draw(self, context: ReportContext) -> str:
        of_codes = [] if context.sample is None else _charts_of_codes(context.sample, context.atom_order)
        return fragment(SECTION, sentence=_sentence(context), charts=[*of_codes, *_charts_of_atoms(context)])


def _charts_of_codes(sample: RowSample, order: Indices) -> list[str]:
    names = [f"atom {atom}" for atom in order]
    rank = Axis("atoms, most used first", "count")
    size = bar_chart("Mean size of nonzero codes", rank, Axis("mean |code|"), sample.magnitude[order], names)
    if (sample.codes != 0).all():
        return [size]
    n_used = (sample.codes != 0).sum(axis=1)
    bins = np.arange(0, n_used.max() + 2) - 0.5 if n_used.max() < 60 else np.linspace(0, n_used.max(), 41)
    return [
        bar_chart("Share of rows that use each atom", rank, Axis("rows", "percent"), sample.usage[order], names),
        size,
        histogram("Atoms per row", Axis("atoms used by a row", "count"), n_used.astype(np.float64), bins=bins),
    ]


def _charts_of_atoms(context: ReportContext) -> list[str]:
    """Return a chart of the nonzero entries of each atom, if some entries are zero."""
    if context.components is None or _atom_zeros(context) == 0:
        return []
    density = np.array([np.count_nonzero(atom) / len(atom) for atom in context.components])
    order = np.argsort(-density, kind="stable")
    axis = Axis("atoms, densest first", "count")
    names = [f"atom {atom}" for atom in order]
    return [bar_chart("Nonzero entries of each atom", axis, Axis("entries", "percent"), density[order], names)]


def _sentence(context: ReportContext) -> str:
    parts = []
    if context.sample is not None:
        codes = context.sample.codes
        parts.append(
            fragment(
                "On {{ n | count }} rows, {{ zeros | percent }} of the codes are zero: a row uses "
                "{{ '%.1f' | format(used) }} of {{ total | count }} atoms on average.",
                n=len(codes),
                zeros=float((codes == 0).mean()),
                used=float((codes != 0).sum(axis=1).mean()),
                total=codes.shape[1],
            )
        )
    if _atom_zeros(context) > 0:
        parts.append(
            fragment("{{ share | percent }} of the entries of the atoms are zero.", share=_atom_zeros(context))
        )
    return fragment("{% for part in parts %}{{ part }} {% endfor %}", parts=parts)


def _atom_zeros(context: ReportContext) -> float:
    """Return the share of zeros among the entries of the atoms."""
    if context.components is None or context.components.size == 0:
        return 0.0
    return 1 - np.count_nonzero(context.components) / context.components.size
