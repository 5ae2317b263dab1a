"""The content of a report: one run, or one fitted model, as plain data."""

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
    """One row and its reconstruction.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.report import Example
    >>> example = Example("worst", "row 12", np.ones(3), np.array([1.0, 1.0, 0.0]), explained=2 / 3)
    """

    label: str
    """What it is an example of, such as "worst"."""

    row: str
    """Its position in the data, such as "row 12" or "row 12 of a.npy"."""

    values: Array
    """The row (p,); NaN where a value is missing."""

    reconstruction: Array
    """Its code times the dictionary (p,)."""

    explained: float
    """Share of its squared norm that the reconstruction explains, at most 1."""


@dataclass(frozen=True)
class RowSample:
    """A sample of rows, with their codes and reconstruction errors.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.report import RowSample
    >>> sample = RowSample(codes=np.array([[1.0, 0.0], [2.0, 1.0]]), explained=np.array([0.9, 0.8]))
    >>> sample.usage
    array([1. , 0.5])
    """

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
        """Mean absolute code of each atom over the rows that use it (k,); zero for an atom that no row uses."""
        used = np.maximum((self.codes != 0).sum(axis=0), 1)
        return np.asarray(np.abs(self.codes).sum(axis=0) / used)


@dataclass(frozen=True)
class ReportContext:
    """The content of the report of one run. Panels must not modify it.

    Examples
    --------
    >>> from terafactor.report import ReportContext
    >>> context = ReportContext(title="first run", kind="MaskedDictionaryLearning", parameters={"alpha": 0.5})
    >>> context.running
    True
    """

    title: str
    """Title of the run."""

    kind: str
    """Name of the estimator."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the estimator."""

    data: Mapping[str, Any] = field(default_factory=dict)
    """Description of the data: names and values to show."""

    fingerprint: str | None = None
    """Digest of the data, if known."""

    software: Mapping[str, str] = field(default_factory=dict)
    """Versions, and the machine."""

    history: Sequence[Evaluation] = ()
    """Evaluations during the run, oldest first."""

    objective_name: str = "held-out objective"
    """Name of :attr:`Evaluation.objective`."""

    row_name: str = "rows"
    """What rows are."""

    feature_name: str = "features"
    """What features are."""

    atom_name: str = "atoms"
    """What atoms are."""

    objective_is_error: bool = False
    """Whether the objective is a prediction error, comparable between runs that minimize different objectives."""

    stopped_by: str | None = None
    """What ended the run: "n_epochs", "tol", "max_time", "callback" or "interrupt"; None while it runs."""

    convergence: str = ""
    """Whether the fit has converged, as text; empty if unknown."""

    components: Array | None = None
    """The atoms (k, p)."""

    geometry: tuple[int, ...] | None = None
    """Shape of an atom as a picture."""

    feature_names: Sequence[str] | None = None
    """Names of the features."""

    sample: RowSample | None = None
    """A sample of rows."""

    feature_visits: float | None = None
    """Mean number of steps that saw each feature, if steps see some features only."""

    n_unseen_features: int = 0
    """Features that no step has seen."""

    advice: Sequence[str] = ()
    """Warnings of the fit about its result."""

    warnings: Sequence[str] = ()
    """Further notices: full sentences."""

    panels: Sequence[Panel] = ()
    """Panels that the estimator adds to the page."""

    compared_on_held_out: bool = False
    """Whether the run is compared with one that has held-out rows, so that only these measure progress."""

    def shaped(self, geometry: tuple[int, ...]) -> ReportContext:
        """Return the context with atoms as pictures of this shape; refuse a shape that does not fit them."""
        shaped = replace(self, geometry=tuple(geometry))
        if self.components is not None and shaped.picture_shape is None:
            raise ParameterError(
                f"geometry must be (height, width) or (height, width, 3) with {self.components.shape[1]} entries, "
                f"as many as there are features, got {geometry!r}"
            )
        return shaped

    @property
    def running(self) -> bool:
        """Whether the run has not ended yet."""
        return self.stopped_by is None

    @property
    def last(self) -> Evaluation | None:
        """The newest evaluation."""
        return self.history[-1] if self.history else None

    @cached_property
    def held_out(self) -> bool:
        """Whether progress is measured on held-out rows."""
        return self.compared_on_held_out or any(line.objective is not None for line in self.history)

    @property
    def progress_name(self) -> str:
        """Name of :attr:`progress`."""
        return self.objective_name if self.held_out else "surrogate"

    @cached_property
    def progress(self) -> Array:
        """The held-out objective of each evaluation or, without one, the surrogate (n,); NaN where unknown."""
        values = [line.objective if self.held_out else line.surrogate for line in self.history]
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)

    @property
    def known_progress(self) -> Array:
        """The known values of :attr:`progress` (m,)."""
        return self.progress[np.isfinite(self.progress)]

    @cached_property
    def atom_order(self) -> Indices:
        """Atoms (k,) in display order: those that most rows use first; by number if there is no sample of rows."""
        if self.sample is not None:
            return np.lexsort([-self.sample.magnitude, -self.sample.usage])
        return np.arange(0 if self.components is None else len(self.components))

    @cached_property
    def similarity(self) -> Similarity:
        """Cosines between the atoms."""
        return similarity(np.zeros((0, 1)) if self.components is None else self.components, self.atom_order)

    @property
    def picture_shape(self) -> tuple[int, int, int] | None:
        """Height, width and channels (1 or 3) of an atom, if it can be shown as a picture."""
        shape, n_features = self.geometry or (), 0 if self.components is None else self.components.shape[1]
        if len(shape) == 2:
            shape = (*shape, 1)
        fits = len(shape) == 3 and shape[2] in (1, 3) and math.prod(shape) == n_features
        return (shape[0], shape[1], shape[2]) if fits else None
