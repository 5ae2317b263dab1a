"""``terafactor demo``, on a few patches."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from terafactor.cli import demo
from terafactor.cli._drawing import Curve, draw_curves, mosaic, rescale
from terafactor.errors import MissingDependencyError

TINY = demo.Settings(patch_size=8, n_rows=512, n_passes=2, n_held_out=50)

COUNT_KERNELS_COMPILED_WHILE_TIMED = """
from terafactor.cli import demo
from terafactor.kernels.jit import _kernels

def n_compiled():
    return sum(len(kernel.overloads) for kernel in _kernels)

settings = demo.Settings(patch_size=8, n_rows=512, n_passes=2, n_held_out=50)
training, held_out = demo.load_patches(settings, 0)
demo.warm_up(training, held_out, settings, 9)
before = n_compiled()
demo.learn_with_terafactor(training, demo.Outcome(demo.OURS, settings, held_out), 9, 0)
print(before, n_compiled() - before)
"""


@pytest.fixture(scope="module")
def outcomes():
    training, held_out = demo.load_patches(TINY, seed=0)
    fits = [demo.Outcome(name, TINY, held_out) for name in demo.CONTESTANTS]
    for fit in fits:
        demo.CONTESTANTS[fit.name](training, fit, 9, 0)
    return fits


def outcome(*points: tuple[float, float], name: str = demo.OURS) -> demo.Outcome:
    seconds, objectives = zip(*points, strict=True)
    return demo.Outcome(name, TINY, np.zeros((1, 1)), [1] * len(points), list(seconds), list(objectives))


def test_pictures_replace_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "objective.png").symlink_to(tmp_path / "elsewhere")
    draw_curves([Curve("a fit", [1.0, 2.0], [3.0, 2.0])], "", tmp_path / "objective.png")
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_demo_prints_a_table_and_draws_two_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    demo.run(out, n_components=9, seed=0, settings=TINY)
    printed = " ".join(capsys.readouterr().out.split())
    assert "9 atoms" in printed
    assert "where scikit-learn ended" in printed or "times as fast" in printed
    for name in ("atoms.png", "objective.png"):
        with Image.open(out / name) as picture:
            picture.load()
            assert picture.width > 1000
            assert picture.height > 600
            assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_table_has_a_line_for_each_package(outcomes) -> None:
    table = demo.comparison_table(outcomes)
    assert list(table.columns[0].cells) == [demo.OURS, demo.THEIRS]
    assert list(table.columns[1].cells) == ["1,024", "512"]


def test_curves_grow_and_both_packages_learn(outcomes) -> None:
    for fit in outcomes:
        assert fit.atoms.shape == (9, 8 * 8 * 3)
        assert fit.n_rows == sorted(set(fit.n_rows))
        assert fit.seconds == sorted(fit.seconds)
        assert np.linalg.norm(fit.atoms, axis=1).max() <= 1 + 1e-5
        assert fit.objectives[-1] < fit.objectives[0]


def test_atoms_and_objectives_depend_on_the_seed_only(outcomes) -> None:
    training, held_out = demo.load_patches(TINY, seed=0)
    for fit in outcomes:
        again = demo.Outcome(fit.name, TINY, held_out)
        demo.CONTESTANTS[fit.name](training, again, 9, 0)
        assert again.objectives == fit.objectives
        np.testing.assert_array_equal(again.atoms, fit.atoms)


def test_nothing_is_compiled_or_loaded_while_the_clock_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COUNT_KERNELS_COMPILED_WHILE_TIMED]
    for cache in ("cold", "warm"):
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        before, while_timed = map(int, printed.split())
        assert before > 0
        assert while_timed == 0, f"with a {cache} cache"


@pytest.mark.parametrize(("package", "name"), [("matplotlib", "matplotlib"), ("PIL", "pillow")])
def test_missing_package_names_the_extra(monkeypatch, tmp_path: Path, package: str, name: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"{name}.*terafactor\[report\]"):
        demo.run(tmp_path / "out", n_components=9, seed=0, settings=TINY)
    assert not (tmp_path / "out").exists()


def test_summary_compares_times_to_the_same_objective() -> None:
    ours = outcome((1.0, 5.0), (2.0, 3.9), (4.0, 3.0))
    theirs = outcome((5.0, 6.0), (8.0, 4.0), name=demo.THEIRS)
    assert ours.seconds_to_reach(4.0) == 2.0
    assert ours.seconds_to_reach(1.0) is None
    assert "4.0 times as fast" in demo.summary(ours, theirs)
    assert "above 2.000, where scikit-learn ended" in demo.summary(ours, outcome((9.0, 2.0)))


def test_mosaic_is_filled_row_by_row_and_empty_cells_are_white() -> None:
    atoms = np.stack([np.linspace(-low, 1, 12).reshape(2, 2, 3) for low in (0, 1, 2)])
    picture = mosaic(atoms, gap=1)
    assert picture.shape == (5, 5, 3)
    np.testing.assert_array_equal(picture[:2, 3:], rescale(atoms)[1])
    np.testing.assert_array_equal(picture[3:, 3:], 1)
    np.testing.assert_array_equal(picture[2], 1)


def test_constant_atom_is_drawn_without_dividing_by_zero() -> None:
    np.testing.assert_array_equal(rescale(np.full((1, 2, 2, 3), 0.7)), 0)
