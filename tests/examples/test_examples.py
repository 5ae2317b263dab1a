"""Every example runs, draws its picture and does better than a mean."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def load(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Import an example from its file. Dataclasses look for their module by name, so it must be known by one."""
    spec = spec_from_file_location(f"example_{path.stem}", path)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_there_are_examples() -> None:
    """Examples that are no longer found would pass unseen."""
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_draws_and_beats_the_mean(path: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    out = tmp_path / "new" / "picture.png"
    errors = load(path, monkeypatch).main(["--fast", "--out", str(out)])
    assert errors["terafactor"] < errors["mean"]
    assert "terafactor" in capsys.readouterr().out
    with Image.open(out) as picture:
        picture.load()
        assert picture.width > 1000
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
