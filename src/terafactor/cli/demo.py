"""``terafactor demo``: atoms of photographs, learned by terafactor and by scikit-learn from the same patches."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from terafactor import ArraySource, ElasticNet, MaskedDictionaryLearning, NormBall, PatchSource
from terafactor._format import printable
from terafactor._typing import Array
from terafactor.cli._drawing import AtomsPanel, Curve, draw_atoms, draw_curves
from terafactor.errors import FitWarning, MissingDependencyError
from terafactor.problem import Problem
from terafactor.solver import Snapshot, objective
from terafactor.solver.encode import encode

TRAINING_SHARE = 0.8
"""Left part of each photograph, as a share of its width, for training patches; the rest is held out."""

GROWTH = 1.5
"""Ratio of patches from one evaluation to the next."""

OURS, THEIRS = "terafactor", "scikit-learn"
HEADINGS = ("", "visits", "CPU time", "visits/s", "objective", "zeros in codes")


@dataclass(frozen=True)
class Settings:
    """Settings of the fits. Both packages use their defaults for everything else, and one thread."""

    patch_size: int = 32
    """Height and width of a patch."""

    alpha: float = 0.5
    """Strength of the penalty: much smaller values give noisy atoms, twice as much leaves many atoms unused."""

    n_rows: int = 5_120
    """Training patches. scikit-learn visits each of them once."""

    n_passes: int = 5
    """Visits of each patch by terafactor."""

    n_held_out: int = 500
    """Held-out patches, the same for every seed."""

    @property
    def problem(self) -> Problem:
        """The objective that both packages minimize."""
        return Problem(self.alpha, ElasticNet(1.0), NormBall("l2"))


@dataclass
class Outcome:
    """Progress and result of one fit. Call ``start`` before it, and ``note`` after each step."""

    name: str
    """Name of the package."""

    settings: Settings
    held_out: Array
    n_rows: list[int] = field(default_factory=list)
    """Patches visited at each evaluation."""

    seconds: list[float] = field(default_factory=list)
    """CPU time spent learning until then, without evaluations."""

    objectives: list[float] = field(default_factory=list)
    """Mean over the held-out patches."""

    atoms: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """Atoms (k, p) at the last evaluation."""

    _used: float = 0.0
    _due: float = 0.0
    _started: float = 0.0

    def start(self) -> None:
        """Start the clock."""
        self._started = time.process_time()

    def note(self, n_rows: int, atoms: Callable[[], Array], *, ended: bool = False) -> None:
        """Stop the clock, evaluate the atoms if it is due or the fit has ended, and start it again."""
        self._used += time.process_time() - self._started
        if n_rows >= self._due or ended:
            self._due = GROWTH * n_rows
            self.atoms = atoms()
            value = objective(ArraySource(self.held_out), self.atoms, self.settings.problem, 1)
            self.n_rows.append(n_rows)
            self.seconds.append(self._used)
            self.objectives.append(value)
        self.start()

    def seconds_to_reach(self, level: float) -> float | None:
        """Return the CPU time at the first evaluation at or below an objective; None if there is none."""
        pairs = zip(self.seconds, self.objectives, strict=True)
        return next((seconds for seconds, value in pairs if value <= level), None)


def run(out: Path, *, n_components: int, seed: int, settings: Settings | None = None) -> None:
    """Learn atoms from photographs with both packages, print a comparison and plot it in the folder ``out``."""
    settings = settings or Settings()
    require_drawing()
    out.mkdir(parents=True, exist_ok=True)
    progress, console = Console(stderr=True), Console()
    with progress.status("Reading photographs and compiling kernels"):
        training, held_out = load_patches(settings, seed)
        warm_up(training, held_out, settings, n_components)
    outcomes = []
    for name, learn in CONTESTANTS.items():
        with progress.status(f"Learning {n_components} atoms with {name}"):
            outcome = Outcome(name, settings, held_out)
            learn(training, outcome, n_components, seed)
        outcomes.append(outcome)
    console.print(comparison_table(outcomes))
    console.print(summary(*outcomes), highlight=False)
    for path in draw(outcomes, out):
        console.print(f"Wrote {printable(path)}", highlight=False, markup=False, soft_wrap=True)


def require_drawing() -> None:
    """Raise an error unless the optional packages of the demo are installed."""
    for package, name in (("matplotlib", "matplotlib"), ("PIL", "pillow")):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingDependencyError(name, extra="report", purpose="terafactor demo") from error


def load_patches(settings: Settings, seed: int) -> tuple[Array, Array]:
    """Return training patches at random places, and held-out patches spread evenly, each minus its mean.

    Training and held-out patches have no pixel in common.
    """
    from sklearn.datasets import load_sample_images

    photographs = [image / 255 for image in load_sample_images().images]
    cuts = [round(TRAINING_SHARE * image.shape[1]) for image in photographs]
    size = (settings.patch_size, settings.patch_size)
    training = PatchSource([image[:, :cut] for image, cut in zip(photographs, cuts, strict=True)], size)
    rest = PatchSource([image[:, cut:] for image, cut in zip(photographs, cuts, strict=True)], size)
    chosen = np.random.default_rng(seed).choice(training.shape[0], settings.n_rows, replace=False)
    evenly = np.linspace(0, rest.shape[0] - 1, settings.n_held_out).astype(np.int64)
    fitted, tested = training.read(chosen), rest.read(evenly)
    return fitted - fitted.mean(axis=1, keepdims=True), tested - tested.mean(axis=1, keepdims=True)


def warm_up(training: Array, held_out: Array, settings: Settings, n_components: int) -> None:
    """Run both fits on a few patches, to import and compile everything before the clock starts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the fits are too short to be good
        for name, learn in CONTESTANTS.items():
            learn(training[: 4 * n_components], Outcome(name, settings, held_out[:2]), n_components, 0)


