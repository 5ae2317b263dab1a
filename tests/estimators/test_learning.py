"""What is learned: known atoms, the constraints, the objective, and data that broke others."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from terafactor import ElasticNet, MaskedDictionaryLearning, NormBall, RandomMasks
from terafactor.datasets import make_planted


def matched_correlations(atoms, truth):
    """Return |correlation| of each true atom with its partner in the best one-to-one matching."""
    correlations = np.abs(np.corrcoef(atoms, truth)[: len(atoms), len(atoms) :])
    return correlations[linear_sum_assignment(-correlations)]


@pytest.mark.parametrize("reduction", [1, 4])
@pytest.mark.parametrize(
    "parameters",
    [{"alpha": 5e-4, "positive_dict": True, "n_epochs": 10}, {"alpha": 1e-3, "n_epochs": 20}],
    ids=["positive atoms", "atoms of any sign"],
)
def test_planted_atoms_are_recovered(reduction, parameters):
    X, truth = make_planted(n_samples=1500, n_features=1200, n_atoms=8)
    learner = MaskedDictionaryLearning(
        8,
        penalty="l2",
        constraint="l1",
        reduction=reduction,
        batch_size=20,
        forgetting=0.75,
        random_state=0,
        **parameters,
    )
    assert matched_correlations(learner.fit(X).components_, truth).min() > 0.93


BALLS = [
    NormBall("l2"),
    NormBall("l1"),
    NormBall("elastic-net"),
    NormBall("l2", positive=True),
    NormBall("l1", radius=3.0, positive=True),
    NormBall("elastic-net", l1_ratio=0.1, positive=True),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("reduction", "statistics"), [(1, "full"), (4, "full"), (4, "masked")])
@pytest.mark.parametrize("ball", BALLS, ids=repr)
def test_atoms_stay_inside_the_ball(ball, reduction, statistics, dtype):
    X, _ = make_planted(n_samples=150, n_features=200, n_atoms=4)
    sizes = []
    learner = MaskedDictionaryLearning(
        4,
        alpha=1e-2,
        constraint=ball,
        reduction=RandomMasks(reduction, statistics),
        batch_size=10,
        n_epochs=3,
        random_state=0,
        callbacks=[lambda snapshot: sizes.append(ball.size(snapshot.components).max())],
    ).fit(X.astype(dtype))
    assert max(sizes) <= 1 + 1e-5
    assert sizes[-1] > 0.95, "the constraint must bind, or the test says nothing"
    assert not ball.positive or learner.components_.min() >= 0


@pytest.mark.parametrize("reduction", [1, 3])
@pytest.mark.parametrize("penalty", ["l1", "l2", ElasticNet(0.5)])
def test_positivity_holds_where_it_is_asked_for(X, penalty, reduction):
    options = {"penalty": penalty, "alpha": 0.1, "reduction": reduction, "n_epochs": 3, "random_state": 0}
    free = MaskedDictionaryLearning(4, **options).fit(X)
    assert free.transform(X).min() < 0
    assert free.components_.min() < 0
    positive_codes = MaskedDictionaryLearning(4, positive_code=True, **options).fit(X).transform(X)
    assert positive_codes.min() == 0
    assert positive_codes.max() > 0
    positive_atoms = MaskedDictionaryLearning(4, positive_dict=True, **options).fit(X).components_
    assert positive_atoms.min() == 0
    assert positive_atoms.any(axis=1).all()


@pytest.mark.parametrize("parameters", [{}, {"positive_dict": True}, {"constraint": "l1", "reduction": 2}])
def test_more_atoms_than_rows_leaves_no_atom_empty(X, parameters):
    learner = MaskedDictionaryLearning(9, alpha=0.1, random_state=0, **parameters).fit(X[:4])
    assert learner.components_.any(axis=1).all()
    assert len(np.unique(learner.components_, axis=0)) == 9


@pytest.mark.parametrize("parameters", [{}, {"positive_dict": True}, {"constraint": "l1", "reduction": 2}])
def test_a_first_partial_fit_of_one_row_leaves_no_atom_empty(X, parameters):
    learner = MaskedDictionaryLearning(5, alpha=0.1, random_state=0, **parameters)
    assert learner.partial_fit(X[:1]).components_.any(axis=1).all()
    before = learner.objective(X)
    for start in range(1, len(X), 10):
        learner.partial_fit(X[start : start + 10])
    assert learner.components_.any(axis=1).all()
    assert learner.objective(X) < before


@pytest.mark.parametrize("seed", range(3))
def test_positive_atoms_of_negative_rows_are_not_empty(seed):
    # the best positive atom of such rows is their mirror image, with a negative code
    learner = MaskedDictionaryLearning(4, alpha=0.1, positive_dict=True, random_state=seed).fit(np.full((20, 6), -1.0))
    assert learner.components_.any(axis=1).all()


@pytest.mark.parametrize("parameters", [{}, {"penalty": "l2", "constraint": "l1"}, {"positive_dict": True}])
@pytest.mark.parametrize(
    "rows",
    [np.full((60, 5), 3.0), np.zeros((60, 5)), np.zeros((1200, 5)), np.arange(1.0, 31)[:, None], np.ones((1, 5))],
    ids=["constant", "zero", "many zero rows", "one feature", "one row"],
)
def test_poor_data_is_learned_from_without_a_warning(rows, parameters):
    learner = MaskedDictionaryLearning(3, alpha=0.1, batch_size=8, random_state=0, **parameters).fit(rows)
    assert np.isfinite(learner.components_).all()
    assert learner.components_.any(axis=1).all()
    assert np.isfinite(learner.objective(rows))
    assert learner.objective(rows) <= 0.5 * np.mean(np.sum(rows**2, axis=1)), "codes of zero would do better"
    assert learner.inverse_transform(learner.transform(rows)).shape == rows.shape


@pytest.mark.parametrize(("reduction", "statistics"), [(1, "full"), (3, "full"), (3, "masked")])
def test_the_objective_on_rows_held_out_falls(reduction, statistics):
    X, _ = make_planted(n_samples=900, n_features=150, n_atoms=5)
    learner = MaskedDictionaryLearning(
        5, alpha=0.1, reduction=RandomMasks(reduction, statistics), batch_size=10, n_epochs=2, random_state=0
    ).fit(X[:600], validation=X[600:])
    objectives = [evaluation.objective for evaluation in learner.history_]
    assert len(objectives) > 20
    assert objectives[-1] == pytest.approx(learner.objective(X[600:]), rel=1e-6)
    thirds = [np.mean(part) for part in np.array_split(objectives, 3)]
    assert thirds[0] > thirds[1] > thirds[2]
    assert objectives[-1] < objectives[0]


def test_history_counts_upwards(X):
    learner = MaskedDictionaryLearning(3, reduction=2, batch_size=5, n_epochs=3, random_state=0)
    history = learner.fit(X, validation=X).history_
    for name in ("step", "n_samples", "seconds", "bytes_read"):
        values = [getattr(evaluation, name) for evaluation in history]
        assert values[0] > 0
        assert np.all(np.diff(values) > 0), name
    assert history[-1].step == learner.n_steps_ == 3 * 18
    assert history[-1].n_samples == 3 * len(X)
    assert all(np.isfinite(value) for evaluation in history for value in dataclasses.astuple(evaluation))


def test_without_rows_held_out_history_holds_the_end(X):
    learner = MaskedDictionaryLearning(3, batch_size=5, n_epochs=1, random_state=0).fit(X)
    (evaluation,) = learner.history_
    assert evaluation.objective is None
    assert evaluation.step == learner.n_steps_ == 18


@pytest.mark.parametrize("reduction", [1, 3])
@pytest.mark.parametrize(
    ("penalty", "l1_ratio"), [("l2", 0.0), ("l1", 1.0), (ElasticNet(0.3), 0.3)], ids=["ridge", "lasso", "elastic net"]
)
def test_the_objective_is_the_formula(X, penalty, l1_ratio, reduction):
    alpha = 0.4
    learner = MaskedDictionaryLearning(4, alpha=alpha, penalty=penalty, reduction=reduction, random_state=0).fit(X)
    codes = learner.transform(X)
    errors = 0.5 * np.sum((X - codes @ learner.components_) ** 2, axis=1)
    penalties = l1_ratio * np.abs(codes).sum(axis=1) + 0.5 * (1 - l1_ratio) * np.sum(codes**2, axis=1)
    assert learner.objective(X) == pytest.approx(np.mean(errors + alpha * penalties), rel=1e-12)
    assert learner.score(X) == -learner.objective(X)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_no_codes_near_those_of_transform_do_better(X, penalty):
    learner = MaskedDictionaryLearning(4, alpha=0.4, penalty=penalty, random_state=0).fit(X)

    def objective(codes):
        errors = 0.5 * np.sum((X - codes @ learner.components_) ** 2, axis=1)
        return errors + 0.4 * (np.abs(codes).sum(axis=1) if penalty == "l1" else 0.5 * np.sum(codes**2, axis=1))

    codes = learner.transform(X)
    best = objective(codes)
    random = np.random.default_rng(0)
    for _ in range(20):
        assert np.all(objective(codes + 0.01 * random.standard_normal(codes.shape)) > best - 1e-6)


@pytest.mark.parametrize("exponent", [-40, 20])
@pytest.mark.parametrize("reduction", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_unit_of_the_rows_does_not_matter(X, dtype, reduction, exponent):
    # with l1 codes, alpha is in the unit of the rows; a power of two scales every number without rounding
    unit = 2.0**exponent
    options = {"reduction": reduction, "n_epochs": 3, "random_state": 0}
    learner = MaskedDictionaryLearning(4, alpha=0.5, **options).fit(X.astype(dtype))
    scaled = MaskedDictionaryLearning(4, alpha=0.5 * unit, **options).fit((unit * X).astype(dtype))
    np.testing.assert_array_equal(scaled.components_, learner.components_)


def test_a_penalty_that_is_too_strong_leaves_the_atoms_where_they_start(X):
    rows = np.tile(X, (20, 1))
    init = NormBall().fill(X[:3])
    learner = MaskedDictionaryLearning(3, alpha=1e6, init=init).fit(rows)
    np.testing.assert_array_equal(learner.components_, NormBall().project(init))
    assert not learner.transform(X).any()
    assert learner.objective(X) == pytest.approx(0.5 * np.mean(np.sum(X**2, axis=1)))


def test_inverse_transform_multiplies_codes_by_atoms(X):
    learner = MaskedDictionaryLearning(4, alpha=0.01, n_epochs=20, random_state=0).fit(X)
    codes = learner.transform(X)
    rebuilt = learner.inverse_transform(codes)
    np.testing.assert_allclose(rebuilt, codes @ learner.components_, rtol=1e-12)
    assert np.sum((X - rebuilt) ** 2) < 0.2 * np.sum(X**2)


def test_sparse_codes_equal_dense_codes(X):
    learner = MaskedDictionaryLearning(4, alpha=0.5, n_epochs=2, random_state=0).fit(X)
    codes, stored = learner.transform(X), learner.transform(X, sparse=True)
    assert stored.format == "csr"
    assert stored.nnz == np.count_nonzero(codes) < codes.size
    np.testing.assert_array_equal(stored.toarray(), codes)
    np.testing.assert_array_equal(learner.fit_transform(X, sparse=True).toarray(), codes)
    np.testing.assert_allclose(learner.inverse_transform(stored), learner.inverse_transform(codes), rtol=1e-12)


def test_atom_energy_sorts_atoms_by_use():
    random = np.random.default_rng(0)
    truth = np.kron(np.eye(4), np.full(6, 6**-0.5))
    X = (random.standard_normal((600, 4)) * [1.0, 8.0, 2.0, 4.0]) @ truth
    learner = MaskedDictionaryLearning(4, penalty="l2", alpha=1e-3, init=truth, n_epochs=5, random_state=0).fit(X)
    best = np.abs(learner.components_ @ truth.T).argmax(axis=1)
    assert best[np.argsort(-learner.atom_energy_)].tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("constraint", ["l2", "l1"])
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_statistics_do_not_matter_without_masks(X, penalty, constraint):
    full, masked = (
        MaskedDictionaryLearning(
            4, alpha=0.1, penalty=penalty, constraint=constraint, reduction=RandomMasks(1, statistics), random_state=0
        ).fit(X)
        for statistics in ("full", "masked")
    )
    assert (full.statistics_, masked.statistics_) == ("full", "masked")
    np.testing.assert_array_equal(full.components_, masked.components_)


@pytest.mark.parametrize(("reduction", "statistics"), [(1, "full"), (3, "full"), (3, "masked")])
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_an_unused_atom_is_reinitialized(penalty, reduction, statistics):
    X, _ = make_planted(n_samples=1500, n_features=60, n_atoms=3)
    X[:, 50:] = 0
    init = np.zeros((3, 60), np.float32)
    init[:2, :50] = X[:2, :50]
    init[2, 55] = 1  # orthogonal to every row and to the other atoms
    learner = MaskedDictionaryLearning(
        3, alpha=0.1, penalty=penalty, reduction=RandomMasks(reduction, statistics), init=init, random_state=0
    ).fit(X)
    assert learner.history_[-1].n_reseeded > 0
    assert learner.components_[2, :50].any()
    assert learner.transform(X)[:, 2].any()
    frozen = MaskedDictionaryLearning(2, alpha=0.1, penalty=penalty, init=init[:2], random_state=0).fit(X)
    assert learner.objective(X) < frozen.objective(X), "the third atom is of use"


def test_atoms_that_are_used_are_left_alone(X):
    learner = MaskedDictionaryLearning(4, alpha=0.01, n_epochs=30, random_state=0).fit(X)
    assert learner.history_[-1].n_samples > 1000
    assert learner.history_[-1].n_reseeded == 0


@pytest.mark.parametrize("reduction", [1, 3])
def test_a_fitted_model_is_a_start(X, reduction):
    first = MaskedDictionaryLearning(4, alpha=0.1, n_epochs=10, random_state=0).fit(X)
    before = first.components_.copy()
    options = {"alpha": 0.1, "reduction": reduction, "batch_size": 30, "n_epochs": 0.3, "random_state": 1}
    second = MaskedDictionaryLearning(4, init=first, **options).fit(X)
    by_array = MaskedDictionaryLearning(4, init=before, **options).fit(X)
    cold = MaskedDictionaryLearning(4, **options).fit(X)
    np.testing.assert_array_equal(first.components_, before)
    np.testing.assert_array_equal(second.components_, by_array.components_)
    assert second.objective(X) < cold.objective(X)


def test_init_is_moved_into_the_ball(X):
    seen = []
    MaskedDictionaryLearning(
        3,
        init=100 * X[:3],
        constraint="l1",
        random_state=0,
        callbacks=[lambda snapshot: seen.append(NormBall("l1").size(snapshot.components).max())],
    ).fit(X)
    assert max(seen) <= 1 + 1e-12


def test_fit_starts_from_scratch(X):
    learner = MaskedDictionaryLearning(3, reduction=2, n_epochs=1, random_state=0).fit(X)
    once = learner.components_.copy()
    learner.partial_fit(X).fit(X)
    np.testing.assert_array_equal(learner.components_, once)
    assert learner.n_steps_ == 3


def test_auto_is_full_in_memory(X):
    assert MaskedDictionaryLearning(3, reduction=2).fit(X).statistics_ == "full"


@pytest.mark.parametrize("n_epochs", [0.5, 1, 2.5])
def test_epochs_may_be_fractions(X, n_epochs):
    learner = MaskedDictionaryLearning(3, batch_size=9, n_epochs=n_epochs, random_state=0).fit(X)
    assert learner.n_steps_ == 10 * n_epochs
    np.testing.assert_array_equal(learner.feature_counts_, 90 * n_epochs)
    assert learner.stopped_by_ == "n_epochs"


def test_atoms_stay_in_the_ball_when_masks_leave_hardly_any_room():
    """Nearly all of a sparse atom may lie outside a mask; the room that is left is then a matter of rounding."""
    random = np.random.default_rng(16)
    planted = random.standard_normal((6, 40)) * (random.random((6, 40)) < 0.1)
    sparse = random.standard_normal((300, 6)) @ planted + 0.01 * random.standard_normal((300, 40))
    random = np.random.default_rng(42)
    noise, init = random.standard_normal((2, 8, 16))
    common = {"alpha": 0.05, "penalty": "l2", "constraint": "l1", "random_state": 0}
    for X, parameters in (
        (sparse, {"n_components": 6, "reduction": RandomMasks(8, "masked"), "batch_size": 10, "n_epochs": 6}),
        (noise, {"n_components": 8, "reduction": 2.5, "batch_size": 4, "init": init}),
    ):
        for dtype in (np.float32, np.float64):
            atoms = MaskedDictionaryLearning(**common, **parameters).fit(X.astype(dtype)).components_
            assert NormBall("l1").size(atoms).max() <= 1 + 1e-5


def test_planning_draws_nothing_from_the_generator_of_a_fit():
    X = np.random.default_rng(0).standard_normal((60, 20))
    one, other = (MaskedDictionaryLearning(3, random_state=np.random.RandomState(0)) for _ in range(2))
    one.plan(X)
    np.testing.assert_array_equal(one.fit(X).components_, other.fit(X).components_)


def test_the_byte_order_of_rows_does_not_matter():
    X = np.random.default_rng(0).standard_normal((60, 20)).astype(np.float32)
    swapped = X.astype(X.dtype.newbyteorder())
    one, other = (MaskedDictionaryLearning(3, random_state=0).fit(rows).components_ for rows in (X, swapped))
    assert other.dtype == np.float32
    np.testing.assert_array_equal(one, other)
