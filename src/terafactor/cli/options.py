"""The options that commands share. Those that stand for parameters of estimators are declared here, once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from terafactor.cli.reading import (
    absolute_path,
    column_roles,
    constraint_named,
    integer_or_auto,
    number_or_auto,
    penalty_named,
)

PROBLEM, SOLVER, RUN, IMAGES = "Problem", "Solver", "Run", "Images"
"""Panels of the help of commands that fit."""

Source = Annotated[
    str,
    typer.Argument(metavar="SOURCE", help="A file, a quoted glob, a store, file.h5::/dataset, ...", show_default=False),
]
RunFolder = Annotated[Path, typer.Option(help="Run directory; must be new.", rich_help_panel=RUN)]
Holdout = Annotated[
    str | None,
    typer.Option(metavar="AMOUNT", help="Kept for evaluation: 500, 5%, '2 records'.", rich_help_panel=RUN),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, metavar="N", help="By default one per core.")]
Resample = Annotated[bool, typer.Option("--resample", help="Resample images in another space.", rich_help_panel=IMAGES)]
Column = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="ROLE=NAME", help="user=who: which column holds what; time= for none."),
]


Values = dict[str, Any]
"""Values of parameters by their names."""


@dataclass(frozen=True)
class Parameter:
    """A parameter, of an estimator for the most part, as an option."""

    name: str
    """That of the parameter."""

    annotation: Any
    """Type of the option and what Typer knows of it."""

    default: Any
    """In the form that the option takes."""

    option: str = ""
    """Name of the option as an identifier; by default that of the parameter."""

    read: Callable[[str, Any], Any] | None = None
    """Returns the value of the parameter from the name of the option and what was given for it."""

    def __post_init__(self) -> None:
        if not self.option:
            object.__setattr__(self, "option", self.name)

    def value(self, given: Any) -> Any:
        """Return the value of the parameter that is given by its option."""
        return given if self.read is None or given is None else self.read(self.option.replace("_", "-"), given)


def option(kind: Any, panel: str, text: str, *names: str, **settings: Any) -> Any:
    """Return the annotation of an option of a type, in a panel of the help, with a help text."""
    return Annotated[kind, typer.Option(*names, help=text, rich_help_panel=panel, **settings)]


def or_auto(panel: str, letter: str, text: str) -> Any:
    """Return the annotation of an option that is a number or "auto"."""
    return option(str, panel, text, metavar=f"{letter}|auto")


def components(what: str, default: int) -> Parameter:
    """Return the option of the number of atoms."""
    return Parameter("n_components", option(int, PROBLEM, what, "--components", "-k", min=1), default, "components")


PROJECTION = Parameter(
    "projection", option(Literal["masked", "exact"], SOLVER, "What of atoms is projected."), "masked"
)
POSITIVE_DICT = Parameter("positive_dict", option(bool, PROBLEM, "Atoms >= 0.", "--positive-dict"), False)
FORGETTING = Parameter(
    "forgetting", or_auto(SOLVER, "W", "Step t weighs t^-W; auto: a growing window."), "auto", read=number_or_auto
)
MAX_TIME = Parameter("max_time", option(float | None, SOLVER, "Stop after seconds."), None)
SEED = Parameter("random_state", option(int | None, SOLVER, "Same seed, same bits.", min=0), None, "seed")
THREADS = Parameter("n_threads", Threads, None, "threads")

DICTIONARY = (
    components("Atoms.", 20),
    Parameter(
        "alpha", or_auto(PROBLEM, "A", "Strength of the penalty; auto fits the scale."), "auto", read=number_or_auto
    ),
    Parameter("penalty", option(str, PROBLEM, "l1, l2 or elastic-net:RATIO."), "l1", read=penalty_named),
    Parameter("constraint", option(str, PROBLEM, "l1, l2 or elastic-net:RATIO."), "l2", read=constraint_named),
    Parameter("positive_code", option(bool, PROBLEM, "Codes >= 0.", "--positive-code"), False),
    POSITIVE_DICT,
    Parameter("missing", option(Literal["nan", "absent"] | None, PROBLEM, "What stands for missing values."), None),
    Parameter("reduction", or_auto(SOLVER, "R", "Use 1/R of the features per step."), "1", read=number_or_auto),
    Parameter("statistics", option(Literal["auto", "full", "masked"], SOLVER, "What steps learn from."), "auto"),
    PROJECTION,
    Parameter("batch_size", or_auto(SOLVER, "B", "Rows per step."), "auto", read=integer_or_auto),
    Parameter(
        "n_epochs", or_auto(SOLVER, "N", "Passes over the rows; auto: until settled."), "auto", "epochs", number_or_auto
    ),
    FORGETTING,
    Parameter("tol", or_auto(SOLVER, "T", "Stop when doubling the rows gains less."), "auto", read=number_or_auto),
    MAX_TIME,
    SEED,
    THREADS,
)
"""Parameters of MaskedDictionaryLearning."""

BRAIN = (
    Parameter("mask", option(Path | None, IMAGES, "Mask image; by default computed."), None, read=absolute_path),
    Parameter("resample", Resample, False),
    Parameter("global_signal", option(Literal["regress"] | None, IMAGES, "Regress out the mean over voxels."), None),
    components("Maps.", 20),
    Parameter("alpha", option(float, PROBLEM, "More makes maps sparser."), 2e-4),
    POSITIVE_DICT,
    Parameter("reduction", option(float, SOLVER, "Use 1/R of the voxels per step.", metavar="R"), 1.0),
    Parameter("batch_size", option(int, SOLVER, "Volumes per step.", min=1), 40),
    Parameter(
        "n_epochs",
        option(float | None, SOLVER, "Passes; by default at least 150 steps and 30 visits to each voxel."),
        None,
        "epochs",
    ),
    FORGETTING,
    Parameter("tol", option(float, SOLVER, "Stop when doubling the rows gains less; 0 never."), 0.0),
    MAX_TIME,
    SEED,
    THREADS,
)
"""Parameters of BrainDictionaryLearning."""

RATINGS = (
    components("Factors.", 30),
    Parameter("alpha", option(float | None, PROBLEM, "Strength of the ridge; learned if not given."), None),
    Parameter("statistics", option(str, PROBLEM, "per_feature, or masked for the paper's method."), "per_feature"),
    Parameter("explicit_biases", option(bool, PROBLEM, "Two factors stay biases.", "--explicit-biases"), False),
    Parameter("clip", option(bool, PROBLEM, "Predict within the range seen."), True),
    Parameter("stream", option(str, SOLVER, "users or items: what comes in batches."), "users"),
    PROJECTION,
    Parameter("codes", option(str, SOLVER, "refit or last."), "refit"),
    Parameter("damping", option(float, SOLVER, "Of biases, in ratings."), 0.0),
    Parameter("forgetting", option(float, SOLVER, "With masked: step t weighs t^-W.", metavar="W"), 0.9),
    Parameter("memory", option(float, SOLVER, "Passes that statistics remember."), 0.56),
    Parameter("batch_size", option(int | None, SOLVER, "Users per step.", min=1), None),
    Parameter("n_epochs", option(float, SOLVER, "Passes over the ratings."), 8.0, "epochs"),
    Parameter("tol", option(float, SOLVER, "Stop at this relative change; 0 never."), 0.0),
    MAX_TIME,
    SEED,
    Parameter("duplicates", option(str, RUN, "error, last or mean."), "error"),
    Parameter("columns", Column, None, "column", column_roles),
    THREADS,
)
"""Parameters of MatrixCompletion."""

CHECKPOINTS = (
    Parameter(
        "seconds",
        option(float, RUN, "Seconds between checkpoints.", min=0.01, metavar="S"),
        60.0,
        "checkpoint_seconds",
    ),
    Parameter(
        "steps",
        option(int | None, RUN, "Steps between checkpoints, too.", min=1, metavar="N"),
        None,
        "checkpoint_steps",
    ),
    Parameter("keep_every", option(int | None, RUN, "Keep every N-th by steps for good.", min=1, metavar="N"), None),
)
"""Fields of CheckpointPolicy."""

OPTIONS = {parameter.name: parameter.option for parameter in (*DICTIONARY, *BRAIN, *RATINGS)}
"""Options by the names of parameters."""


def some(table: tuple[Parameter, ...], *names: str, **changes: Any) -> tuple[Parameter, ...]:
    """Return some parameters of a table, with changes."""
    return tuple(replace(parameter, **changes) for parameter in table if parameter.name in names)


def offering(**tables: tuple[Parameter, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces arguments of a command by the options of tables.

    The command gets in each argument the values of the parameters in its table, by their names.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            for argument, table in tables.items():
                given[argument] = {each.name: each.value(given.pop(each.option)) for each in table}
            command(**given)

        with_options.__signature__ = _signature(command, tables)  # type: ignore[attr-defined]
        return with_options

    return decorate


def _signature(command: Callable[..., None], tables: Mapping[str, tuple[Parameter, ...]]) -> inspect.Signature:
    """Return the signature of a command with options in place of its arguments that have a table."""
    keyword, found = inspect.Parameter.KEYWORD_ONLY, list[inspect.Parameter]()
    for name, own in inspect.signature(command, eval_str=True).parameters.items():
        if name in tables:
            found += [
                inspect.Parameter(each.option, keyword, default=each.default, annotation=each.annotation)
                for each in tables[name]
            ]
        else:
            found.append(own.replace(kind=keyword))
    return inspect.Signature(found)
