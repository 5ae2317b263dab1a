"""What a way to learn from ratings has to offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from terafactor._threads import Executor
from terafactor._typing import Array
from terafactor.ratings.serving.model import Codes, RatingModel
from terafactor.ratings.table.table import RatingTable
from terafactor.solver.callbacks import Callback
from terafactor.solver.loop import Elapsed, RunningFit
from terafactor.solver.state_dict import StateDict


class Method(Protocol):
    """A way to learn. Its state is its own affair; it has ``n_steps``, ``state_dict()`` and ``rewound()``."""

    @property
    def n_threads(self) -> int:
        """Threads; the result does not depend on it."""

    def learn(
        self,
        table: RatingTable,
        callbacks: Sequence[Callback] = (),
        *,
        start: StateDict | None = None,
        elapsed: Elapsed | None = None,
    ) -> Any:
        """Return the state after learning from a table, from the beginning or from a state_dict."""

    def learn_more(self, state: Any, rows: RatingTable, known: Array, callbacks: Sequence[Callback] = ()) -> Any:
        """Return the state after learning from rows of users, which leaves the one given as it is.

        Users are taken in the order of their numbers, a batch at a time; new ones and new items come last.
        known (n_before,): which of the users that were there before had ratings.
        """

    def watching(self, table: RatingTable) -> Callable[[RunningFit], RatingModel]:
        """Return what tells the model, without users, of a learner that learns from ``table``."""

    def model(self, state: Any) -> RatingModel:
        """Return the model of a state, without users."""

    def codes(self, state: Any, table: RatingTable, executor: Executor) -> Codes:
        """Return the codes of the users of the table that the state learned from."""

    def last_codes(self, state_dict: StateDict) -> Codes | None:
        """Return the codes of users as their last steps computed them, None if a state_dict does not hold them.

        Those of users who were not yet coded are average.
        """

    def from_state_dict(self, state_dict: StateDict) -> Any:
        """Return the state of a state_dict."""
