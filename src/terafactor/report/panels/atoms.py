"""The atoms: pictures if rows are pictures, otherwise a map of the largest entries by name, or curves."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np

from terafactor import _format
from terafactor._typing import Array, Indices
from terafactor.report import drawings, pictures
from terafactor.report.context import ReportContext
from terafactor.report.markup import fragment
from terafactor.report.panel import Panel

MAX_ATOMS = 1000
"""Atoms shown: the most used ones if there are more."""

MAX_NAMED_FEATURES, MAX_NAMED_ATOMS = 50, 60
"""Size of the map of named features."""

PICTURES = """
<p class="note">{{ note }} Gray is zero, white the largest absolute value of the atom, black minus that value.</p>
<style>#{{ name }} i { background-image: url({{ image }}) }</style>
<div class="sprites" id="{{ name }}" style="--across:{{ across }};--ratio:{{ ratio }};--side:{{ side }}px">
{% for label in labels %}
<i title="{{ label }}" style="--x:{{ loop.index0 % across }};--y:{{ loop.index0 // across }}"></i>
{% endfor %}
</div>
"""

CURVES = """
<p class="note">{{ note }} Each curve shows the entries of an atom in the order of the features, on its own scale
{%- if used %}; below it, the number of the atom and the share of rows that use it{% endif %}.</p>
<div class="curves">
{% for label, short, drawing in atoms %}
<figure title="{{ label }}">{{ drawing }}<figcaption>{{ short }}</figcaption></figure>
{% endfor %}
</div>
"""

MAP = """
<p class="note">{{ note }} Rows are the features with the largest entries, columns are atoms:
<span class="key orange"></span>positive, <span class="key blue"></span>negative, relative to the largest entry of the
atom.</p>
<div class="map" style="--lines:{{ names | length }}">
<div class="names">{% for name in names %}<span title="{{ name }}">{{ name }}</span>{% endfor %}</div>
<img src="{{ image }}" alt="map of the largest entries of the atoms">
</div>
"""


class AtomsPanel(Panel):
    """The atoms."""

    name, title = "atoms", "Atoms"

    def applies(self, context: ReportContext) -> bool:
        return context.components is not None and context.components.size > 0

    def draw(self, context: ReportContext) -> str:
        if context.picture_shape is not None:
            return draw_pictures(context)
        return draw_curves(context) if context.feature_names is None else draw_map(context)


def draw_pictures(context: ReportContext) -> str:
    """Return all atoms as pictures of one sprite sheet."""
    shown = context.atom_order[:MAX_ATOMS]
    shape = context.picture_shape or (1, 1, 1)
    each = pictures.MAX_PIXELS // len(shown)
    atoms = np.concatenate([pictures.shrink(atom.reshape(1, *shape), each) for atom in _atoms(context, shown)])
    across = math.ceil(math.sqrt(len(shown)))
    image = pictures.picture(pictures.sprite(pictures.gray(atoms), across))
    return fragment(
        PICTURES,
        note=_note(context, shown),
        image=image,
        name=f"sprite-{hashlib.sha256(image.encode()).hexdigest()[:12]}",
        across=across,
        ratio=round(shape[1] / shape[0], 4),
        side=72 if len(shown) <= 200 else 48 if len(shown) <= 500 else 36,
        labels=[_label(context, atom) for atom in shown],
    )


def draw_curves(context: ReportContext, max_atoms: int = MAX_ATOMS) -> str:
    """Return each atom as a curve over the features."""
    shown = context.atom_order[:max_atoms]
    drawn = [
        (_label(context, atom), _short_label(context, atom), drawings.curve(row))
        for atom, row in zip(shown, _atoms(context, shown), strict=True)
    ]
    return fragment(CURVES, note=_note(context, shown), atoms=drawn, used=context.sample is not None)


def draw_map(context: ReportContext) -> str:
    """Return a map of the features with the largest entries, each with its name."""
    shown = context.atom_order[:MAX_NAMED_ATOMS]
    atoms = np.stack(list(_atoms(context, shown)))
    relative = atoms / np.maximum(np.abs(atoms).max(axis=1, keepdims=True), np.finfo(atoms.dtype).tiny)
    features = largest_entries(relative, MAX_NAMED_FEATURES)
    names = context.feature_names or ()
    return fragment(
        MAP,
        note=_note(context, shown),
        names=[names[feature] for feature in features],
        image=pictures.picture(pictures.signed(relative[:, features].T, 1.0)),
    )


def largest_entries(atoms: Array, n_features: int) -> Indices:
    """Return the features with the largest entries of the atoms (k, p), each once, grouped by atom.

    The largest entry of each atom is chosen before the second largest of any, and so on.
    """
    depth = min(atoms.shape[1], n_features)
    ranked = np.argsort(-np.abs(atoms), axis=1, kind="stable")[:, :depth]
    _, first = np.unique(ranked.T, return_index=True)
    chosen = ranked.T.ravel()[np.sort(first)[:n_features]]
    owner = np.abs(atoms[:, chosen]).argmax(axis=0)
    return np.asarray(chosen[np.argsort(owner, kind="stable")])


def _atoms(context: ReportContext, shown: Indices) -> Iterator[Array]:
    """Yield the atoms one by one, without a copy of all."""
    return iter(()) if context.components is None else (context.components[atom] for atom in shown)


def _note(context: ReportContext, shown: Indices) -> str:
    total = 0 if context.components is None else len(context.components)
    what = f"{total:,} atoms" if len(shown) == total else f"{len(shown):,} of {total:,} atoms"
    return f"{what}, the most used first." if context.sample is not None else f"{what}."


def _label(context: ReportContext, atom: int) -> str:
    if context.sample is None:
        return f"atom {atom}"
    return f"atom {atom}, used by {_format.percent(float(context.sample.usage[atom]))} of rows"


def _short_label(context: ReportContext, atom: int) -> str:
    return f"{atom}" if context.sample is None else f"{atom}: {_format.percent(float(context.sample.usage[atom]))}"
