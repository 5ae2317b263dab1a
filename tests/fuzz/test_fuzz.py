"""Changed files load or are refused with a TerafactorError, whichever loader reads them.

``TERAFACTOR_FUZZ_SECONDS=30`` tries each loader for that long in a process of its own, with random changes, or with
those from ``TERAFACTOR_FUZZ_SEED`` on, so that a failure is repeatable.
"""

import os
import random

import pytest
from tests.fuzz.loaders import LOADERS
from tests.fuzz.run import Outcome, _crash, campaign, in_process

SECONDS = float(os.environ.get("TERAFACTOR_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("TERAFACTOR_FUZZ_SEED", random.SystemRandom().randrange(2**40)))

NEEDED = {
    "text": ["polars"], "tables": ["polars", "pandas", "pyarrow"], "hdf5": ["h5py"], "h5ad": ["h5py"],
    "ratings-text": ["polars"], "ratings-files": ["polars"], "netflix": ["polars"], "brain-model": ["nilearn"],
    "images": ["nilearn"], "cifti": ["nilearn"], "surfaces": ["nilearn"], "confounds": ["nilearn"],
}  # fmt: skip


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("name", LOADERS)
def test_changed_files_load_or_are_refused(tmp_path, monkeypatch, name):
    for package in NEEDED.get(name, ()):
        pytest.importorskip(package)
    if SECONDS:
        outcome = campaign(name, SECONDS, SEED)
    else:
        monkeypatch.setenv("TERAFACTOR_MAX_BYTES", str(2**29))
        outcome = in_process(name, tmp_path, range(LOADERS[name].fixed_tries))
    print(f"{name}: {outcome.tries:,} tries, {outcome.loaded:,} loaded")
    assert outcome.tries > 0
    assert not outcome.findings, "\n".join(f"{kind}: {text}" for kind, text in outcome.findings.items())


@pytest.mark.parametrize(
    ("file", "known"),
    [("h5py/_hl/attrs.py", 1), ("h5py/_hl/files.py", 1), ("anndata/_io/base.py", 0), ("pandas/io/files.py", 0)],
)
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (1, "Timeout (0:00:30)!\nThread 0x00007f"),
        (-11, "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f"),
    ],
)
def test_only_hangs_and_crashes_of_hdf5_are_known(file, known, status, message):
    outcome, stack = Outcome(), f'File "/venv/lib/python3.11/site-packages/{file}", line 56 in get'
    outcome.add(_crash(status, f"{message} (most recent call first):\n  {stack}\n"), "")
    assert (outcome.known, len(outcome.findings)) == (known, 1 - known)


@pytest.mark.parametrize(
    ("message", "file", "known"),
    [
        ("memory allocation of 2305843009213693952 bytes failed", "polars/lazyframe/engine.py", 1),
        ("memory allocation of 2305843009213693952 bytes failed", "terafactor/data/open.py", 0),
        ("Aborted", "polars/lazyframe/engine.py", 0),
    ],
)
def test_only_allocations_of_polars_are_known(message, file, known):
    outcome = Outcome()
    outcome.add(_crash(-6, f'{message}\n  File "/venv/lib/python3.11/site-packages/{file}", line 410 in go\n'), "")
    assert (outcome.known, len(outcome.findings)) == (known, 1 - known)
