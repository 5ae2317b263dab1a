"""``terafactor ratings``: fit, evaluate, predict and recommend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from terafactor._format import counted, printable
from terafactor.cli.config import Config
from terafactor.cli.fit import show_held_out, train_in_directory
from terafactor.cli.options import CHECKPOINTS, RATINGS, RUN, Column, Json, RunFolder, Threads, Values, offering
from terafactor.cli.parsing import column_roles
from terafactor.cli.transform import load_kind

app = typer.Typer(name="ratings", help="Predict explicit ratings and recommend items.", no_args_is_help=True)

FIT_EXAMPLE = "Example: terafactor ratings fit ratings.csv -k 30 --out run/"
EVALUATE_EXAMPLE = "Example: terafactor ratings evaluate run/ test.csv -n 10"
PREDICT_EXAMPLE = "Example: terafactor ratings predict run/ pairs.csv --out predicted.csv"
RECOMMEND_EXAMPLE = "Example: terafactor ratings recommend run/ --user 42 -n 10 --titles movies.csv"

UNDEFINED = "undefined: no known user has a relevant item that is new to the model"

File = Annotated[
    Path, typer.Argument(metavar="RATINGS", help="File or folder: .csv, .tsv, .dat, .data, .inter, .parquet or .npz.")
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Run directory or model.", exists=True, file_okay=False)]
Count = Annotated[int, typer.Option("-n", min=1, metavar="N", help="Number of items per user.")]


@app.command(epilog=FIT_EXAMPLE)
@offering(parameters=RATINGS, checkpoints=CHECKPOINTS)
def fit(
    source: File,
    out: RunFolder,
    parameters: Values,
    checkpoints: Values,
    holdout: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            help="Ratings held out for evaluation: 5000, 10%, 0 for none; default: 5%, at most 100,000 ratings.",
            rich_help_panel=RUN,
        ),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Fit a model to ratings in a run directory, with checkpoints and a report."""
    from terafactor import MatrixCompletion

    estimator = MatrixCompletion(**parameters)
    train_in_directory(estimator, source, out, checkpoints, as_json, holdout=holdout)
    show_held_out(out)


@app.command(epilog=EVALUATE_EXAMPLE)
def evaluate(
    model: Model,
    ratings: File,
    n: Count = 10,
    relevant: Annotated[
        float | None, typer.Option(metavar="R", help="Lowest rating of a relevant item; default: the mean rating.")
    ] = None,
    duplicates: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="If a pair is rated twice: error, last or mean; default: as in the fit."),
    ] = None,
    column: Column = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Evaluate predictions (RMSE, MAE) and recommendations (NDCG, recall) on test ratings."""
    from terafactor.ratings.evaluation.evaluate import evaluate_model

    estimator = load_kind(model, "MatrixCompletion", threads)
    given = {"duplicates": duplicates, "columns": column_roles("column", column)}
    estimator.set_params(**{name: value for name, value in given.items() if value is not None})
    facts = evaluate_model(estimator, estimator._open_rated(ratings), n, relevant)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        if value or not name.startswith("unknown"):
            shown = UNDEFINED if value is None else f"{value:.6g}" if isinstance(value, float) else value
            typer.echo(f"{name.replace('_', ' '):>13}  {shown}")


@app.command(epilog=PREDICT_EXAMPLE)
def predict(
    model: Model,
    pairs: Annotated[
        Path, typer.Argument(metavar="PAIRS", help="CSV, TSV or Parquet file with columns for user and item.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Table to write, .csv or .parquet; must not exist.")],
    column: Column = None,
    threads: Threads = None,
) -> None:
    """Predict the ratings of pairs of users and items: adds a column prediction to the table of pairs."""
    from terafactor.ratings.serving.output import add_predictions

    n_pairs = add_predictions(load_kind(model, "MatrixCompletion", threads), pairs, out, column_roles("column", column))
    typer.echo(f"wrote {counted(n_pairs, 'prediction')} to {printable(out)}", err=True)


@app.command(epilog=RECOMMEND_EXAMPLE)
def recommend(
    model: Model,
    user: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="User id; may be repeated; default: all users, with --out.")
    ] = None,
    n: Count = 10,
    titles: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Table of item titles, such as movies.csv.")
    ] = None,
    with_seen: Annotated[bool, typer.Option("--with-seen", help="Include items that the user has rated.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table to write, .parquet or .csv; must not exist."),
    ] = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Recommend items to some users, or write recommendations for all users to a file."""
    from terafactor.errors import ParameterError
    from terafactor.ratings.readers import read_titles
    from terafactor.ratings.serving.output import Recommendations

    if not user and out is None:
        raise ParameterError("pass --user for one user, or --out for a file with the recommendations of all users")
    estimator = load_kind(model, "MatrixCompletion", threads)
    known = {} if titles is None else read_titles(titles)
    found = Recommendations.of(estimator, user, n, exclude_seen=not with_seen, titles=known)
    if out is not None:
        found.write(out)
        typer.echo(f"wrote recommendations for {counted(len(found.users), 'user')} to {printable(out)}", err=True)
    elif as_json:
        typer.echo(json.dumps(found.records()))
    else:
        show(found)


def show(found: Any) -> None:
    """Print the recommendations of each user."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    for record in found.records():
        known = "" if record["known"] else " (unknown: items for the average user)"
        console.print(
            f"user {printable(record['user'])}{known}", style="italic", highlight=False, markup=False, soft_wrap=True
        )
        table = Table("", "item", "rating")
        for place, item in enumerate(record["items"], start=1):
            table.add_row(str(place), escape(printable(item.get("title", item["item"]))), f"{item['rating']:.2f}")
        console.print(table)
