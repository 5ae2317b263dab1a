"""Options that commands share, with one declaration per parameter of an estimator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from terafactor.cli.parsing import (
    absolute_path,
    column_roles,
    integer_or_auto,
    masks_or_auto,
    number_or_auto,
)

PROBLEM, SOLVER, RUN, IMAGES, CLUSTER_PANEL = "Problem", "Solver", "Run", "Images", "Cluster"
"""Panels of the help pages."""

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="Data file, packed store, quoted glob, or file.h5::/name.", show_default=False
    ),
]
Columns = Annotated[str | None, typer.Option(metavar="A,B,...", help="Read only these columns of a table.")]
Drop = Annotated[str | None, typer.Option(metavar="A,B,...", help="Skip these columns of a table, such as names.")]
RunFolder = Annotated[Path, typer.Option(metavar="DIR", help="New run directory.", rich_help_panel=RUN)]
Holdout = Annotated[
    str | None,
    typer.Option(
        metavar="AMOUNT",
        help="Rows held out for evaluation: 500, 5%, '2 records' or 0; default: 5%, at most 2,000 rows.",
        rich_help_panel=RUN,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, metavar="N", help="Number of threads; default: one per core.")
]
Resample = Annotated[
    bool, typer.Option("--resample", help="Resample images to the space of the mask.", rich_help_panel=IMAGES)
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        "--column", metavar="ROLE=NAME", help="Name of the user, item, rating or time column; time= ignores times."
    ),
]


Values = dict[str, Any]
"""Parameter values by name."""


@dataclass(frozen=True)
class Parameter:
    """A parameter, usually of an estimator, as a command-line option."""

    name: str
    """Name of the parameter."""

    annotation: Any
    """Type of the option, with its Typer settings."""

    default: Any
    """Default, in the form that the option takes."""

    option: str = ""
    """Name of the option as an identifier; by default the name of the parameter."""

    parse: Callable[[str, Any], Any] | None = None
    """Function of the option's name and text that returns the value of the parameter."""

    def __post_init__(self) -> None:
        if not self.option:
            object.__setattr__(self, "option", self.name)

    def value(self, given: Any) -> Any:
        """Return the value of the parameter for the given value of its option."""
        return given if self.parse is None or given is None else self.parse(self.option.replace("_", "-"), given)


def option(kind: Any, panel: str, text: str, *names: str, **settings: Any) -> Any:
    """Return the annotation of an option of a type, with a help text in a panel of the help page."""
    return Annotated[kind, typer.Option(*names, help=text, rich_help_panel=panel, **settings)]


def or_auto(panel: str, letter: str, text: str) -> Any:
    """Return the annotation of an option that is a number or "auto"."""
    return option(str, panel, text, metavar=f"{letter}|auto")


def components(what: str, default: int) -> Parameter:
    """Return the option for the number of atoms, maps or factors."""
    text = f"Number of {what}."
    annotation = option(int, PROBLEM, text, "--components", "-k", min=1, metavar="K")
    return Parameter("n_components", annotation, default, "components")


PROJECTION = Parameter(
    "projection",
    option(
        Literal["masked", "exact"],
        SOLVER,
        "With --statistics masked: project masked entries, or whole atoms (exact).",
        metavar="NAME",
    ),
    "masked",
)
SHARDS = Parameter(
    "shards", or_auto(SOLVER, "W", "Shards of the rows that learn in parallel."), "auto", parse=integer_or_auto
)
ROUND_STEPS = Parameter(
    "round_steps", or_auto(SOLVER, "H", "Steps of each shard between merges."), "auto", parse=integer_or_auto
)
FORGETTING = Parameter(
    "forgetting",
    or_auto(SOLVER, "W", "Weight t^-W of step t; auto: growing window."),
    "auto",
    parse=number_or_auto,
)
MAX_TIME = Parameter(
    "max_time", option(float | None, SOLVER, "Stop after this time; default: no limit.", metavar="SECONDS"), None
)
SEED = Parameter(
    "random_state",
    option(int | None, SOLVER, "Seed for reproducible results; default: random.", min=0, metavar="N"),
    None,
    "seed",
)
THREADS = Parameter("n_threads", Threads, None, "threads")

DICTIONARY = (
    components("atoms", 20),
    Parameter(
        "alpha", or_auto(PROBLEM, "A", "Strength of the penalty; auto: adapted to X."), "auto", parse=number_or_auto
    ),
    Parameter(
        "penalty",
        option(str, PROBLEM, "On codes: l1 (sparse), l2 (dense), omp:N, ...", metavar="NAME"),
        "l1",
    ),
    Parameter(
        "constraint",
        option(str, PROBLEM, "On atoms: l2 (dense), l1 (sparse), ...", metavar="NAME"),
        "l2",
    ),
    Parameter("positive_code", option(bool, PROBLEM, "Require codes >= 0.", "--positive-code"), False),
    Parameter("positive_dict", option(bool, PROBLEM, "Require atoms >= 0.", "--positive-dict"), False),
    Parameter(
        "missing",
        option(
            Literal["nan", "absent"] | None,
            PROBLEM,
            "Missing values: nan, or absent (not stored); default: none.",
            metavar="NAME",
        ),
        None,
    ),
    Parameter(
        "reduction",
        or_auto(SOLVER, "R", "Use 1/R of the features per step; auto: all."),
        "auto",
        parse=masks_or_auto,
    ),
    SHARDS,
    ROUND_STEPS,
    Parameter("batch_size", or_auto(SOLVER, "B", "Rows per step; auto: two per atom."), "auto", parse=integer_or_auto),
    Parameter(
        "n_epochs",
        or_auto(SOLVER, "N", "Passes over the data; auto: until convergence."),
        "auto",
        "epochs",
        number_or_auto,
    ),
    FORGETTING,
    Parameter(
        "tol",
        or_auto(SOLVER, "T", "Relative tolerance; auto: 0.005, 0 with --epochs."),
        "auto",
        parse=number_or_auto,
    ),
    MAX_TIME,
    SEED,
    THREADS,
)
"""Parameters of MaskedDictionaryLearning."""

