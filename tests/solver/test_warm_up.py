"""Kernels compile before the clock of a fit starts, and every compilation is logged."""

import os
import subprocess
import sys

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning
from terafactor.data import ArraySource
from terafactor.problem import Problem
from terafactor.solver import SolverOptions, use_backend
from terafactor.solver.backends import BACKENDS
from terafactor.solver.warm_up import _ready, warm_up, warm_up_once

COUNT = """
import numpy as np
from scipy.sparse import random_array
from terafactor import MaskedDictionaryLearning, open_source
from terafactor.data import ArraySource, SparseSource
from terafactor.kernels.jit import _kernels
from terafactor.problem import Problem, SmoothBall
from terafactor.solver import SolverOptions, fit
from terafactor.solver.warm_up import warm_up

def overloads():
    return {(kernel.py_func.__name__, each) for kernel in _kernels for each in kernel.signatures}

X = np.random.default_rng(0).standard_normal((60, 300))
holes = X.copy()
holes[::7, ::5] = np.nan
sparse = random_array((60, 300), density=0.02, format="csr", rng=0)
dense, plain, masks = ArraySource(X), Problem(0.1), SolverOptions(4, batch_size=10, reduction=3)
smooth = Problem(0.1, constraint=SmoothBall(shape=(10, 30)))
for name, source, problem, options in (
    ("dense", dense, plain, SolverOptions(4, batch_size=10)),
    ("sparse", SparseSource(sparse), plain, SolverOptions(4, batch_size=10)),
    ("missing", ArraySource(holes, allow_nan=True), plain, SolverOptions(4, batch_size=10, missing=True)),
    ("masks", dense, plain, masks),
    ("smooth", dense, smooth, SolverOptions(4, batch_size=10)),
    ("smooth masks", dense, smooth, masks),
):
    warm_up(source, problem, options)
    before, seen = overloads(), []
    fit(source, problem, options, callbacks=[lambda snapshot: seen.append(overloads())])
    print(name, len(seen) > 1, sorted(seen[-1] - before))
"""


def in_a_new_process(code, **environment):
    """Return what a program prints, and what it logs."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_a_fit_compiles_nothing_after_the_warm_up():
    lines = in_a_new_process(COUNT)[0].splitlines()
    assert len(lines) == 6
    for line in lines:
        assert line.endswith(" True []"), line


def test_transform_of_a_loaded_model_announces_compilation(X, tmp_path):
    MaskedDictionaryLearning(4, random_state=0).fit(X.astype(np.float32)).save(tmp_path / "model")
    np.save(tmp_path / "X.npy", X[:20].astype(np.float32))
    code = f"""
import numpy as np
from terafactor import load_model
load_model({str(tmp_path / "model")!r}).transform(np.load({str(tmp_path / "X.npy")!r}))
"""
    _, logged = in_a_new_process(code, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    first, last = logged.splitlines()
    assert "compiling kernels for encoding float32 rows, once on this machine ..." in first
    assert "compiled kernels for encoding float32 rows in " in last


def test_a_warm_up_that_was_interrupted_is_repeated():
    calls = []

    def interrupted():
        calls.append(1)
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            warm_up_once(("a key of this test",), "float64 data", interrupted)
    assert len(calls) == 2


def test_each_backend_is_warmed_up():
    source, options = ArraySource(np.random.default_rng(0).standard_normal((30, 7))), SolverOptions(3, batch_size=10)
    for name in BACKENDS:
        with use_backend(name):
            warm_up(source, Problem(0.1), options)
    assert {key[0] for key in _ready if key[0] in BACKENDS} == set(BACKENDS)
