"""Training of MatrixCompletion: ``fit`` and ``partial_fit``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from terafactor._threads import Threads
from terafactor._typing import Array, is_number
from terafactor.errors import DataError, ParameterError
from terafactor.kernels.jit import announcing_compilation
from terafactor.kernels.ratings import row_width
from terafactor.ratings.evaluation.metrics import rmse
from terafactor.ratings.methods.method import Method
from terafactor.ratings.parameters import check_parameters, method_of
from terafactor.ratings.serving.model import Codes, RatingModel
from terafactor.ratings.table.history import RatingHistory
from terafactor.ratings.table.holdout import HeldOut, hold_out_ratings
from terafactor.ratings.table.ids import Ids, as_ids, match_id_types
from terafactor.ratings.table.table import RatingTable
from terafactor.solver.callbacks import Callback
from terafactor.solver.loop import RunningFit
from terafactor.solver.state_dict import StateDict
from terafactor.training.task import Start, Task

if TYPE_CHECKING:
    from terafactor.ratings.matrix_completion import MatrixCompletion

logger = logging.getLogger("terafactor")


class RatingsTask(Task):
    """Learns from a table of ratings: ``fit``."""

    kind = "MatrixCompletion"
    objective_name = "RMSE on held-out ratings"
    shows_rows = False
    estimator: MatrixCompletion
    start: Start
    """Set by :meth:`prepare`, as is ``method``."""

    method: Method
    held_out: RatingTable | None = None
    """Set by :meth:`hold_out`. ``recommend`` excludes these items, too."""

    @property
    def row_name(self) -> str:
        return self.estimator.stream

    def open_data(self, X: Any) -> RatingTable:
        check_parameters(self.estimator)
        return self.estimator._open_rated(X)

    def describe_data(self, data: RatingTable) -> dict[str, Any]:
        return {"shape": list(data.shape), "ratings": len(data), "fingerprint": data.fingerprint()}

    def hold_out(self, data: RatingTable, amount: Any, seed: int) -> tuple[RatingTable, HeldOut | None, dict[str, Any]]:
        train, held_out, choice = hold_out_ratings(data, amount, seed)
        self.held_out = None if held_out is None else held_out.test
        return train, held_out, choice

    def open_validation(self, X: Any, data: RatingTable) -> HeldOut:
        return HeldOut(data, _renumbered(self.estimator._open(X), data))

    def objective(self, held_out: HeldOut) -> Callable[[RunningFit], float]:
        model, method = self.estimator, method_of(self.estimator, seed=0)  # evaluation draws no random numbers
        train, test = (oriented(table, model.stream) for table in (held_out.train, held_out.test))
        tested = np.zeros(train.shape[0], bool)
        tested[test.users[test.users >= 0]] = True
        rows = train.take(tested[train.users]).by_user()
        item_model = method.item_model_builder(train)
        low, high = (float(bound(train.values)) for bound in (np.min, np.max))

        def evaluate(running: RunningFit) -> float:
            with Threads(method.n_threads) as threads:
                items = item_model(running)
                predicted = items.with_users(items.encode(*rows, threads)).predict(test.users, test.items, threads)
            return rmse(np.clip(predicted, low, high) if model.clip else predicted, test.values)

        return evaluate

    def prepare(self, data: RatingTable, start: Start) -> None:
        model = self.estimator
        self.method, self.start = method_of(model, start.seed), start
        model._seed, model._ids = start.seed, (data.user_ids, data.item_ids)
        model.range_ = low, high = (float(data.values.min()), float(data.values.max()))
        if self.held_out is not None:
            n_held_out = len(self.held_out)
            logger.info("held out %s of %s ratings for evaluation", f"{n_held_out:,}", f"{len(data) + n_held_out:,}")
        if low == high:
            logger.warning(
                "all ratings are %g, and so are all predictions: nothing can be learned from equal ratings, such as "
                "clicks or purchases recorded as 1", low,
            )  # fmt: skip

    def learn(self, data: RatingTable, callbacks: Sequence[Callback]) -> None:
        model, method, start = self.estimator, self.method, self.start
        rows = oriented(data, model.stream)
        state_dict = None if start.state_dict is None else start.state_dict.section("state")
        model._state = method.learn(rows, callbacks, start=state_dict, elapsed=start.elapsed)
        with Threads(method.n_threads) as threads:
            codes = method.codes(model._state, rows, threads)
        self._set_model(codes, data.user_ids, data.item_ids)
        model._history = RatingHistory.of(data, self.held_out)

    def _set_model(self, codes: Codes, users: Ids, items: Ids) -> None:
        """Set the fitted model; ``codes`` are those of the streamed side."""
        model = self.method.item_model(self.estimator._state)
        model = model.transposed(codes) if self.estimator.stream == "items" else model.with_users(codes)
        for factors in (model.user_factors, model.item_factors):
            if factors.size and not np.isfinite([factors.min(), factors.max()]).all():
                raise DataError("the fit diverged to NaN or infinity: rescale the ratings and fit again")
        self.estimator._set_model(model, users, items)

    def state_dict(self, state_dict: StateDict | None = None) -> StateDict:
        model = self.estimator
        if state_dict is None:
            check_is_fitted(model, "users_")
            users, items = model._known
            parts = {"state": model._state.state_dict(), "model": model._model.state_dict()}
            parts["seen"] = model._history.state_dict()
        else:
            (users, items), parts = model._ids, {"state": state_dict}
        parts = {"users": users.state_dict(), "items": items.state_dict(), **parts}
        whole = StateDict({"seed": model._seed, "low": model.range_[0], "high": model.range_[1]})
        for name, part in parts.items():
            whole = whole.merged_with(part.prefixed(name))
        return whole

    def restore(self, state_dict: StateDict) -> None:
        model, state = self.estimator, state_dict.section("state")
        model._seed = state_dict.number("seed")
        self.method = method_of(model, model._seed)
        model._state = self.method.from_state_dict(state)
        users, items = (
            Ids.from_state_dict(state_dict.section("users")),
            Ids.from_state_dict(state_dict.section("items")),
        )
        model._ids = (users, items)
        model.range_ = (state_dict.number("low", float), state_dict.number("high", float))
        if "model.item_factors" not in state_dict.arrays:
            self._restore_checkpoint(state, users, items)
            return
        learned = RatingModel.from_state_dict(state_dict.section("model"), int(model.n_components))
        if (len(learned.user_factors), len(learned.item_factors)) != (len(users), len(items)):
            raise DataError("invalid number of ids in the model file: not written by terafactor, or corrupted")
        model._set_model(learned, users, items)
        model._history = RatingHistory.from_state_dict(state_dict.section("seen"), len(users), len(items))

    def _restore_checkpoint(self, state: StateDict, users: Ids, items: Ids) -> None:
        """Set the model of a checkpoint, which holds no ratings and possibly no codes.

        Without codes the model has no known users; ``transform`` and ``histories`` still encode any user.
        """
        codes = self.method.last_codes(state)
        if codes is None:
            empty = np.zeros((0, row_width(int(self.estimator.n_components))), np.float32)
            codes, users = Codes(empty, empty, np.zeros(0, np.float32)), Ids(users.values[:0])
        self._set_model(codes, users, items)
        self.estimator._history = RatingHistory.empty(len(users), complete=False)


class PartialRatingsTask(RatingsTask):
    """Learns from further ratings: ``partial_fit``."""

    def seed(self) -> int:
        return self.estimator._seed

    def open_data(self, X: Any) -> RatingTable:
        """Return the ratings with the numbers of the model; new users and items get the next numbers."""
        check_parameters(self.estimator)
        self._check_unchanged()
        given, (known_users, known_items) = self.estimator._open_rated(X), self.estimator._known
        user_ids, users = known_users.extended(_of_the_same_type("user", given.user_ids.values, known_users.values))
        item_ids, items = known_items.extended(_of_the_same_type("item", given.item_ids.values, known_items.values))
        numbers = (users[given.users].astype(np.int32), items[given.items].astype(np.int32))
        table = RatingTable(*numbers, given.values, user_ids, item_ids, given.times)
        return table.without_duplicates(self.estimator.duplicates)  # 7 and "7" may have become one

    def _check_unchanged(self) -> None:
        """Refuse changed parameters that do not fit the learned state."""
        for name, before in self.estimator._fitted_with.items():
            now = getattr(self.estimator, name)
            if now != before:
                raise ParameterError(
                    f"{name} is {now!r}, but the model was fitted with {before!r}: reset it, or call fit"
                )

    def prepare(self, data: RatingTable, start: Start) -> None:
        self.method = method_of(self.estimator, start.seed)

    @announcing_compilation("ratings")
    def learn(self, data: RatingTable, callbacks: Sequence[Callback]) -> None:
        model, method, by_items = self.estimator, self.method, self.estimator.stream == "items"
        rows = oriented(data, model.stream)
        update = (model._history.transposed(len(model.items_)) if by_items else model._history).updated(rows)
        if update.n_without_ratings:
            logger.warning(
                "the model does not hold the earlier ratings of %d of these %s (it is a checkpoint, or from an earlier "
                "version): their codes are computed from X alone, so pass all of their ratings",
                update.n_without_ratings, model.stream,
            )  # fmt: skip
        if len(update.rows):
            model._state = method.learn_more(model._state, update, callbacks)
        else:
            model._state = model._state.resized(*rows.shape)
        with Threads(method.n_threads) as threads:
            codes = method.codes(model._state, update.rows, threads)
        codes = codes.updating(self._codes_before(), np.unique(update.rows.users))
        self._set_model(codes, data.user_ids, data.item_ids)
        model._history = update.history.transposed(rows.shape[1]) if by_items else update.history
        low, high = model.range_
        model.range_ = (min(low, float(data.values.min())), max(high, float(data.values.max())))

    def _codes_before(self) -> Codes:
        """Return the codes of the streamed side, before this call."""
        model = self.estimator._model
        if self.estimator.stream == "items":
            return Codes(model.item_factors, model.item_variances, model.item_biases)
        return Codes(model.user_factors, np.zeros_like(model.user_factors), model.user_biases)


def _of_the_same_type(role: str, given: Array, known: Array) -> Array:
    """Return ids converted to the type of the known ids; refuse those that cannot be, if these have one type."""
    if known.dtype == object or given.dtype.kind == known.dtype.kind:
        return given
    ids = as_ids(match_id_types(known, given.tolist()))
    other = [] if known.dtype.kind == "U" else [value for value in ids.tolist() if not is_number(value, Integral)]
    if other:
        raise DataError(
            f"{role} {other[0]!r} is not an integer, as the {role}s of the model are: correct it, or fit again with "
            "all ids as text"
        )
    return ids


def oriented(table: RatingTable, stream: str) -> RatingTable:
    """Return the table with the streamed side, "users" or "items", as users."""
    return table.transposed() if stream == "items" else table


def _renumbered(table: RatingTable, known: RatingTable) -> RatingTable:
    """Return ratings with the numbers of another table, -1 for users and items that are not in it."""
    users = known.user_ids.find(table.user_ids.values)[table.users]
    items = known.item_ids.find(table.item_ids.values)[table.items]
    return RatingTable(
        users.astype(np.int32), items.astype(np.int32), table.values, known.user_ids, known.item_ids, table.times
    )
