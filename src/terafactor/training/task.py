"""The interface between an estimator and the :class:`~terafactor.training.Trainer`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terafactor._random import resolve_seed
from terafactor._typing import Array
from terafactor.report.page import write_report
from terafactor.report.reporting import run_details
from terafactor.runs.artifact import Artifact
from terafactor.runs.parameters import plain_parameters
from terafactor.solver.callbacks import Callback, Evaluation
from terafactor.solver.loop import Elapsed, RunningFit
from terafactor.solver.state_dict import StateDict


@dataclass(frozen=True)
class Start:
    """The starting point of a fit.

    Examples
    --------
    >>> from terafactor.training import Start
    >>> Start(seed=0).state_dict is None
    True
    """

    seed: int
    """Seed given by ``random_state``."""

    state_dict: StateDict | None = None
    """State of an interrupted fit to resume; None for a new fit."""

    elapsed: Elapsed | None = None
    """Time and bytes that the interrupted fit had used."""


class Task(ABC):
    """One training of an estimator. ``data`` is what :meth:`open_data` returns; the Trainer only passes it on.

    Parameters
    ----------
    estimator : estimator
        Has the parameters, and receives the learned attributes.

    Examples
    --------
    >>> from terafactor.training import Task
    >>> from terafactor import MaskedDictionaryLearning
    >>> task = MaskedDictionaryLearning(3, random_state=7)._task()
    >>> isinstance(task, Task), task.seed()
    (True, 7)
    """

    kind: str
    """Name of the estimator in model files."""

    objective_name = "held-out objective"
    """Name of what :meth:`objective` evaluates."""

    shows_rows = True
    """Whether reports show single rows of the data."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    @property
    def row_name(self) -> str:
        """What rows are."""
        return "rows"

    def seed(self) -> int:
        """Return the seed given by ``random_state``."""
        return resolve_seed(self.estimator.random_state)

    @abstractmethod
    def open_data(self, X: Any) -> Any:
        """Open and validate the data once, after checking the parameters."""

    @abstractmethod
    def describe_data(self, data: Any) -> dict[str, Any]:
        """Return shape, dtype and so on as plain values, with a ``fingerprint`` that identifies the data.

        ``row_bytes`` is the size of a full row, from which a run computes the share of the data that it reads.
        """

    @abstractmethod
    def hold_out(self, data: Any, amount: Any, seed: int) -> tuple[Any, Any, dict[str, Any]]:
        """Return training data, held-out data (or None), and a plain description of the choice.

        amount: the user's request, None for the default, or the description that an earlier call returned.
        """

    @abstractmethod
    def open_validation(self, X: Any, data: Any) -> Any:
        """Open validation data of the user, in the form of :meth:`hold_out`. data: the training data."""

    @abstractmethod
    def objective(self, held_out: Any) -> Callable[[RunningFit], float]:
        """Return a function that evaluates a running fit on held-out data."""

    @abstractmethod
    def prepare(self, data: Any, start: Start) -> None:
        """Do everything that precedes the first step. It may be interrupted at any time."""

    @abstractmethod
    def learn(self, data: Any, callbacks: Sequence[Callback]) -> None:
        """Run the steps and set the learned attributes, whatever ended the fit."""

    def review(self, data: Any) -> list[Any]:
        """Return warnings (``text``, ``category``) about a finished fit; raise DataError if it learned nothing."""
        return []

    def commit(self) -> None:  # noqa: B027, most tasks have nothing to do
        """Complete a successful training. A failure before it restores the attributes of the estimator."""

    @abstractmethod
    def state_dict(self, state_dict: StateDict | None = None) -> StateDict:
        """Return the content of a model file. state_dict: state of the running fit, for a checkpoint."""

    @abstractmethod
    def restore(self, state_dict: StateDict) -> None:
        """Set the learned attributes from the content of a model file or checkpoint."""

    def artifact(self, state_dict: StateDict | None = None) -> Artifact:
        """Return the content of a model file, or of a checkpoint of the running fit."""
        parameters = plain_parameters(self.estimator.get_params(deep=False))
        content = self.state_dict(state_dict)
        if advice := getattr(self.estimator, "_advice", None):
            content = StateDict({"advice": advice, **content.numbers}, content.arrays)
        return Artifact(self.kind, parameters, content)

    def present(
        self,
        directory: Path,
        config: Mapping[str, Any],
        data: Any,
        history: Sequence[Evaluation],
        atoms: Array | None = None,
    ) -> None:
        """Write ``report.html`` of a run: of the finished model, or of ``atoms`` (k, p) while it runs."""
        model, state = self.estimator, {}
        if atoms is not None:
            model, state = copy(model), {"stopped_by": None}
            model.components_ = atoms
        context = model._report_context(data, title=directory.name, history=history, **run_details(config), **state)
        write_report(directory / "report.html", context)
