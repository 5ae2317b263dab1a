"""Report contexts for tests of panels and pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from terafactor._typing import Array
from terafactor.report import ReportContext, RowSample
from terafactor.report.sample import examples, explained_share
from terafactor.solver import Evaluation


def make_history(n_lines: int = 20, *, held_out: bool = True) -> list[Evaluation]:
    """Return a history whose objective decreases from 11 toward 1.

    Examples
    --------
    >>> from terafactor.testing import make_history
    >>> [line.objective for line in make_history(2)]
    [11.0, 6.0]
    """
    return [
        Evaluation(
            step=5 * line,
            n_samples=200 * line,
            seconds=0.5 * line,
            bytes_read=80_000 * line,
            surrogate=20 / line - 5,
            objective=1 + 10 / line if held_out else None,
            sparsity=8 - line / n_lines,
            memory=2 * 10**8 + 10**5 * line,
            n_reseeded=0,
        )
        for line in range(1, n_lines + 1)
    ]


def make_sample(components: Array, n_rows: int = 40, *, density: float = 0.3) -> RowSample:
    """Return a sample of rows: sparse combinations of the atoms ``components`` (k, p), with noise.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.testing import make_sample
    >>> make_sample(np.eye(3)).codes.shape
    (40, 3)
    """
    random = np.random.default_rng(1)
    codes = random.standard_normal((n_rows, len(components))) * (random.random((n_rows, len(components))) < density)
    exact = codes @ components
    values = exact + 0.1 * random.standard_normal(exact.shape)
    explained = explained_share(values, exact)
    return RowSample(codes, explained, examples(values, exact, explained, "row {}".format))


def make_report_context(n_atoms: int = 12, shape: tuple[int, ...] = (6, 5), **changes: Any) -> ReportContext:
    """Return the context of a finished run on pictures; ``changes`` replace its fields.

    Examples
    --------
    >>> from terafactor.testing import make_report_context
    >>> make_report_context(stopped_by=None).running
    True
    """
    components = np.random.default_rng(0).standard_normal((n_atoms, int(np.prod(shape))))
    found: dict[str, Any] = {
        "title": "a run",
        "kind": "MaskedDictionaryLearning",
        "parameters": {"alpha": 0.5, "n_components": n_atoms, "reduction": 4, "n_epochs": 2, "tol": 0.0},
        "data": {"rows": "4,000", "features": str(components.shape[1])},
        "software": {"numpy": "2"},
        "history": make_history(),
        "stopped_by": "n_epochs",
        "components": components,
        "geometry": shape,
        "sample": make_sample(components),
    }
    return ReportContext(**(found | changes))
