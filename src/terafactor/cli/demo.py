"""``terafactor demo``: atoms of photographs, learned with and without feature masks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from terafactor import MaskedDictionaryLearning, PatchSource
from terafactor._format import printable
from terafactor._typing import Array
from terafactor.cli._drawing import AtomsPanel, Curve, draw_atoms, draw_curves
from terafactor.errors import FitWarning, MissingDependencyError
from terafactor.solver import Evaluation

TRAINING_SHARE = 0.8
"""Left part of each photograph, as a share of its width, for training patches; the rest is held out."""

HEADINGS = ("reduction", "features per step", "training time", "patches/s", "held-out objective", "zeros in codes")


@dataclass(frozen=True)
class Settings:
    """Settings of the fits."""

    reductions: tuple[int, ...] = (1, 8)
    """Reductions to compare with the first one."""

    patch_size: int = 32
    """Height and width of a patch, large enough for masks to save a visible amount of time."""

    alpha: float = 1.0
    """Strength of the penalty: much smaller values give noisy atoms, twice as much leaves many atoms unused."""

    batch_size: int = 25
    """Patches per step: few, because masks save work per step rather than per patch."""

    n_rows: int = 24_000
    """Training patches."""

    n_held_out: int = 1_000
    """Held-out patches, the same for every seed."""


@dataclass(frozen=True)
class Outcome:
    """Result of one fit."""

    reduction: int
    """Number of features over the number of features per step."""

    history: Sequence[Evaluation]
    """Evaluations during the fit."""

    zeros: float
    """Share of zeros in the codes of the held-out patches."""

    atoms: Array
    """Atoms as pictures (k, height, width, channels), the most used one first."""

    @property
    def seconds(self) -> float:
        """Training time, without evaluations."""
        return self.history[-1].seconds

    @property
    def objective(self) -> float:
        """Held-out objective at the end."""
        return self.history[-1].objective or math.nan

    @property
    def rows_per_second(self) -> float:
        """Training patches per second."""
        return self.history[-1].n_samples / self.seconds


def run(out: Path, *, n_components: int, seed: int, settings: Settings | None = None) -> None:
    """Learn atoms from photographs with each reduction, print a comparison and plot it in the folder ``out``."""
    settings = settings or Settings()
    require_drawing()
    out.mkdir(parents=True, exist_ok=True)
    progress, console = Console(stderr=True), Console()
    with progress.status("Reading photographs and compiling kernels"):
        training, held_out = load_patches(settings)
        warm_up(training, held_out, settings, n_components)
    outcomes = []
    for reduction in settings.reductions:
        progress.print(f"Learning {n_components} atoms with reduction {reduction}", highlight=False)
        outcomes.append(learn(training, held_out, settings, reduction, n_components, seed))
    console.print(comparison_table(outcomes, training))
    console.print(summary(outcomes, training), highlight=False)
    for path in draw(outcomes, out, settings):
        console.print(f"Wrote {printable(path)}", highlight=False, markup=False, soft_wrap=True)


def require_drawing() -> None:
    """Raise an error unless the optional packages of the demo are installed."""
    for package, name in (("matplotlib", "matplotlib"), ("PIL", "pillow")):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingDependencyError(name, extra="report", purpose="terafactor demo") from error


def load_patches(settings: Settings) -> tuple[PatchSource, Array]:
    """Return a source of training patches, and an array of held-out patches spread evenly.

    Training and held-out patches have no pixel in common.
    """
    from sklearn.datasets import load_sample_images

    photographs = [image / 255 for image in load_sample_images().images]
    cuts = [round(TRAINING_SHARE * image.shape[1]) for image in photographs]
    size = (settings.patch_size, settings.patch_size)
    training = PatchSource([image[:, :cut] for image, cut in zip(photographs, cuts, strict=True)], size)
    rest = PatchSource([image[:, cut:] for image, cut in zip(photographs, cuts, strict=True)], size)
    rows = np.linspace(0, rest.shape[0] - 1, settings.n_held_out).astype(np.int64)
    return training, rest.read(rows)


def warm_up(training: PatchSource, held_out: Array, settings: Settings, n_components: int) -> None:
    """Fit on a few batches, to compile the kernels for this number of atoms before anything is timed."""
    for reduction in settings.reductions:
        n_rows = 4 * settings.batch_size
        estimator = estimator_for(training, settings, reduction, n_components=n_components, seed=0, n_rows=n_rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # the fit is too short to be good
            estimator.fit(training, validation=held_out[:2])


def estimator_for(
    training: PatchSource, settings: Settings, reduction: int, *, n_components: int, seed: int, n_rows: int
) -> MaskedDictionaryLearning:
    """Return an estimator that visits ``n_rows`` patches, the same ones for every reduction."""
    return MaskedDictionaryLearning(
        n_components,
        alpha=settings.alpha,
        reduction=reduction,
        batch_size=settings.batch_size,
        n_epochs=n_rows / training.shape[0],
        random_state=seed,
    )


def learn(
    training: PatchSource, held_out: Array, settings: Settings, reduction: int, n_components: int, seed: int
) -> Outcome:
    """Fit with one reduction, with a progress bar, and evaluate the result on the held-out patches."""
    estimator = estimator_for(
        training, settings, reduction, n_components=n_components, seed=seed, n_rows=settings.n_rows
    )
    estimator.set_params(verbose=1).fit(training, validation=held_out)
    codes = estimator.transform(held_out)
    most_used_first = np.argsort(-np.abs(codes).sum(axis=0), kind="stable")
    atoms = estimator.components_[most_used_first].reshape(n_components, *(training.geometry or ()))
    return Outcome(reduction, estimator.history_, float(np.mean(codes == 0)), atoms)


def comparison_table(outcomes: Sequence[Outcome], training: PatchSource) -> Table:
    """Return a table with one line per fit."""
    title = f"{len(outcomes[0].atoms)} atoms from {outcomes[0].history[-1].n_samples:,} color patches"
    table = Table(title=title, caption="Wall-clock time, without compilation and evaluation.")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        table.add_row(
            f"{outcome.reduction}",
            f"{training.shape[1] / outcome.reduction:,.0f}",
            f"{outcome.seconds:.1f} s",
            f"{outcome.rows_per_second:,.0f}",
            f"{outcome.objective:.3f}",
            f"{outcome.zeros:.1%}",
        )
    return table


def summary(outcomes: Sequence[Outcome], training: PatchSource) -> str:
    """Return a comparison of the last fit with the first."""
    reference, masked = outcomes[0], outcomes[-1]
    speed = masked.rows_per_second / reference.rows_per_second
    change = masked.objective / reference.objective - 1
    reached = seconds_to_reach(masked.objective, reference.history)
    when = "did not reach this level" if reached is None else f"reached this level after {reached:.1f} s"
    return (
        f"With reduction {masked.reduction}, each step used {training.shape[1] / masked.reduction:,.0f} of "
        f"{training.shape[1]:,} features, and training was {speed:.1f} times as fast as with reduction "
        f"{reference.reduction}, on the same patches. The final held-out objective is {abs(change):.2%} "
        f"{'higher' if change > 0 else 'lower'} (lower is better). Reduction {reference.reduction} {when}, reduction "
        f"{masked.reduction} after {masked.seconds:.1f} s."
    )


def seconds_to_reach(objective: float, history: Sequence[Evaluation]) -> float | None:
    """Return when a fit first reached ``objective``, interpolated between evaluations; None if it never did."""
    seconds = [evaluation.seconds for evaluation in history]
    objectives = [evaluation.objective or math.nan for evaluation in history]
    after = next((number for number, value in enumerate(objectives) if value <= objective), None)
    if after is None or after == 0:
        return None if after is None else seconds[0]
    share = (objectives[after - 1] - objective) / (objectives[after - 1] - objectives[after])
    return seconds[after - 1] + share * (seconds[after] - seconds[after - 1])


def draw(outcomes: Sequence[Outcome], out: Path, settings: Settings) -> list[Path]:
    """Plot atoms and objectives; return the files written."""
    size = settings.patch_size
    panels = [
        AtomsPanel(
            f"reduction {outcome.reduction}",
            f"{outcome.seconds:.1f} s, held-out objective {outcome.objective:.3f}",
            outcome.atoms,
        )
        for outcome in outcomes
    ]
    curves = [
        Curve(
            f"reduction {outcome.reduction}",
            [evaluation.seconds for evaluation in outcome.history],
            [evaluation.objective or math.nan for evaluation in outcome.history],
        )
        for outcome in outcomes
    ]
    title = f"{len(outcomes[0].atoms)} atoms learned from color patches of {size} x {size} pixels"
    return [draw_atoms(panels, title, out / "atoms.png"), draw_curves(curves, out / "objective.png")]