def learn_with_terafactor(training: Array, outcome: Outcome, n_components: int, seed: int) -> None:
    """Fit with terafactor."""

    def note(snapshot: Snapshot) -> None:
        outcome.note(snapshot.n_samples, lambda: np.array(snapshot.components))

    estimator = MaskedDictionaryLearning(
        n_components, alpha=outcome.settings.alpha, n_epochs=outcome.settings.n_passes, n_threads=1,
        random_state=seed, callbacks=[note],
    )  # fmt: skip
    outcome.start()
    estimator.fit(training)
    outcome.note(int(estimator.feature_counts_[0]), lambda: np.array(estimator.components_), ended=True)


def learn_with_scikit_learn(training: Array, outcome: Outcome, n_components: int, seed: int) -> None:
    """Fit with scikit-learn, by the faster of its two algorithms for the codes."""
    from sklearn.decomposition import MiniBatchDictionaryLearning
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    estimator = MiniBatchDictionaryLearning(
        n_components, alpha=outcome.settings.alpha, fit_algorithm="cd", random_state=seed
    )
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        outcome.start()
        for start in range(0, len(training), estimator.batch_size):
            estimator.partial_fit(training[start : start + estimator.batch_size])
            done = min(start + estimator.batch_size, len(training))
            outcome.note(done, lambda: np.array(estimator.components_), ended=done == len(training))


CONTESTANTS: dict[str, Callable[[Array, Outcome, int, int], None]] = {
    OURS: learn_with_terafactor,
    THEIRS: learn_with_scikit_learn,
}


def codes_of(outcome: Outcome) -> Array:
    """Return the codes (n, k) of the held-out patches."""
    return np.asarray(encode(ArraySource(outcome.held_out), outcome.atoms, outcome.settings.problem, 1))


def comparison_table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table with one line per fit."""
    size = outcomes[0].settings.patch_size
    title = f"{len(outcomes[0].atoms)} atoms of color patches, {size} x {size} pixels"
    table = Table(title=title, caption="Objective on held-out patches. One thread each; compilation is not timed.")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        table.add_row(
            outcome.name,
            f"{outcome.n_rows[-1]:,}",
            f"{outcome.seconds[-1]:.1f} s",
            f"{outcome.n_rows[-1] / outcome.seconds[-1]:,.0f}",
            f"{outcome.objectives[-1]:.3f}",
            f"{np.mean(codes_of(outcome) == 0):.1%}",
        )
    return table


def summary(ours: Outcome, theirs: Outcome) -> str:
    """Return when terafactor reached the objective at which scikit-learn ended."""
    level, taken = theirs.objectives[-1], theirs.seconds[-1]
    reached = ours.seconds_to_reach(level)
    if reached is None:
        return f"terafactor ended at {ours.objectives[-1]:.3f}, above {level:.3f}, where scikit-learn ended."
    return (
        f"scikit-learn ended at {level:.3f} after {taken:.1f} s. terafactor reached this after {reached:.1f} s, "
        f"{taken / reached:.1f} times as fast."
    )


def draw(outcomes: Sequence[Outcome], out: Path) -> list[Path]:
    """Plot atoms and objectives; return the files written."""
    size = outcomes[0].settings.patch_size
    panels = []
    for outcome in outcomes:
        most_used_first = np.argsort(-np.abs(codes_of(outcome)).sum(axis=0), kind="stable")
        pictures = outcome.atoms[most_used_first].reshape(len(outcome.atoms), size, size, -1)
        facts = f"{outcome.seconds[-1]:.1f} s, held-out objective {outcome.objectives[-1]:.3f}"
        panels.append(AtomsPanel(outcome.name, facts, pictures))
    curves = [Curve(outcome.name, outcome.seconds, outcome.objectives) for outcome in outcomes]
    title = f"{len(outcomes[0].atoms)} atoms learned from color patches of {size} x {size} pixels"
    note = summary(*outcomes)
    return [draw_atoms(panels, title, out / "atoms.png"), draw_curves(curves, note, out / "objective.png")]
