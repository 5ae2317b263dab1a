"""Rounds: the result depends on the shards and their steps, never on where shards run."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from terafactor.data import ArraySource, SparseSource
from terafactor.datasets import matched_correlation
from terafactor.errors import ParameterError
from terafactor.problem import ElasticNet, GrowingWindow, NormBall, Problem, SmoothBall
from terafactor.solver import SolverOptions, State, fit
from terafactor.solver.maintain import Evidence, WorstRows
from terafactor.solver.rounds import LocalExecutor, merge_evidence, reduce_in_pairs, rounds
from terafactor.solver.state import merge

K, P = 8, 120
PROBLEM = Problem(1.0, ElasticNet(1.0))
OPTIONS = SolverOptions(
    K, batch_size=20, schedule=GrowingWindow(2 * K, longest=1000), reseed_after=300, n_epochs=3, shards=3, round_steps=4
)
ARRAYS = ("dictionary", "data_code", "code_gram", "sizes", "multipliers", "idle_rows", "feature_counts")


@pytest.fixture(scope="module")
def planted():
    random = np.random.default_rng(0)
    atoms = PROBLEM.constraint.fill(random.standard_normal((K, P)))
    codes = (random.random((1010, K)) < 0.3) * random.standard_normal((1010, K)) * 10
    return codes @ atoms + 0.1 * random.standard_normal((1010, P)), atoms


def assert_same_bits(one, other):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.n_steps, one.n_batches, one.n_samples) == (other.n_steps, other.n_batches, other.n_samples)


def with_holes(X):
    return ArraySource(np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X), allow_nan=True)


def wide(X):
    rows = np.zeros((len(X), 4000))
    rows[:, ::50] = X[:, :80]
    return SparseSource(sparse.csr_array(rows))


KINDS = {
    "dense": (ArraySource, PROBLEM, OPTIONS),
    "l1 ball": (ArraySource, replace(PROBLEM, constraint=NormBall("l1")), OPTIONS),
    "full statistics": (ArraySource, PROBLEM, replace(OPTIONS, reduction=3)),
    "masked statistics": (ArraySource, PROBLEM, replace(OPTIONS, reduction=3, statistics="masked")),
    "exact projection": (ArraySource, PROBLEM, replace(OPTIONS, reduction=3, projection="exact")),
    "missing values": (with_holes, PROBLEM, replace(OPTIONS, missing=True)),
    "sparse rows": (wide, PROBLEM, OPTIONS),
    "smooth atoms": (ArraySource, replace(PROBLEM, constraint=SmoothBall(shape=(10, 12), smoothness=0.1)), OPTIONS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_wherever_shards_run(planted, kind):
    make, problem, options = KINDS[kind]
    source = make(planted[0])
    serial = fit(source, problem, options, executor=LocalExecutor(1))
    assert np.isfinite(serial.dictionary).all()
    assert_same_bits(serial, fit(source, problem, replace(options, n_threads=2), executor=LocalExecutor(1)))
    assert_same_bits(serial, fit(source, problem, options, executor=LocalExecutor(2)))
    assert_same_bits(serial, fit(source, problem, replace(options, n_threads=4)))


def test_shards_recover_planted_atoms(planted):
    X, atoms = planted
    state = fit(ArraySource(X), PROBLEM, replace(OPTIONS, n_epochs=20))
    assert matched_correlation(state.dictionary, atoms) > 0.95
    assert state.n_samples == 20 * len(X)
    assert state.n_steps == state.n_batches == 20 * 51


@pytest.mark.parametrize("stop", [1, 4, 5, 9])
def test_a_resumed_fit_has_the_same_bits(planted, stop):
    source, seen = ArraySource(planted[0]), []

    def interrupt(snapshot):
        seen.append(snapshot)
        return len(seen) == stop

    whole = fit(source, PROBLEM, OPTIONS)
    part = fit(source, PROBLEM, OPTIONS, callbacks=[interrupt])
    assert part.n_batches < whole.n_batches
    resumed = State.from_state_dict(part.state_dict())
    assert_same_bits(whole, fit(source, PROBLEM, OPTIONS, resumed, first_batch=part.n_batches))


def test_rounds_visit_every_batch_once_and_end_with_the_epoch():
    options = replace(OPTIONS, shards=4, round_steps=5)
    dealt = list(rounds(0, 2 * 51, 51, options))
    assert [number for parts in dealt for part in parts for number in part] == list(range(102))
    assert [[len(part) for part in parts] for parts in dealt[:3]] == [[5] * 4, [5] * 4, [2, 3, 3, 3]]
    assert list(rounds(40, 51, 51, options)) == dealt[2:3]
    assert [(parts[0].start, parts[-1].stop) for parts in rounds(7, 58, 51, options)] == [
        (7, 20), (20, 40), (40, 51), (51, 58),
    ]  # fmt: skip
    assert [len(part) for part in next(rounds(0, 2, 2, options))] == [1, 1]


def state_of(X, n_samples, value):
    state = State.start(PROBLEM.constraint.fill(X[:K]), PROBLEM)
    state.n_samples, state.feature_counts[:], state.data_code[:] = n_samples, n_samples, value
    state.idle_rows[:] = 0
    return state


def test_features_that_no_mask_reached_keep_their_atoms(planted):
    X, options = planted[0], replace(OPTIONS, reduction=10, statistics="masked", n_epochs=4 / 51)
    start = State.start(PROBLEM.constraint.fill(X[:K]), PROBLEM)
    state = fit(ArraySource(X), PROBLEM, options, start.copy())
    unseen = state.feature_counts == 0
    assert 0 < unseen.sum() < P
    np.testing.assert_array_equal(state.dictionary[:, unseen], start.dictionary[:, unseen])
    assert (state.dictionary[:, ~unseen] != start.dictionary[:, ~unseen]).any(axis=0).all()


def test_merge_weighs_by_the_rows_of_the_round(planted):
    X, _ = planted
    before, one, two = state_of(X, 100, 0), state_of(X, 130, 1), state_of(X[K:], 110, 5)
    two.feature_counts[5] = 100
    one.n_batches, two.n_batches, one.n_steps, two.n_steps = 3, 1, 3, 1
    before.idle_rows[:2], one.idle_rows[:2], two.idle_rows[:2] = 7, [37, 37], [17, 2]
    merged = merge(one, two, before, PROBLEM)
    np.testing.assert_allclose(merged.dictionary, 0.75 * one.dictionary + 0.25 * two.dictionary)
    np.testing.assert_allclose(merged.data_code[:, 4:6], [[2, 1]] * K)
    np.testing.assert_allclose(merged.sizes, PROBLEM.constraint.psi(merged.dictionary))
    assert (merged.n_samples, merged.n_batches, merged.n_steps) == (140, 4, 4)
    assert merged.feature_counts[[4, 5]].tolist() == [140, 130]
    assert merged.idle_rows[:2].tolist() == [47, 2]  # unused in all rows of the round; used by one of the shards
    assert not np.shares_memory(merged.dictionary, one.dictionary)


def test_merging_a_state_that_saw_nothing_changes_nothing(planted):
    before, one = state_of(planted[0], 100, 0), state_of(planted[0][K:], 130, 1)
    for pair in ((one, before.copy()), (before.copy(), one)):
        merged = merge(*pair, before, PROBLEM)
        np.testing.assert_allclose(merged.dictionary, one.dictionary)
        np.testing.assert_allclose(merged.data_code, one.data_code)


def test_merges_form_a_fixed_tree():
    assert reduce_in_pairs(lambda left, right: f"({left}{right})", "abcdefg") == "(((ab)(cd))((ef)g))"
    assert reduce_in_pairs(lambda left, right: f"({left}{right})", "a") == "a"


def evidence(values, errors, columns=None):
    worst = WorstRows(np.array(values, float), np.array(errors, float), columns)
    return Evidence(1, 10, worst)


def test_worst_rows_of_all_shards_are_ranked_together():
    merged = merge_evidence([evidence([[1], [2]], [5, 3]), evidence([[3], [4]], [9, 3])])
    assert merged.worst_rows.values.ravel().tolist() == [3, 1]
    assert (merged.n_batches, merged.n_bytes) == (2, 20)
    masked = merge_evidence([evidence([[1]], [5], np.array([0])), evidence([[3]], [9], np.array([1]))])
    assert masked.worst_rows.columns.tolist() == [1]


def test_unused_atoms_are_replaced_after_a_merge(planted):
    X, atoms = planted
    init = PROBLEM.constraint.fill(np.vstack([X[: K - 1], np.zeros((1, P)) + 1e-30]))
    init[-1] = 0
    init[-1, 0] = 1e-12  # never used
    state = State.start(init, PROBLEM)
    fit(ArraySource(X), PROBLEM, replace(OPTIONS, n_epochs=20), state)
    assert state.n_reseeded >= 1
    assert matched_correlation(state.dictionary, atoms) > 0.9


def test_a_failing_shard_leaves_the_state_unchanged(planted):
    X = planted[0].copy()
    state = State.start(PROBLEM.constraint.fill(X[:K]), PROBLEM)
    before = state.copy()

    class Failing(ArraySource):
        def read(self, rows, columns=None):
            raise OSError("disk")

    for n_threads in (1, 2):
        with pytest.raises(OSError, match="disk"):
            fit(Failing(X), PROBLEM, replace(OPTIONS, n_threads=n_threads), state)
        assert_same_bits(state, before)


def test_codes_of_rows_are_not_available_with_shards(planted):
    codes = np.zeros((len(planted[0]), K))
    with pytest.raises(ParameterError, match="last_codes needs shards=1, got shards=3"):
        fit(ArraySource(planted[0]), PROBLEM, OPTIONS, last_codes=codes)
    assert not codes.any()
