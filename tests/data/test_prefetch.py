"""Prefetching changes the timing only."""

import gc
import sys
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from terafactor import ArraySource, MaskedDictionaryLearning, RandomMasks
from terafactor.data import BatchStream
from terafactor.data.masks import Masks
from terafactor.data.prefetch import DEPTH, N_READERS, QUICK_SECONDS, prefetch
from terafactor.errors import DataError
from terafactor.problem import Problem
from terafactor.solver import SolverOptions, State, fit
from terafactor.testing import CountingSource, SourceContract


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("terafactor-reader")]


def later(number, delay):
    time.sleep(delay)
    return number


def test_results_come_in_the_order_of_the_tasks():
    delays = np.random.default_rng(0).exponential(0.003, 40)
    tasks = (partial(later, number, delay) for number, delay in enumerate(delays))
    assert list(prefetch(tasks)) == list(range(40))
    assert readers() == []


def test_no_more_tasks_than_the_depth_start_in_advance():
    started = []
    results = prefetch([*SLOW, *(partial(started.append, number) for number in range(100))])
    for _ in SLOW:
        next(results)
    for taken in range(1, 20):
        next(results)
        time.sleep(0.002)
        assert taken <= len(started) <= taken + DEPTH
    results.close()


SLOW = [partial(later, None, 2 * QUICK_SECONDS)] * 2
"""Tasks after which others run in threads."""


def test_tasks_run_at_the_same_time():
    barrier = threading.Barrier(N_READERS, timeout=10)
    assert len(list(prefetch([*SLOW, *[barrier.wait] * N_READERS]))) == 2 + N_READERS


def test_quick_tasks_run_in_the_calling_thread(monkeypatch):
    with monkeypatch.context() as stopped:
        stopped.setattr(sys.modules[prefetch.__module__], "time", SimpleNamespace(perf_counter=lambda: 0.0))
        assert set(prefetch([threading.get_ident] * 20)) == {threading.get_ident()}
    others = list(prefetch([*SLOW, *[threading.get_ident] * 20]))[2:]
    assert threading.get_ident() not in others


@pytest.mark.parametrize("before", [[], SLOW])
def test_an_error_comes_at_its_place(before):
    def task(number):
        if number == 3:
            raise DataError("the third is bad")
        return number

    results = prefetch([*before, *(partial(task, number) for number in range(10))])
    assert [next(results) for _ in range(3 + len(before))][len(before) :] == [0, 1, 2]
    with pytest.raises(DataError, match="third"):
        next(results)
    assert readers() == []


def test_nothing_is_left_when_it_is_closed_early():
    started = []
    results = prefetch([*SLOW, *(partial(started.append, number) for number in range(1000))])
    for _ in range(3):
        next(results)
    results.close()
    assert readers() == []
    n_started = len(started)
    time.sleep(0.01)
    assert len(started) == n_started <= 1 + DEPTH


class SlowSource(CountingSource):
    """Rows on a disk that takes its time, a different one for every read; row 50 can be made unreadable."""

    def __init__(self, array, seed=0, bad_row=None):
        super().__init__(ArraySource(array))
        self.in_memory = False
        self.bad_row = bad_row
        self.readers = set()
        self._random, self._lock = np.random.default_rng(seed), threading.Lock()

    def read(self, rows, columns=None):
        with self._lock:
            delay = QUICK_SECONDS + self._random.exponential(0.001)
            self.readers.add(threading.current_thread().name)
        time.sleep(delay)
        if self.bad_row is not None and self.bad_row in rows:
            raise DataError("the disk is broken")
        return super().read(rows, columns)


class TestSlowSource(SourceContract):
    def make(self, tmp_path):
        array = np.random.default_rng(0).standard_normal((12, 9))
        return SlowSource(array), array


@pytest.mark.parametrize("reduction", [1, 4])
def test_a_fit_does_not_depend_on_timing(X, reduction):
    learner = MaskedDictionaryLearning(4, batch_size=5, reduction=RandomMasks(reduction, "masked"), random_state=0)
    atoms = learner.fit(X).components_
    for seed in range(3):
        source = SlowSource(X, seed)
        np.testing.assert_array_equal(learner.fit(source).components_, atoms)
        assert any(name.startswith("terafactor-reader") for name in source.readers)
        np.testing.assert_array_equal(learner.transform(source), learner.transform(X))
    assert readers() == []


def test_a_failing_reader_stops_the_fit_at_its_batch(X):
    steps = []
    source = SlowSource(X, bad_row=50)
    stream = BatchStream(source, 5, Masks(X.shape[1], 1, 0), 0, whole_rows=False)
    expected = next(number for number in range(18) if 50 in stream.rows(number))
    options = SolverOptions(3, batch_size=5)
    state = State.start(np.eye(3, X.shape[1]), Problem())
    with pytest.raises(DataError, match="the disk is broken"):
        fit(source, Problem(), options, state, [lambda now: steps.append(now.step)])
    assert len(steps) == expected
    assert readers() == []


def test_readers_end_when_a_callback_stops_the_fit_or_fails(X):
    def fail(snapshot):
        raise RuntimeError("enough")

    MaskedDictionaryLearning(3, batch_size=5, callbacks=[lambda now: now.step == 3]).fit(SlowSource(X))
    assert readers() == []
    with pytest.raises(RuntimeError, match="enough"):
        MaskedDictionaryLearning(3, batch_size=5, callbacks=[fail]).fit(SlowSource(X))
    assert readers() == []


@pytest.mark.parametrize(("n_threads", "others"), [(1, set()), (2, {"terafactor-reader_0"})])
def test_rows_in_memory_are_copied_ahead_where_there_are_threads(X, n_threads, others):
    source = SlowSource(X)
    source.in_memory = True
    MaskedDictionaryLearning(3, batch_size=5, n_threads=n_threads).fit(source)
    assert source.readers == {threading.current_thread().name} | others


def test_large_batches_in_memory_are_not_read_before_they_are_due(X, monkeypatch):
    monkeypatch.setattr("terafactor.data.stream.MAX_PREFETCH_BYTES", 5 * X.shape[1] * X.itemsize - 1)
    source = SlowSource(X)
    source.in_memory = True
    MaskedDictionaryLearning(3, batch_size=5, n_threads=2).fit(source)
    assert source.readers == {threading.current_thread().name}


def test_a_stream_that_is_dropped_leaves_no_reader(X):
    stream = BatchStream(SlowSource(X), 5, Masks(X.shape[1], 1, 0), 0, whole_rows=False)
    batches = stream.batches(0, 18)
    next(batches)
    del batches
    gc.collect()
    assert readers() == []
