"""Threads that fail together, and leave BLAS as they found it."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from terafactor._threads import TILE, Threads
from terafactor.solver.backends import threaded
from terafactor.solver.backends.threaded import ThreadedBackend


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_is_left_as_it_was_by_fits_that_overlap():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        one, other = Threads(1), Threads(1)
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        other.__exit__(None, None, None)
        assert blas_threads() == before


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_thread_does_not_leave_the_others_waiting(failing, monkeypatch):
    random = np.random.default_rng(0)
    atoms, data_code = random.standard_normal((2, 3, 2 * TILE))
    code_gram, raised = np.eye(3), []

    def fail(rank, *others):
        if rank == failing:
            raise ValueError("no")
        sweep_tiles(rank, *others)

    sweep_tiles = threaded.sweep_tiles
    monkeypatch.setattr(threaded, "sweep_tiles", fail)

    def sweep():
        with ThreadedBackend(2) as backend, pytest.raises(ValueError, match="no"):
            backend.sweep(atoms, data_code, code_gram, (0.0, 2.0, 1.0, False), np.ones(3), np.zeros(3), whole=True)
        raised.append(True)

    thread = threading.Thread(target=sweep, daemon=True)
    thread.start()
    thread.join(60)
    assert raised
