"""How matrix completion reports on itself."""

from __future__ import annotations

from typing import Any

from terafactor.report import Reporting, Story


class RatingsReporting(Reporting):
    """What :class:`MatrixCompletion` tells its reports: the figure that falls is the RMSE, and features are items.

    Single rows are not shown: a user's few ratings are no picture of the factors.
    """

    def _story(self, X: Any = None, *, title: str | None = None, **details: Any) -> Story:
        known = {"objective_name": "held-out RMSE", "feature_names": self._item_names()}
        return super()._story(title=title, **(known | details))

    def _item_names(self) -> list[str] | None:
        """Return what items are called; None while a fit goes on that has not told them, or streams items."""
        items = getattr(self, "items_", ())
        return [f"item {item}" for item in items] if len(items) == self.components_.shape[1] else None
