"""What a kind of model contributes to its training; the :class:`~terafactor.training.Trainer` does the rest."""

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
    """Where a fit starts, or resumes."""

    seed: int
    """What ``random_state`` stands for."""

    state_dict: StateDict | None = None
    """State of an interrupted fit; None starts from the beginning."""

    elapsed: Elapsed | None = None
    """Time and bytes that the interrupted fit had used."""

    validation: Any = None
    """Data given for validation, on which choices may be made, too."""


class Task(ABC):
    """One training of an estimator. ``data`` is whatever :meth:`open_data` returns: the Trainer only passes it on.

    Parameters
    ----------
    estimator : estimator
        Holds the parameters, and gets the learned attributes.
    """

    kind: str
    """Name of the model in the table of model files."""

    shows_rows = True
    """Whether reports show single rows of the data."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def seed(self) -> int:
        """Return the seed that ``random_state`` stands for."""
        return resolve_seed(self.estimator.random_state)

    @abstractmethod
    def open_data(self, X: Any) -> Any:
        """Return the data to learn from, opened and validated once; wrong parameters are refused first."""

    @abstractmethod
    def describe_data(self, data: Any) -> dict[str, Any]:
        """Return shape and the like as plain values, with a ``fingerprint`` that identifies the data.

        ``row_bytes``, the bytes of a full row, lets a run show how much less it reads.
        """

    @abstractmethod
    def hold_out(self, data: Any, amount: Any, seed: int) -> tuple[Any, Any, dict[str, Any]]:
        """Return data to learn from, data to evaluate on (or None), and a plain description of the choice.

        amount: what the user asked for, None for the default, or the description that an earlier call returned.
        """

    @abstractmethod
    def open_validation(self, X: Any, data: Any) -> Any:
        """Return validation data of the user, as :meth:`hold_out` returns it. data: what is learned from."""

    @abstractmethod
    def objective(self, held_out: Any) -> Callable[[RunningFit], float]:
        """Return a function that evaluates a running learner on held-out data."""

    @abstractmethod
    def prepare(self, data: Any, start: Start) -> None:
        """Make all choices that come before the first step. May be interrupted at any time."""

    @abstractmethod
    def learn(self, data: Any, callbacks: Sequence[Callback]) -> None:
        """Do the steps, and set the learned attributes, whatever ended them."""

    def review(self, data: Any) -> list[Any]:
        """Return warnings (``text`` and ``category``) about a fit that has ended; refuse one that learned nothing."""
        return []

    @abstractmethod
    def state_dict(self, state_dict: StateDict | None = None) -> StateDict:
        """Return the content of a model file. state_dict: that of the running learner, for a checkpoint."""

    @abstractmethod
    def restore(self, state_dict: StateDict) -> None:
        """Set the learned attributes from the content of a model file or a checkpoint."""

    def artifact(self, state_dict: StateDict | None = None) -> Artifact:
        """Return the model, or a state_dict of the running fit, as a file holds it."""
        parameters = plain_parameters(self.estimator.get_params(deep=False))
        return Artifact(self.kind, parameters, self.state_dict(state_dict))

    def present(
        self,
        directory: Path,
        config: Mapping[str, Any],
        data: Any,
        history: Sequence[Evaluation],
        atoms: Array | None = None,
    ) -> None:
        """Write ``report.html`` of a run: of the finished model, or of these ``atoms`` (k, p) while it runs."""
        model, state = self.estimator, {}
        if atoms is not None:
            model, state = copy(model), {"stopped_by": None}
            model.components_ = atoms
        context = model._report_context(data, title=directory.name, history=history, **run_details(config), **state)
        write_report(directory / "report.html", context)
