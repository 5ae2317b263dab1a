"""Complete a photograph of which 30 % of the entries are hidden, and compare with imputers of scikit-learn.

The photograph is cut into patches that do not overlap, one per row, and every method completes the same matrix. No
method's settings were tuned on the hidden entries; those of the imputers keep their time within half a minute.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_sample_image
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from terafactor import MaskedDictionaryLearning

SIZE = 8
"""Height and width of a patch."""


def cut(image: np.ndarray) -> np.ndarray:
    """Return the patches of an image, one per row."""
    height, width, channels = image.shape
    blocks = image.reshape(height // SIZE, SIZE, width // SIZE, SIZE, channels)
    return blocks.transpose(0, 2, 1, 3, 4).reshape(-1, SIZE * SIZE * channels)


def join(patches: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the image that patches were cut from."""
    height, width, channels = shape
    blocks = patches.reshape(height // SIZE, width // SIZE, SIZE, SIZE, channels)
    return blocks.transpose(0, 2, 1, 3, 4).reshape(shape)


def by_terafactor(X: np.ndarray) -> np.ndarray:
    """Complete rows around the mean of what each of them shows."""
    means = np.nanmean(X, axis=1, keepdims=True)
    model = MaskedDictionaryLearning(
        48, alpha=0.03, penalty="l2", constraint="l2", missing="nan", n_epochs=12, batch_size=40, random_state=0
    )
    codes = model.fit(X - means).transform(X - means)
    return model.inverse_transform(codes) + means


METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "terafactor": by_terafactor,
    "IterativeImputer": IterativeImputer(max_iter=3, n_nearest_features=20, random_state=0).fit_transform,
    "KNNImputer": KNNImputer(n_neighbors=10, weights="distance").fit_transform,
    "mean fill": SimpleImputer().fit_transform,
}


def compare(image: np.ndarray) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, float, float]]]:
    """Return the image with holes, and for each method its completion, error on the hidden entries, and seconds."""
    hidden = np.random.default_rng(0).random(image.shape) < 0.3
    X, where = cut(np.where(hidden, np.nan, image)), cut(hidden)
    results = {}
    for name, complete in METHODS.items():
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # IterativeImputer tells that it stopped early, as asked
            completed = complete(X)
        seconds = time.perf_counter() - started
        filled = np.clip(np.where(where, completed, X), 0, 1)
        error = float(np.sqrt(np.mean((filled - cut(image))[where] ** 2)))
        results[name] = (join(filled, image.shape), error, seconds)
    return np.where(hidden, 1.0, image), results


def draw(image: np.ndarray, holes: np.ndarray, results: dict[str, tuple[np.ndarray, float, float]], out: Path) -> None:
    """Write a crop of the original, the one with holes, and every completion."""
    figure = Figure(figsize=(11, 6.4), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    height, width = (min(length, 160) for length in image.shape[:2])
    panels = {"original": image, "30 % of the entries hidden": holes}
    panels |= {f"{name}: error {error:.4f}, {taken:.1f} s": done for name, (done, error, taken) in results.items()}
    for axes, (title, picture) in zip(figure.subplots(2, 3).flat, panels.items(), strict=True):
        axes.imshow(picture[-height:, :width])
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
    figure.savefig(out)


def main() -> None:
    """Run the comparison, print a table and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("complete_photograph.png"), help="where the picture goes")
    parser.add_argument("--fast", action="store_true", help="a corner of the photograph only")
    arguments = parser.parse_args()
    photograph = load_sample_image("china.jpg") / 255
    image = photograph[-160:, :160] if arguments.fast else photograph[:424, :640]
    by_terafactor(cut(image)[:200])  # compile, so that times can be compared
    holes, results = compare(image)
    table = Table("method", "root mean squared error on hidden entries", "seconds")
    for name, (_, error, seconds) in results.items():
        table.add_row(name, f"{error:.4f}", f"{seconds:.1f}")
    Console().print(table)
    draw(image, holes, results, arguments.out)


if __name__ == "__main__":
    main()
