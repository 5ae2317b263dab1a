"""``terafactor demo``, on a few patches."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from terafactor.cli import demo
from terafactor.cli._drawing import mosaic, rescale
from terafactor.errors import MissingDependencyError
from terafactor.solver import Evaluation

TINY = demo.Settings(patch_size=8, n_rows=500, n_held_out=50)


@pytest.fixture
def outcomes():
    training, held_out = demo.load_patches(TINY)
    fits = [demo.learn(training, held_out, TINY, reduction, 9, 0) for reduction in TINY.reductions]
    return fits, training


def evaluation(seconds: float, objective: float) -> Evaluation:
    return Evaluation(1, 1, seconds, 0, 0.0, objective, 0.0, 0, 0)


def test_demo_prints_a_table_and_draws_two_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    demo.run(out, n_components=9, seed=0, settings=TINY)
    printed = capsys.readouterr().out
    assert "9 atoms" in printed
    assert "With reduction 8, each step used 24 of 192 features" in " ".join(printed.split())
    for name in ("atoms.png", "objective.png"):
        with Image.open(out / name) as picture:
            picture.load()
            assert picture.width > 1000
            assert picture.height > 600
            assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_table_has_a_line_for_each_reduction(outcomes) -> None:
    fits, training = outcomes
    table = demo.comparison_table(fits, training)
    assert list(table.columns[0].cells) == ["1", "8"]
    assert list(table.columns[1].cells) == ["192", "24"]


def test_fits_see_the_same_rows_and_give_finite_numbers(outcomes) -> None:
    fits, _ = outcomes
    assert fits[0].history[-1].n_samples == fits[1].history[-1].n_samples >= TINY.n_rows
    for fit in fits:
        assert fit.atoms.shape == (9, 8, 8, 3)
        assert np.isfinite(fit.objective)
        assert 0 <= fit.zeros <= 1


@pytest.mark.parametrize(("package", "name"), [("matplotlib", "matplotlib"), ("PIL", "pillow")])
def test_missing_package_names_the_extra(monkeypatch, tmp_path: Path, package: str, name: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"{name}.*terafactor\[report\]"):
        demo.run(tmp_path / "out", n_components=9, seed=0, settings=TINY)
    assert not (tmp_path / "out").exists()


def test_time_to_reach_is_interpolated_between_evaluations() -> None:
    history = [evaluation(1.0, 5.0), evaluation(2.0, 4.0), evaluation(4.0, 3.0)]
    assert demo.seconds_to_reach(3.5, history) == pytest.approx(3.0)
    assert demo.seconds_to_reach(3.0, history) == pytest.approx(4.0)
    assert demo.seconds_to_reach(6.0, history) == 1.0
    assert demo.seconds_to_reach(2.0, history) is None


def test_mosaic_is_filled_row_by_row_and_empty_cells_are_white() -> None:
    atoms = np.stack([np.linspace(-low, 1, 12).reshape(2, 2, 3) for low in (0, 1, 2)])
    picture = mosaic(atoms, gap=1)
    assert picture.shape == (5, 5, 3)
    np.testing.assert_array_equal(picture[:2, 3:], rescale(atoms)[1])
    np.testing.assert_array_equal(picture[3:, 3:], 1)
    np.testing.assert_array_equal(picture[2], 1)


def test_constant_atom_is_drawn_without_dividing_by_zero() -> None:
    np.testing.assert_array_equal(rescale(np.full((1, 2, 2, 3), 0.7)), 0)
