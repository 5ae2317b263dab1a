"""Take docs/figures/report.png: the report of a real run, as a browser shows it.

Run as ``python docs/figures/report.py``; it needs chromium and takes half a minute.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from sklearn.datasets import load_sample_images

from terafactor import MaskedDictionaryLearning, PatchSource, train

WIDTH, HEIGHT = 1180, 1640
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def learn(folder: Path) -> Path:
    """Learn atoms of photographs in a run directory, and return its report."""
    patches = PatchSource([image / 255 for image in load_sample_images().images], (16, 16))
    estimator = MaskedDictionaryLearning(100, alpha=0.6, n_epochs=120_000 / patches.shape[0], random_state=0)
    train(estimator, patches, folder, holdout=200)
    return folder / "report.html"


def photograph(page_file: Path, picture: Path) -> None:
    """Open a page, point at its curve and take a picture."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(page_file.as_uri())
        box = page.locator(".u-over").first.bounding_box()
        page.mouse.move(box["x"] + 0.45 * box["width"], box["y"] + 0.4 * box["height"])
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        photograph(learn(Path(folder) / "photographs"), Path(__file__).with_suffix(".png"))
