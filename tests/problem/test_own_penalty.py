"""A penalty of a user, in a module outside the package, works everywhere by its name."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MODULE = '''
from dataclasses import dataclass

import numpy as np
from terafactor.problem import Penalty, ProximalPenalty, StructuredBall, register


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


@register
@dataclass(frozen=True)
class Ridge(Penalty):
    """Half the squared norm, with codes of its own and no rule for alpha."""

    def value(self, codes):
        return (codes**2).sum(axis=1) / 2

    def codes(self, gram, products, strength, tolerance):
        shifted = gram + np.reshape(strength, (-1, 1, 1)) * np.eye(gram.shape[-1])
        return np.linalg.solve(shifted, products[..., np.newaxis])[..., 0]


@register
@dataclass(frozen=True)
class ZeroMean(StructuredBall):
    """Atoms that sum to zero."""

    needs_whole_rows = True

    def update_atom(self, atom, features, target, weight, outside):
        atom[:] = self.project([target - target.mean()])[0]
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


def python(folder, code, **environment):
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )


FIT_AND_SAVE = """
import numpy as np, my_penalties
from terafactor import MaskedDictionaryLearning, load_model
X = np.load("X.npy")
X[::5, 2] = np.nan
model = MaskedDictionaryLearning(3, penalty="{penalty}", alpha=0.01, missing="nan", random_state=0).fit(X)
model.save("model")
loaded = load_model("model")
assert loaded.penalty == model.penalty
assert (loaded.transform(X) == model.transform(X)).all()
"""


@pytest.mark.parametrize("penalty", ["box:0.5", "ridge"])
def test_it_works_in_python_and_in_a_model_file(folder, penalty):
    """Also if all codes are nonzero and the penalty has no rule for alpha: the warning suggests no value."""
    done = python(folder, FIT_AND_SAVE.format(penalty=penalty))
    assert done.returncode == 0, done.stderr
    assert ("try a larger value" in done.stderr) == (penalty == "ridge")
    absent = python(folder, "from terafactor import load_model; load_model('model')")
    assert absent.returncode != 0
    assert f"'{penalty}'" in absent.stderr


def test_a_constraint_works_by_name_or_refuses_masks_by_name(folder, X):
    fit = ("fit", "X.npy", "-k", 3, "--constraint", "zero-mean", "--alpha", 0.1, "--seed", 0, "--epochs", 2)
    done = terafactor(folder, "--import", "my_penalties", *fit, "--out", "run")
    assert done.returncode == 0, done.stderr
    code = (
        "import my_penalties; from terafactor import load_model; print(abs(load_model('run').components_.sum(1)).max())"
    )
    assert float(python(folder, code).stdout) < 1e-12
    refused = terafactor(folder, "--import", "my_penalties", *fit, "--reduction", 2, "--out", "masked")
    assert refused.returncode != 0
    assert "ZeroMean needs whole rows: use reduction=1" in " ".join(refused.stderr.split())


def test_a_file_in_the_package_is_found_by_itself(tmp_path):
    """A new penalty is one file: nothing else of the package changes."""
    shutil.copytree(ROOT / "src/terafactor", tmp_path / "terafactor", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "terafactor/problem/penalties"
    (folder / "shares.py").write_text((folder / "simplex.py").read_text().replace("class Simplex", "class Shares"))
    code = """
from terafactor.problem import Shares
from terafactor.problem.penalties import resolve_penalty
assert resolve_penalty("shares:2", positive=False) == Shares(2)
"""
    done = python(tmp_path, code, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_no_other_file_of_the_package_names_a_penalty():
    """Command line, model files, reports and checks of parameters find penalties by the registry, not by lists."""
    names = re.compile(r"\b(GroupLasso|OMP|TopK|Simplex|SmoothBall|group-lasso|omp:\d|top-k|simplex)\b")
    files = [path for path in (ROOT / "src/terafactor").rglob("*.py") if "problem" not in path.parts]
    naming = {path.name for path in files if names.search(path.read_text())}
    assert naming <= {"structured.py"}  # an example in its docstring


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
