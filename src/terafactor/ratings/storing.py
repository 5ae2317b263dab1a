"""Models of ratings in files and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from terafactor.errors import DataError
from terafactor.estimators.model_file import ModelFileMixin, known_parameters
from terafactor.ratings.ids import Ids
from terafactor.ratings.method import Method
from terafactor.ratings.model import Codes, RatingModel
from terafactor.ratings.panel import DirectionsPanel, NoSimilarityPanel
from terafactor.ratings.recommend import Seen
from terafactor.ratings.serving import Serving
from terafactor.report import Panel, Reporting, Story
from terafactor.runs.artifact import Artifact
from terafactor.runs.parameters import plain_parameters
from terafactor.solver.position import Position


class Storing(Serving, ModelFileMixin, Reporting, BaseEstimator):
    """Mixin of estimators that learned a :class:`RatingModel`: model files, checkpoints, reports."""

    shows_rows = False
    stream: str
    _seed: int

    def _method(self, seed: int) -> Method:
        raise NotImplementedError

    def to_artifact(self, position: Position | None = None) -> Artifact:
        """Return the model, or a position of the fit that is running, as what a file holds."""
        numbers: dict[str, Any] = {"seed": self._seed, "low": self.range_[0], "high": self.range_[1]}
        parts = {"users": self._ids[0].position(), "items": self._ids[1].position()}
        if position is None:
            check_is_fitted(self, "users_")
            parts |= {"users": self._known[0].position(), "items": self._known[1].position()}
            parts |= {"state": self._state.position(), "model": self._model.position()}
            parts["seen"] = Position({}, {"starts": self._seen.starts, "items": self._seen.items})
        else:
            parts["state"] = position
        for name, part in parts.items():
            numbers |= {f"{name}.{key}": value for key, value in part.numbers.items()}
        arrays = {f"{name}.{key}": array for name, part in parts.items() for key, array in part.arrays.items()}
        return Artifact(self.kind, plain_parameters(self.get_params(deep=False)), Position(numbers, arrays))

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Self:
        """Return the model that a file holds, ready to predict, recommend and learn more."""
        estimator, position = cls(**known_parameters(cls, artifact)), artifact.position
        estimator._seed = position.number("seed")
        method = estimator._method(estimator._seed)
        estimator._state = method.at(position.part("state"))
        users, items = Ids.at(position.part("users")), Ids.at(position.part("items"))
        estimator._ids = (users, items)
        estimator.range_ = (position.number("low", float), position.number("high", float))
        if "model.item_factors" not in position.arrays:
            return estimator._at_checkpoint(position.part("state"))
        model = RatingModel.at(position.part("model"), int(estimator.n_components))
        if (len(model.user_factors), len(model.item_factors)) != (len(users), len(items)):
            raise DataError("the file has other numbers of users or items than ids: it is not ours")
        estimator._set_model(model, users, items)
        seen = position.part("seen")
        estimator._seen = Seen(
            seen.array("starts", (len(users) + 1,), np.int64), seen.array("items", (None,), np.int32)
        )
        return estimator

    def _at_checkpoint(self, position: Position) -> Self:
        """Become the model of a checkpoint, which does not say who rated what, nor always which codes users have.

        Without codes nobody is known, and anybody can be folded in.
        """
        (users, items), method = self._ids, self._method(self._seed)
        model, codes = method.model(self._state), method.last_codes(position)
        if codes is None:
            none = np.zeros((0, model.item_factors.shape[1]), np.float32)
            codes, users = Codes(none, none, np.zeros(0, np.float32)), Ids(users.values[:0])
        self._set_model(self._completed(model, codes), users, items)
        self._seen = Seen.nothing(len(users))
        return self

    def _completed(self, model: RatingModel, codes: Codes) -> RatingModel:
        """Return the model of a method with the codes of what is streamed, users being users."""
        return model.turned_round(codes) if self.stream == "items" else model.with_users(codes)

    def panels(self) -> Sequence[Panel]:
        """Return what reports show in the place of atoms."""
        return (DirectionsPanel(), NoSimilarityPanel())

    def _story(self, X: Any = None, *, title: str | None = None, **details: Any) -> Story:
        """Return what a report is made from; rows of ratings are not shown one by one."""
        users, items = self._ids
        facts = {
            "users": f"{len(users):,}",
            "items": f"{len(items):,}",
            "range": f"{self.range_[0]:g} to {self.range_[1]:g}",
        }
        found: dict[str, Any] = {
            "data": facts, "objective_name": "RMSE on held-out ratings", "objective_is_error": True,
            "feature_names": [str(item) for item in items.values],
        }  # fmt: skip
        if self.stream == "items" and details.get("stopped_by", "") is None:
            found["components"] = None  # while such a run goes on, what it has are factors of users
        return super()._story(None, title=title, **(found | details))
