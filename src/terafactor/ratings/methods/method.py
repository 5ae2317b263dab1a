"""The interface of a learning algorithm for ratings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from terafactor._threads import Threads
from terafactor.ratings.serving.model import Codes, RatingModel
from terafactor.ratings.table.history import RatingUpdate
from terafactor.ratings.table.table import RatingTable
from terafactor.solver.callbacks import Callback
from terafactor.solver.loop import Elapsed, RunningFit
from terafactor.solver.state_dict import StateDict


class Method(Protocol):
    """A learning algorithm. Its state has ``n_steps``, ``state_dict``, ``warm_start`` and ``resized``."""

    @property
    def n_threads(self) -> int:
        """Number of threads; the result does not depend on it."""

    def learn(
        self,
        table: RatingTable,
        callbacks: Sequence[Callback] = (),
        *,
        start: StateDict | None = None,
        elapsed: Elapsed | None = None,
    ) -> Any:
        """Return the state after learning from a table, from scratch or from a state_dict."""

    def learn_more(self, state: Any, update: RatingUpdate, callbacks: Sequence[Callback] = ()) -> Any:
        """Return a new state after learning from the users with new or changed ratings, in the order of their numbers.

        New users and new items have the last numbers.
        """

    def item_model_builder(self, table: RatingTable) -> Callable[[RunningFit], RatingModel]:
        """Return a function that builds the item side of the model from a running fit on ``table``."""

    def item_model(self, state: Any) -> RatingModel:
        """Return the item side of the model."""

    def codes(self, state: Any, table: RatingTable, threads: Threads) -> Codes:
        """Return the codes of the users of a table that the state has learned from."""

    def last_codes(self, state_dict: StateDict) -> Codes | None:
        """Return the codes that the last step of each user computed, None if the state_dict does not hold them.

        Users not visited yet get the average user's code.
        """

    def from_state_dict(self, state_dict: StateDict) -> Any:
        """Return the state stored in a state_dict."""
