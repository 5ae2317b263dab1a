"""A penalty of a user, in a module outside the package, works everywhere by its name."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MODULE = '''
from dataclasses import dataclass

import numpy as np
from terafactor.problem import ProximalPenalty, register


@register
@dataclass(frozen=True)
class Box(ProximalPenalty):
    """Codes between -limit and limit."""

    limit: float = 1.0

    has_strength = False

    def value(self, codes):
        return np.zeros(len(codes))

    def prox(self, points, strengths):
        return np.clip(points, -self.limit, self.limit)
'''


def terafactor(folder, *arguments):
    command = [sys.executable, "-m", "terafactor", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(name="folder")
def folder_with_a_module(tmp_path, X):
    (tmp_path / "my_penalties.py").write_text(MODULE)
    np.save(tmp_path / "X.npy", X)
    return tmp_path


def test_it_works_on_the_command_line(folder, X):
    fit = ("fit", "X.npy", "-k", 3, "--penalty", "box:0.5", "--seed", 0, "--epochs", 2, "--out", "run")
    done = terafactor(folder, "--import", "my_penalties", *fit)
    assert done.returncode == 0, done.stderr
    done = terafactor(folder, "--import", "my_penalties", "transform", "run", "X.npy", "--out", "codes.npy")
    assert done.returncode == 0, done.stderr
    largest = np.abs(np.load(folder / "codes.npy")).max()
    assert largest == pytest.approx(0.5, abs=1e-6)


def test_without_its_module_it_is_refused_by_name(folder):
    refused = terafactor(folder, "fit", "X.npy", "-k", 3, "--penalty", "box:0.5", "--out", "run")
    assert refused.returncode != 0
    assert "penalty must be one of" in refused.stderr
    assert "got 'box:0.5'" in " ".join(refused.stderr.split())
    absent = terafactor(folder, "--import", "no_such_module", "fit", "X.npy", "-k", 3, "--out", "run")
    assert absent.returncode != 0
    assert "no_such_module" in absent.stderr
    assert "Traceback" not in absent.stderr


def test_the_page_shows_the_file_of_the_simplex():
    page = (ROOT / "docs" / "penalties.md").read_text()
    assert (ROOT / "src/terafactor/problem/penalties/simplex.py").read_text() in page
