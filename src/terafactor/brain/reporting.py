"""Reports of atlases: panels of maps, and a page for each map."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from terafactor import solver
from terafactor._durable import write_durably
from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.brain.kinds import ImageKind
from terafactor.brain.panels import AtlasPanel, SeriesPanel, SparsityPanel
from terafactor.data import MatrixSource
from terafactor.data.views.rows import SelectedRows, whole_records
from terafactor.errors import DataError, StorageError
from terafactor.problem import Problem
from terafactor.report import Panel, ReportContext, Reporting, RowSample
from terafactor.report.sample import sample_rows

logger = logging.getLogger("terafactor")

MAX_VOLUMES = 400
"""Largest number of volumes whose series are drawn."""

PAGES = "maps"
"""Folder of the pages of single maps, next to the report."""


class AtlasReporting(Reporting):
    """Mixin of :class:`BrainDictionaryLearning`: adds reports with maps."""

    _kind: ImageKind
    masker_: Any
    background_: Array | None
    n_threads: int | None
    _problem: Callable[[], Problem]
    labels_: Sequence[tuple[str, float]]
    _pages: Sequence[str]

    def report(
        self,
        path: str | Path,
        X: Any = None,
        *,
        title: str | None = None,
        geometry: tuple[int, ...] | None = None,
        viewers: bool = False,
    ) -> Path:
        """Write an HTML report on the atlas that needs no network, and return its path.

        Parameters
        ----------
        path : path
            The HTML file; replaced if it exists.
        X : images, optional
            Images whose series are shown.
        title : str, optional
            By default the name of the estimator.
        geometry : ignored
        viewers : bool
            Whether to write an interactive page for each map to the folder ``maps`` next to the report.
        """
        if viewers:
            self.write_viewers(Path(path).parent)
        return super().report(path, X, title=title)

    def write_viewers(self, folder: str | Path) -> list[Path]:
        """Write an interactive page for each map to ``folder/maps``, and return the paths."""
        pages = Path(folder) / PAGES
        if pages.is_symlink():
            raise StorageError(OSError(errno.ELOOP, "it is a symbolic link"), pages)
        written = []
        for number, row in enumerate(self.components_):
            page = self._kind.viewer(self.masker_, row, self.background_, f"map {number}")
            if page is None:
                return []
            written.append(pages / _page_name(number))
            write_durably(written[-1], page.encode())
        self._link(Path(folder))
        return written

    def _link(self, directory: Path) -> None:
        """Link the reports in a directory to the pages of single maps, if all of these exist."""
        pages = [f"{PAGES}/{_page_name(number)}" for number in range(len(self.components_))]
        self._pages = pages if all((directory / page).is_file() for page in pages) else []

    def panels(self) -> Sequence[Panel]:
        background = np.ones(self.components_.shape[1], np.float32) if self.background_ is None else self.background_
        drawn = self._kind.volumes(self.masker_, np.vstack([self.components_, background]))
        if drawn is None:
            return [SparsityPanel()]
        volumes, sizes = drawn
        labels = [name for name, _ in getattr(self, "labels_", ())]  # not set yet while a fit runs
        linked = getattr(self, "_pages", ())
        return [AtlasPanel(volumes[..., :-1], volumes[..., -1], sizes, labels, linked), SparsityPanel()]

    def _encode(self, source: MatrixSource) -> Array:
        atoms = np.ascontiguousarray(self.components_, source.dtype)
        return solver.encode(source, atoms, self._problem(), resolve_threads(self.n_threads))

    def _sample(self, source: MatrixSource) -> RowSample:
        return sample_rows(source, self._encode, lambda codes: np.asarray(codes @ self.components_))

    def _source_to_show(self, X: Any, details: dict[str, Any]) -> tuple[MatrixSource | None, dict[str, Any]]:
        """Return the rows to show; None, with a warning on the page, if the images cannot be read."""
        if X is None:
            return None, details
        try:
            return self._rows_to_show(X), details
        except DataError as error:
            warning = f"The images cannot be read, so no series are shown: {error}"
            logger.warning("incomplete report: %s", warning)
            return None, details | {"warnings": [*details.get("warnings", ()), warning]}

    def _report_context(self, X: Any = None, *, title: str | None = None, **details: Any) -> ReportContext:
        """Return the context, with the series of one run if there are images."""
        source, details = self._source_to_show(X, details)
        if source is not None:
            images = source.base if isinstance(source, SelectedRows) else source  # held-out rows are a part of a run
            run = SelectedRows(images, whole_records(images)[0][:MAX_VOLUMES])
            series = SeriesPanel(images.record_label(0), self._encode(run))
            details = {"panels": [*self.panels(), series]} | details
        if "data" in details:
            details["data"] = _without_paths(details["data"])
        return super()._report_context(source, title=title, **details)


def _without_paths(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of the data of a run with the number of images instead of their paths."""
    source = facts.get("source")
    if not isinstance(source, Mapping):
        return dict(facts)
    images = source.get("images")
    summary = {"images": f"{len(images):,}" if isinstance(images, list) else images}
    if isinstance(source.get("confounds"), str):
        summary["confounds"] = source["confounds"]
    return summary | {name: value for name, value in facts.items() if name != "source"}


def _page_name(number: int) -> str:
    """Return the file name of the page of a map."""
    return f"map-{number:03d}.html"
