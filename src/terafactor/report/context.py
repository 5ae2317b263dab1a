"""What a report is made from: one run, or one fitted model, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.errors import ParameterError
from terafactor.report.similarity import Similarity, similarity
from terafactor.solver import Evaluation

if TYPE_CHECKING:
    from terafactor.report.panel import Panel


@dataclass(frozen=True)
class Example:
    """One row beside its reconstruction."""

    label: str
    """What it is an example of, such as "worst"."""

    row: str
    """Where it is in the data, such as "row 12" or "row 12 of a.npy"."""

    values: Array
    """The row (p,); NaN where a value is missing."""

    reconstruction: Array
    """What its code stands for (p,)."""

    explained: float
    """Share of its squared norm that the reconstruction explains, at most 1."""


@dataclass(frozen=True)
class RowSample:
    """Some rows of the data, as the model sees them."""

    codes: Array
    """Their codes (m, k)."""

    explained: Array
    """Share of the squared norm of each row that its reconstruction explains (m,); NaN for a row of zeros."""

    examples: Sequence[Example] = ()
    """A few of them, from best to worst."""

    @cached_property
    def usage(self) -> Array:
        """Share of the rows that use each atom (k,)."""
        return np.asarray((self.codes != 0).mean(axis=0))

    @cached_property
    def magnitude(self) -> Array:
        """Mean absolute code of each atom over the rows that use it (k,); zero for an atom that none does."""
        used = np.maximum((self.codes != 0).sum(axis=0), 1)
        return np.asarray(np.abs(self.codes).sum(axis=0) / used)


@dataclass(frozen=True)
class ReportContext:
    """All that the report of one run needs to know. Panels read it and change nothing."""

    title: str
    """What the page calls it."""

    kind: str
    """Name of the estimator."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    """How it was run."""

    data: Mapping[str, Any] = field(default_factory=dict)
    """On what: names and values to show."""

    fingerprint: str | None = None
    """What tells this data from any other, where known."""

    software: Mapping[str, str] = field(default_factory=dict)
    """Versions, and the machine."""

    history: Sequence[Evaluation] = ()
    """How it went, oldest first."""

    objective_name: str = "held-out objective"
    """What :attr:`Evaluation.objective` is."""

    objective_is_error: bool = False
    """Whether that is an error of predictions, which compares between runs that minimise different things."""

    stopped_by: str | None = None
    """What ended it: "n_epochs", "tol", "max_time", "callback" or "interrupt"; None while it runs."""

    convergence: str = ""
    """Whether it has settled, in words; empty where that is not known."""

    components: Array | None = None
    """The atoms (k, p)."""

    geometry: tuple[int, ...] | None = None
    """Shape of an atom as a picture."""

    feature_names: Sequence[str] | None = None
    """What features are called."""

    sample: RowSample | None = None
    """Some rows, coded."""

    feature_visits: float | None = None
    """Mean number of steps in which each feature was seen, where steps see some features only."""

    n_unseen_features: int = 0
    """Features that no step has seen."""

    warnings: Sequence[str] = ()
    """What else the reader should know, in full sentences."""

    panels: Sequence[Panel] = ()
    """What the estimator adds to the page."""

    beside_held_out: bool = False
    """Whether it is compared with a run that has held-out rows, so that only these tell how it went."""

    def shaped(self, geometry: tuple[int, ...]) -> ReportContext:
        """Return the context with atoms as pictures of this shape, refusing one that does not fit them."""
        shaped = replace(self, geometry=tuple(geometry))
        if self.components is not None and shaped.picture_shape is None:
            raise ParameterError(
                f"geometry must be (height, width) or (height, width, 3) with {self.components.shape[1]} entries, "
                f"as many as there are features, got {geometry!r}"
            )
        return shaped

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.stopped_by is None

    @property
    def last(self) -> Evaluation | None:
        """The newest line of the history."""
        return self.history[-1] if self.history else None

    @cached_property
    def held_out(self) -> bool:
        """Whether the objective on held-out rows tells how it went."""
        return self.beside_held_out or any(line.objective is not None for line in self.history)

    @property
    def progress_name(self) -> str:
        """What :attr:`progress` is."""
        return self.objective_name if self.held_out else "surrogate"

    @cached_property
    def progress(self) -> Array:
        """The figure that falls: the held-out objective where there is one, else the surrogate; NaN where unknown."""
        values = [line.objective if self.held_out else line.surrogate for line in self.history]
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)

    @property
    def known_progress(self) -> Array:
        """The figures of :attr:`progress` that are known."""
        return self.progress[np.isfinite(self.progress)]

    @cached_property
    def atom_order(self) -> Indices:
        """Atoms in the order to show them: the most used first where rows tell, else as they are numbered."""
        if self.sample is not None:
            return np.argsort(-np.abs(self.sample.codes).sum(axis=0), kind="stable")
        return np.arange(0 if self.components is None else len(self.components))

    @cached_property
    def similarity(self) -> Similarity:
        """How alike the atoms are."""
        return similarity(np.zeros((0, 1)) if self.components is None else self.components, self.atom_order)

    @property
    def picture_shape(self) -> tuple[int, int, int] | None:
        """Height, width and channels (1 or 3) of an atom, where it can be shown as a picture."""
        shape, n_features = self.geometry or (), 0 if self.components is None else self.components.shape[1]
        if len(shape) == 2:
            shape = (*shape, 1)
        fits = len(shape) == 3 and shape[2] in (1, 3) and math.prod(shape) == n_features
        return (shape[0], shape[1], shape[2]) if fits else None