BRAIN = (
    Parameter(
        "mask", option(Path | None, IMAGES, "Mask image; default: computed.", metavar="FILE"), None, parse=absolute_path
    ),
    Parameter("resample", Resample, False),
    Parameter(
        "global_signal",
        option(Literal["regress"] | None, IMAGES, "regress: regress out the mean over voxels.", metavar="NAME"),
        None,
    ),
    components("maps", 20),
    Parameter(
        "alpha", option(float, PROBLEM, "Strength of the penalty; larger gives sparser maps.", metavar="A"), 2e-4
    ),
    Parameter("positive_dict", option(bool, PROBLEM, "Require maps >= 0.", "--positive-dict"), False),
    Parameter("reduction", option(float, SOLVER, "Use 1/R of the voxels per step.", metavar="R"), 1.0),
    Parameter("batch_size", option(int, SOLVER, "Volumes per step.", min=1, metavar="B"), 40),
    Parameter(
        "n_epochs",
        option(
            float | None, SOLVER, "Passes; default: enough for 150 steps and 30 updates of each voxel.", metavar="N"
        ),
        None,
        "epochs",
    ),
    SHARDS,
    ROUND_STEPS,
    FORGETTING,
    Parameter(
        "tol", option(float, SOLVER, "Relative decrease of the objective to stop at; 0: never.", metavar="T"), 0.0
    ),
    MAX_TIME,
    SEED,
    THREADS,
)
"""Parameters of BrainDictionaryLearning."""

RATINGS = (
    components("factors", 30),
    Parameter(
        "alpha",
        option(float | None, PROBLEM, "Strength of the ridge penalty; default: learned.", metavar="A"),
        None,
    ),
    Parameter(
        "statistics",
        option(str, PROBLEM, "per_feature, or masked: the algorithm of the paper.", metavar="NAME"),
        "per_feature",
    ),
    Parameter("explicit_biases", option(bool, PROBLEM, "Restrict two factors to biases.", "--explicit-biases"), False),
    Parameter("clip", option(bool, PROBLEM, "Clip predictions to the range of the ratings."), True),
    Parameter("stream", option(str, SOLVER, "Make mini-batches of users or items.", metavar="NAME"), "users"),
    PROJECTION,
    Parameter(
        "codes",
        option(
            str, SOLVER, "With --statistics masked: codes for predictions, recomputed (refit) or last.", metavar="NAME"
        ),
        "refit",
    ),
    Parameter(
        "damping",
        option(float, SOLVER, "With --statistics masked: pseudo-ratings per user and item.", metavar="N"),
        0.0,
    ),
    Parameter(
        "forgetting", option(float, SOLVER, "With --statistics masked: weight t^-W of step t.", metavar="W"), 0.9
    ),
    Parameter("memory", option(float, SOLVER, "Passes until the weight of a rating is 1/e.", metavar="N"), 0.56),
    Parameter(
        "batch_size", option(int | None, SOLVER, "Users per step; default: a tenth of them.", min=1, metavar="B"), None
    ),
    Parameter("n_epochs", option(float, SOLVER, "Passes over the ratings.", metavar="N"), 8.0, "epochs"),
    Parameter(
        "tol", option(float, SOLVER, "Relative change of the error per pass to stop at; 0: never.", metavar="T"), 0.0
    ),
    MAX_TIME,
    SEED,
    Parameter(
        "duplicates", option(str, RUN, "If a pair is rated twice: error, last or mean.", metavar="NAME"), "error"
    ),
    Parameter("columns", Column, None, "column", column_roles),
    THREADS,
)
"""Parameters of MatrixCompletion."""

CLUSTER = (
    Parameter(
        "scheduler",
        option(str | None, CLUSTER_PANEL, "Address of the Dask scheduler of a cluster.", metavar="ADDRESS"),
        None,
    ),
    Parameter(
        "scheduler_file",
        option(Path | None, CLUSTER_PANEL, "Scheduler file of the Dask cluster.", metavar="FILE"),
        None,
    ),
    Parameter(
        "local_cluster",
        option(int | None, CLUSTER_PANEL, "Start N worker processes on this machine.", min=1, metavar="N"),
        None,
    ),
)
"""Ways to name a Dask cluster."""

CHECKPOINTS = (
    Parameter(
        "seconds",
        option(float, RUN, "Seconds between checkpoints.", min=0.01, metavar="S"),
        60.0,
        "checkpoint_seconds",
    ),
    Parameter(
        "steps",
        option(int | None, RUN, "Also write a checkpoint every N steps.", min=1, metavar="N"),
        None,
        "checkpoint_steps",
    ),
    Parameter(
        "keep_every",
        option(int | None, RUN, "Also keep every N-th; the last two are always kept.", min=1, metavar="N"),
        None,
    ),
)
"""Fields of CheckpointPolicy."""

OPTION_OF = {parameter.name: parameter.option for parameter in (*DICTIONARY, *BRAIN, *RATINGS)}
"""Option names by parameter names."""


def some(table: tuple[Parameter, ...], *names: str, **changes: Any) -> tuple[Parameter, ...]:
    """Return the named parameters of a table, with changed fields."""
    return tuple(replace(parameter, **changes) for parameter in table if parameter.name in names)


def offering(**tables: tuple[Parameter, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces arguments of a command with the options in tables.

    The command receives, in each of these arguments, the parameter values of its table by name.
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
    """Return the signature of a command with options instead of its arguments that have a table."""
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
