"""``terafactor brain``: fit, apply and report atlases of brain images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from terafactor._format import counted
from terafactor.cli.config import Config
from terafactor.cli.fit import train_in_directory
from terafactor.cli.options import (
    BRAIN,
    CHECKPOINTS,
    CLUSTER,
    IMAGES,
    RUN,
    Holdout,
    Json,
    Resample,
    RunFolder,
    Threads,
    Values,
    offering,
)
from terafactor.cli.transform import Model, check_absent, load_kind

FIT_EXAMPLE = (
    "Example: terafactor brain fit 'sub-*/func/*_bold.nii.gz' --confounds auto --mask mask.nii.gz -k 70 --alpha 1e-3 "
    "--out atlas/"
)
TRANSFORM_EXAMPLE = "Example: terafactor brain transform atlas/ run.nii.gz --out series.tsv"
REPORT_EXAMPLE = "Example: terafactor brain report atlas/ --labels regions.nii.gz --names regions.txt"

NAMES_HELP = "Names of the regions, one per line, starting with region 1; default: their numbers."

Viewers = Annotated[
    bool, typer.Option("--viewers/--no-viewers", help="Write a page for each map.", rich_help_panel=RUN)
]
Images = Annotated[
    list[str], typer.Argument(metavar="IMAGES...", help="Files, quoted globs or folders of BIDS derivatives.")
]
Confounds = Annotated[
    str | None,
    typer.Option(
        metavar="auto|GLOB",
        help="auto: tables of fMRIPrep; GLOB: tables, in the order of the images; default: none.",
        rich_help_panel=IMAGES,
    ),
]
NewConfounds = Annotated[
    str | None,
    typer.Option(metavar="auto|none|FILE", help="Confounds; default: as in the fit.", rich_help_panel=IMAGES),
]
Cleaning = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="OPTION=VALUE",
        help="Set an option of nilearn's masker, such as high_pass=0.01.",
        rich_help_panel=IMAGES,
    ),
]

app = typer.Typer(name="brain", help="Learn atlases of sparse maps from brain images.", no_args_is_help=True)


@app.command(epilog=FIT_EXAMPLE)
@offering(parameters=BRAIN, checkpoints=CHECKPOINTS, cluster=CLUSTER)
def fit(
    images: Images,
    out: RunFolder,
    parameters: Values,
    checkpoints: Values,
    cluster: Values,
    confounds: Confounds = None,
    smoothing: Annotated[
        float | None,
        typer.Option(
            metavar="MM", help="Width (FWHM) of the smoothing in mm; default: 4 for volumes.", rich_help_panel=IMAGES
        ),
    ] = None,
    cleaning: Cleaning = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Packed store, reused if it exists; default: OUT/store.")
    ] = None,
    no_pack: Annotated[bool, typer.Option("--no-pack", help="Do not pack; read each image once per pass.")] = False,
    holdout: Holdout = None,
    viewers: Viewers = True,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Learn an atlas in a run directory: mask, clean and pack the images once, fit, and write maps and a report."""
    from terafactor.brain import BrainDictionaryLearning

    packed = False if no_pack else str((store or out / "store").absolute())
    options = masker_options(smoothing, cleaning)
    estimator = BrainDictionaryLearning(**parameters, store=packed, verbose=1, **options)
    data = absolute_data(images, confounds)
    train_in_directory(estimator, data, out, checkpoints, as_json, cluster=cluster, holdout=holdout)
    write_pages(out, viewers=viewers)


@app.command(epilog=TRANSFORM_EXAMPLE)
def transform(
    model: Model,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="One image.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Table to write, .tsv; must not exist.")],
    confounds: NewConfounds = None,
    resample: Resample = False,
    threads: Threads = None,
) -> None:
    """Write the time series of the maps in an image to a table: a row per volume, a column per map."""
    import numpy as np

    from terafactor._durable import durable_path
    from terafactor.errors import ParameterError

    check_absent(out)
    data = absolute_data([image], confounds)
    if len(data["images"]) > 1:
        raise ParameterError(f"{image} matches {len(data['images'])} images: pass one, as each has its own table")
    estimator = load_kind(model, "BrainDictionaryLearning", threads)
    if resample:
        estimator.set_params(resample=True)
    (series,) = estimator.transform(data["images"], confounds=False if confounds == "none" else data["confounds"])
    header = "\t".join(f"map_{number:03d}" for number in range(series.shape[1]))
    with durable_path(out) as temporary:
        np.savetxt(temporary, series, fmt="%.6g", delimiter="\t", header=header, comments="")
    n_volumes, n_maps = series.shape
    typer.echo(f"wrote the time series of {counted(n_maps, 'map')}, {counted(n_volumes, 'volume')}, to {out}", err=True)


@app.command(epilog=REPORT_EXAMPLE)
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.", exists=True, file_okay=False)],
    labels: Annotated[
        Path | None, typer.Option(metavar="IMAGE", help="Atlas of regions, to name maps by overlap.", exists=True)
    ] = None,
    names: Annotated[Path | None, typer.Option(metavar="FILE", help=NAMES_HELP, exists=True)] = None,
    viewers: Viewers = True,
) -> None:
    """Write maps, report and pages of a run again; --labels names the maps after the regions of an atlas."""
    if names is not None and labels is None:
        raise typer.BadParameter("--names needs --labels, the atlas whose regions it names")
    path = write_pages(run, labels, names, viewers=viewers)
    typer.echo(f"Wrote {path}, {path.stat().st_size / 1e6:.1f} MB")


def write_pages(run: Path, labels: Path | None = None, names: Path | None = None, *, viewers: bool = True) -> Path:
    """Write the maps, the pages and the report of a run, and return the path of the report."""
    from terafactor._checks import check_regular
    from terafactor.runs import RunDirectory
    from terafactor.runs.metrics import read_metrics

    directory, estimator = RunDirectory(run.absolute()), load_kind(run, "BrainDictionaryLearning")
    if names is not None:
        check_regular(names)
    if labels is not None:
        lines = None if names is None else names.read_text(encoding="utf-8").splitlines()
        estimator.label(str(labels), None if lines is None else ["background", *lines])
    if viewers:
        estimator.write_viewers(run)
    config, history = directory.config(), read_metrics(directory.metrics_file)
    estimator._task().present(directory.path, config, config["data"].get("source"), history)
    return directory.report_file


def absolute_data(images: list[str], confounds: str | None) -> dict[str, Any]:
    """Return images and confounds as absolute paths, so that a run can be resumed from any folder."""
    from terafactor.brain.find import find_images

    paths = [str(Path(path).absolute()) for path in find_images(images)]
    if confounds in (None, "auto", "none"):
        return {"images": paths, "confounds": None if confounds == "none" else confounds}
    return {"images": paths, "confounds": [str(Path(path).absolute()) for path in find_images(confounds)]}


def masker_options(smoothing: float | None, texts: list[str] | None) -> dict[str, Any]:
    """Parse "name=value" options of a masker; numbers, true, false and none become Python values."""
    options: dict[str, Any] = {} if smoothing is None else {"smoothing_fwhm": smoothing}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not (sign and name.isidentifier()):
            raise typer.BadParameter(f"--set needs OPTION=VALUE, such as high_pass=0.01, got {text!r}")
        try:
            options[name] = None if value.lower() == "none" else json.loads(value.lower())
        except ValueError:
            options[name] = value
    return options
