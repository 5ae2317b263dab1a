"""Fixtures that several folders of tests share.

``TERAFACTOR_TEST_BLAS=scipy`` makes kernels call BLAS through SciPy, as they do on machines without OpenBLAS.
"""

import os
import shutil
import signal

import numpy as np
import pytest

N_ROWS, N_FEATURES, N_ATOMS = 90, 24, 4


@pytest.fixture(scope="session", autouse=os.environ.get("TERAFACTOR_TEST_BLAS") == "scipy")
def scipy_blas():
    """Hide OpenBLAS from the kernels."""
    from terafactor.kernels import blas

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blas, "_openblas_libraries", list)
        blas.address.cache_clear()
        yield
    blas.address.cache_clear()


@pytest.fixture(name="X")
def rows_of_few_atoms():
    """Return rows (90, 24) that mix four atoms, with some noise, in float64."""
    random = np.random.default_rng(0)
    atoms = random.standard_normal((N_ATOMS, N_FEATURES))
    codes = random.standard_normal((N_ROWS, N_ATOMS)) * (random.random((N_ROWS, N_ATOMS)) < 0.5)
    return codes @ atoms + 0.1 * random.standard_normal((N_ROWS, N_FEATURES))


@pytest.fixture
def python_handles_ctrl_c():
    """Let Ctrl-C raise KeyboardInterrupt, also in a process that was started in the background."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.fixture(scope="module")
def chromium():
    """Start the headless browser of the system, for one module only: it keeps an event loop running."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
