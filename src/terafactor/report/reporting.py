"""The mixin that adds reports to an estimator."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.errors import MissingDependencyError
from terafactor.report.compact import compact
from terafactor.report.context import ReportContext, RowSample
from terafactor.report.page import write_report
from terafactor.report.panel import Panel
from terafactor.report.sample import sample_rows
from terafactor.report.software import software
from terafactor.solver import Evaluation


class Reporting:
    """Mixin of estimators with ``components_`` and ``history_``: adds ``report``, and a compact report in notebooks.

    A subclass returns additional panels from :meth:`panels`, and opens rows in :meth:`_rows_to_show`.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from terafactor import MaskedDictionaryLearning
    >>> X = np.random.default_rng(0).standard_normal((60, 8))
    >>> model = MaskedDictionaryLearning(3, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.report(f"{folder}/out.html", X).name
    'out.html'
    """

    components_: Array

    def report(
        self,
        path: str | Path,
        X: Any = None,
        *,
        title: str | None = None,
        geometry: tuple[int, ...] | None = None,
    ) -> Path:
        """Write a self-contained HTML page about the model; return its path.

        Parameters
        ----------
        path : path
            The HTML file; replaced if it exists.
        X : any input of fit, optional
            Rows to show: which atoms they use, and how well they are reconstructed. A few hundred of them are read.
        title : str, optional
            By default the name of the estimator.
        geometry : tuple of int, optional
            Shape of a row as a picture: (height, width), or (height, width, 3) for RGB. By default the geometry of the
            source, if it has one.
        """
        context = self._report_context(X, title=title)
        return write_report(path, context if geometry is None else context.shaped(geometry))

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """Return the notebook output: the diagram of scikit-learn and, for a fitted model, a compact report."""
        shown: dict[str, str] = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in shown and hasattr(self, "components_"):
            with contextlib.suppress(MissingDependencyError):  # show the diagram alone
                shown["text/html"] += compact(self._report_context(panels=()))
        return shown

    def panels(self) -> Sequence[Panel]:
        """Return panels to add to the standard ones."""
        return ()

    def _link(self, directory: Path) -> None:
        """Add links to other files in a directory to the reports in it; by default none."""

    def _check_usable(self) -> None:
        """Raise an error unless the model can be shown."""
        check_is_fitted(self, "components_")

    def _rows_to_show(self, X: Any) -> MatrixSource:
        """Return the rows of X as a source."""
        raise NotImplementedError

    def _report_context(self, X: Any = None, *, title: str | None = None, **details: Any) -> ReportContext:
        """Return the report context of this model; ``details`` replace its fields."""
        self._check_usable()
        source = None if X is None else self._rows_to_show(X)
        found: dict[str, Any] = {
            "title": title or type(self).__name__,
            "kind": type(self).__name__,
            "parameters": _parameters(self),
            "data": {"features": self.components_.shape[1]} if source is None else describe(source),
            "software": software(),
            "history": getattr(self, "history_", ()),
            "stopped_by": getattr(self, "stopped_by_", None) or "n_epochs",
            "components": self.components_,
            "geometry": getattr(self, "geometry_", None),
            "feature_names": _feature_names(self),
            "advice": getattr(self, "_advice", ()),
            "sample": None if source is None else self._sample(source),
            **_visits(self),
        }
        found |= details
        found["convergence"] = self._progress(found["history"])
        if "panels" not in details:  # they may be slow to make
            found["panels"] = self.panels()
        return ReportContext(**found)

    def _progress(self, history: Sequence[Evaluation]) -> str:
        """Return whether the fit has converged, as text; empty if unknown."""
        return ""

    def _sample(self, source: MatrixSource) -> RowSample:
        return sample_rows(source, self.transform, self.inverse_transform)  # type: ignore[attr-defined]


def run_details(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of the report context that come from the configuration of a run."""
    facts = dict(config.get("data", {}))
    if isinstance(facts.get("source"), Mapping) and "source" in facts["source"]:  # with a selection of columns
        facts |= facts["source"]
    removed = {name: facts.pop(name, None) for name in ("fingerprint", "row_bytes", "shape")}
    if removed["shape"]:
        facts |= {"rows": f"{removed['shape'][0]:,}", "features": f"{removed['shape'][1]:,}"}
    held_out = config.get("holdout", {})
    for unit in ("rows", "ratings"):
        if isinstance(held_out, Mapping) and held_out.get(unit):
            facts[f"{unit} held out"] = f"{held_out[unit]:,}"
    facts |= {"seed": config["seed"]} if "seed" in config else {}
    return {"data": facts, "fingerprint": removed["fingerprint"]}


def describe(source: MatrixSource) -> dict[str, Any]:
    """Return facts about the data to show."""
    n_rows, n_features = source.shape
    facts: dict[str, Any] = {"rows": f"{n_rows:,}", "features": f"{n_features:,}", "dtype": str(source.dtype)}
    if len(source.records) > 1:
        facts["records"] = f"{len(source.records):,}"
    if source.geometry is not None:
        facts["geometry"] = " x ".join(map(str, source.geometry))
    return facts | {"in memory": "yes" if source.in_memory else "no"}


def _parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters, with the chosen value instead of "auto"."""
    chosen = {name: getattr(estimator, f"{name}_", None) for name in ("statistics", "reduction", "alpha", "batch_size")}
    return estimator.get_params(deep=False) | {name: value for name, value in chosen.items() if value is not None}


def _feature_names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _visits(estimator: Any) -> dict[str, Any]:
    """Return how many steps saw each feature, if steps see some features only."""
    counts = getattr(estimator, "feature_counts_", None)
    if counts is None:
        return {}
    reduction = getattr(estimator, "reduction_", estimator.reduction)
    masked = getattr(estimator, "statistics_", None) == "masked" and reduction > 1
    visits = estimator.n_steps_ / math.ceil(reduction) if masked else None
    return {"feature_visits": visits, "n_unseen_features": int((counts == 0).sum())}
