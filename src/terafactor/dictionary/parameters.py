"""From the parameters of MaskedDictionaryLearning to a problem, solver options and initial atoms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted

from terafactor import solver
from terafactor._checks import check_flag
from terafactor._random import resolve_seed
from terafactor._threads import resolve_threads
from terafactor._typing import Array
from terafactor.data import MatrixSource
from terafactor.data.masks import masks_of
from terafactor.data.source import MUST_BE_FINITE, check_finite
from terafactor.dictionary import defaults
from terafactor.errors import DataError, ParameterError
from terafactor.problem import PowerDecay, Problem, RandomMasks
from terafactor.problem.constraints import resolve_constraint
from terafactor.problem.masks import resolve_masks
from terafactor.problem.penalties import resolve_penalty
from terafactor.solver.convergence import CONVERGED
from terafactor.solver.options import SolverOptions

if TYPE_CHECKING:
    from terafactor.dictionary.estimator import MaskedDictionaryLearning


def problem_of(estimator: MaskedDictionaryLearning) -> Problem:
    """Return the problem. Before a fit with ``alpha="auto"`` its alpha is 0."""
    alpha = estimator.alpha
    if isinstance(alpha, str) and alpha != "auto":
        raise ParameterError(f"alpha must be 'auto' or a number >= 0, got {alpha!r}")
    positive_code = check_flag("positive_code", estimator.positive_code)
    positive_dict = check_flag("positive_dict", estimator.positive_dict)
    return Problem(
        alpha=getattr(estimator, "alpha_", 0.0) if alpha == "auto" else alpha,
        penalty=resolve_penalty(estimator.penalty, positive=positive_code),
        constraint=resolve_constraint(estimator.constraint, positive=positive_dict),
    )


def options_of(estimator: MaskedDictionaryLearning, source: MatrixSource, **changes: Any) -> SolverOptions:
    """Return the solver options for a source, with every "auto" resolved."""
    n_rows, n_features = source.shape
    masks = resolve_masks(estimator.reduction)
    by_source = "full" if source.in_memory else "masked"
    auto: dict[str, Any] = {
        "batch_size": lambda: defaults.batch_size(estimator.n_components, n_features),
        "n_epochs": lambda: defaults.most_passes(source, estimator.n_components),
        "tol": CONVERGED if estimator.n_epochs == "auto" else 0.0,
        "shards": estimator._auto_shards,
        "round_steps": lambda: defaults.round_steps(estimator.n_components),
    }
    values: dict[str, Any] = {
        "n_components": estimator.n_components,
        "reduction": masks.reduction,
        "statistics": by_source if masks.statistics == "auto" else masks.statistics,
        "projection": masks.projection,
        "max_time": estimator.max_time,
        "missing": estimator.missing is not None,
        "n_threads": resolve_threads(estimator.n_threads),
    }
    for name, automatic in auto.items():
        values[name] = getattr(estimator, name)
        if isinstance(values[name], str) and values[name] == "auto":
            SolverOptions(estimator.n_components)  # refuses an invalid n_components, which the defaults need
            values[name] = automatic() if callable(automatic) else automatic
    if "seed" not in changes:
        values["seed"] = resolve_seed(estimator.random_state)
    options = SolverOptions(**(values | changes))
    if estimator.forgetting != "auto":
        return replace(options, schedule=PowerDecay(estimator.forgetting))
    return replace(options, schedule=defaults.schedule(options, n_rows if options.shuffle else None))


def resumed_options(estimator: MaskedDictionaryLearning, source: MatrixSource, **changes: Any) -> SolverOptions:
    """Return the options to continue a fit; "auto" is what the fit so far used."""
    for name in ("reduction", "shards", "round_steps"):
        if getattr(estimator, name) == "auto" and hasattr(estimator, f"{name}_"):
            changes[name] = getattr(estimator, f"{name}_")
    if resolve_masks(estimator.reduction).statistics == "auto" and hasattr(estimator, "statistics_"):
        changes["statistics"] = estimator.statistics_
    options = options_of(estimator, source, **changes)
    masks_of(source, options.reduction, seed=0)  # refuse one above the number of features before anything changes
    return options


def upgrade(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a file in the current form; in older files, those of masks are separate parameters."""
    present = dict(parameters)
    statistics, projection = present.pop("statistics", "auto"), present.pop("projection", "masked")
    if (statistics, projection) != ("auto", "masked") and present.get("reduction") != "auto":
        present["reduction"] = RandomMasks(present.get("reduction", 1), statistics, projection)
    return present


def initial_atoms(
    estimator: MaskedDictionaryLearning, source: MatrixSource, problem: Problem, options: SolverOptions
) -> Array:
    """Return the atoms (k, p) given by ``init``, or made from the first rows visited."""
    if estimator.init is None:
        return solver.starting_atoms(source, problem, options)
    if hasattr(estimator.init, "components_"):
        check_usable(estimator.init)
    given = getattr(estimator.init, "components_", estimator.init)
    if isinstance(given, BaseEstimator):
        raise ParameterError(
            "init is an estimator that is not fitted (clone and grid searches discard fitted attributes): "
            "pass its components_ instead"
        )
    if isinstance(given, str):
        raise ParameterError(f"init must be None, an array of atoms or a fitted estimator, got {given!r}")
    needed = (options.n_components, source.shape[1])
    if np.shape(given) != needed:
        raise ParameterError(f"init has shape {np.shape(given)}, but n_components and the features of X need {needed}")
    atoms = check_array(given, dtype=[source.dtype], input_name="init", ensure_all_finite=False)
    check_finite(atoms, "init", about_nan=MUST_BE_FINITE)
    atoms = problem.constraint.project(atoms)
    if not atoms.any():
        positive = " (with positive_dict, its negative entries are)" if problem.constraint.positive else ""
        raise ParameterError(
            f"init is zero everywhere{positive}, and zero atoms cannot be learned: pass nonzero atoms, or None to use "
            "rows of X"
        )
    return atoms


def check_usable(model: MaskedDictionaryLearning) -> None:
    """Raise an error if the model is not fitted, or if ``partial_fit`` failed after it began to change the model."""
    check_is_fitted(model, "components_")
    if hasattr(model, "_state") and not model._state.intact:
        raise DataError(
            "the model is unusable, because partial_fit failed while it was changing the model: call fit, or load a "
            "saved model"
        )
