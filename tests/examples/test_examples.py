"""Every example runs and draws its picture."""

import importlib.util
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def load(path):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path, monkeypatch):
    out = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", [str(path), "--fast", "--out", str(out)])
    load(path).main()
    with Image.open(out) as picture:
        assert min(picture.size) > 300


def test_a_photograph_is_completed_better_than_by_its_mean():
    module = load(next(path for path in EXAMPLES if path.stem == "complete_photograph"))
    _, results = module.compare(module.load_sample_image("china.jpg")[-160:, :160] / 255)
    assert results["terafactor"][1] < 0.7 * results["mean fill"][1]
