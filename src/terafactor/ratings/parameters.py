"""Validation of the parameters of MatrixCompletion, and the learning algorithm that they select."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from terafactor._checks import check_flag
from terafactor._threads import resolve_threads
from terafactor._typing import is_number
from terafactor.errors import ParameterError
from terafactor.ratings.methods.masked import MaskedMethod
from terafactor.ratings.methods.method import Method
from terafactor.ratings.methods.per_item import PerItemMethod
from terafactor.ratings.methods.step import CompletionOptions

MASKED_ALPHA = 1.0
"""Default alpha of the algorithm of the paper for ratings from 1 to 5; cross-validation on MovieLens-1M selects 1.1."""


def method_of(estimator: Any, seed: int) -> Method:
    """Return the learning algorithm of an estimator, after validating its parameters."""
    check_parameters(estimator)
    common: dict[str, Any] = {
        "n_components": int(estimator.n_components), "seed": seed, "batch_size": estimator.batch_size,
        "n_epochs": estimator.n_epochs, "tol": estimator.tol, "max_time": estimator.max_time,
        "n_threads": resolve_threads(estimator.n_threads),
    }  # fmt: skip
    if estimator.statistics == "per_feature":
        return PerItemMethod(
            options=CompletionOptions(estimator.alpha, estimator.memory, estimator.explicit_biases),
            keep_codes=estimator.stream == "items",
            **common,
        )
    return MaskedMethod(
        alpha=MASKED_ALPHA if estimator.alpha is None else estimator.alpha, projection=estimator.projection,
        damping=estimator.damping, refit=estimator.codes == "refit", forgetting=estimator.forgetting, **common,
    )  # fmt: skip


def check_parameters(estimator: Any) -> None:
    """Refuse invalid parameters; the solver validates those that only it uses."""
    _one_of("statistics", estimator.statistics, "per_feature", "masked")
    _one_of("stream", estimator.stream, "users", "items")
    _one_of("codes", estimator.codes, "refit", "last")
    check_flag("clip", estimator.clip)
    minimum = 2 if check_flag("explicit_biases", estimator.explicit_biases) else 1
    if not (is_number(estimator.n_components, Integral) and estimator.n_components >= minimum):
        reason = " (explicit_biases takes two of them)" if minimum == 2 else ""
        raise ParameterError(f"n_components must be an integer >= {minimum}, got {estimator.n_components!r}{reason}")
    if estimator.alpha is not None and not (is_number(estimator.alpha, Real) and 0 < estimator.alpha < math.inf):
        raise ParameterError(f"alpha must be a number > 0, or None to learn it, got {estimator.alpha!r}")
    if estimator.batch_size is not None and not (
        is_number(estimator.batch_size, Integral) and estimator.batch_size >= 1
    ):
        raise ParameterError(f"batch_size must be an integer >= 1 or None, got {estimator.batch_size!r}")
    if estimator.max_time is not None and not (is_number(estimator.max_time, Real) and estimator.max_time > 0):
        raise ParameterError(f"max_time must be a number of seconds > 0, or None, got {estimator.max_time!r}")
    for name, value in (("memory", estimator.memory), ("n_epochs", estimator.n_epochs)):
        if not (is_number(value, Real) and 0 < value < math.inf):
            raise ParameterError(f"{name} must be a number > 0, got {value!r}")
    for name, value in (("damping", estimator.damping), ("tol", estimator.tol)):
        if not (is_number(value, Real) and 0 <= value < math.inf):
            raise ParameterError(f"{name} must be a number >= 0, got {value!r}")


def _one_of(name: str, value: object, *choices: str) -> None:
    if value not in choices:
        raise ParameterError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")
