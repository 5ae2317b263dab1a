"""Defaults: the right model without choosing anything, on any scale of data."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning

from terafactor import ElasticNet, MaskedDictionaryLearning, NormBall, load_model
from terafactor.datasets import make_brain_like, make_planted
from terafactor.dictionary import defaults
from terafactor.errors import FitWarning, ParameterError
from terafactor.problem.penalties.elastic_net import RIDGE_SHARE


def patches():
    image = datasets.load_sample_image("china.jpg").mean(axis=2)[:120, :160]
    found = np.lib.stride_tricks.sliding_window_view(image, (8, 8))[::4, ::4].reshape(-1, 64)
    return found.astype(np.float64)


def words():
    """Return rows like those of tf-idf: few words each, of unit norm."""
    random = np.random.default_rng(0)
    topics = random.random((5, 300)) ** 8
    counts = random.poisson(topics[random.integers(5, size=400)])
    return (counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)).astype(np.float64)


def planted():
    random = np.random.default_rng(0)
    atoms = random.standard_normal((8, 60))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    codes = (random.random((3000, 8)) < 0.2) * random.standard_normal((3000, 8))
    return codes @ atoms + 0.02 * random.standard_normal((3000, 60)), atoms


def standardized(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


TABLES = {
    "diabetes": lambda: datasets.load_diabetes().data,
    "iris": lambda: datasets.load_iris().data,
    "wine": lambda: standardized(datasets.load_wine().data),
    "cancer": lambda: standardized(datasets.load_breast_cancer().data),
    "digits": lambda: datasets.load_digits().data,
    "small digits": lambda: datasets.load_digits().data / 100,
    "linnerud": lambda: standardized(datasets.load_linnerud().data),
    "pixels": patches,
    "centered patches": lambda: (patches() - patches().mean(axis=1, keepdims=True)) / 255,
    "words": words,
    "planted": lambda: planted()[0],
    "volumes": lambda: make_brain_like(300, 500, n_maps=5)[0].astype(np.float64),
    "counts": lambda: np.random.default_rng(0).poisson(3.0, (300, 40)).astype(np.float64),
    "noise": lambda: np.random.default_rng(0).standard_normal((300, 30)),
}


@pytest.mark.parametrize("name", TABLES)
def test_no_table_gives_an_empty_model(name):
    X = TABLES[name]()
    k = min(10, X.shape[1] - 1)
    learner = MaskedDictionaryLearning(k, random_state=0).fit(X)
    used = (learner.transform(X) != 0).sum(axis=1)
    assert used.mean() > 0.8
    assert (used > 0).mean() > 0.5
    assert used.mean() < 0.95 * k or k < 5


@pytest.mark.parametrize("name", ["digits", "cancer", "centered patches", "words"])
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 100, 1e4])
def test_the_scale_of_a_table_does_not_matter(name, scale):
    X = TABLES[name]()
    plain, scaled = (MaskedDictionaryLearning(8, random_state=0).fit(factor * X) for factor in (1, scale))
    assert scaled.alpha_ == pytest.approx(scale * plain.alpha_, rel=1e-6)
    assert scaled.n_steps_ == plain.n_steps_
    codes, others = plain.transform(X), scaled.transform(scale * X)
    assert ((codes != 0) == (others != 0)).mean() > 0.999
    errors = [np.square(part - fit.inverse_transform(code)).sum() / np.square(part).sum()
              for fit, part, code in ((plain, X, codes), (scaled, scale * X, others))]  # fmt: skip
    assert errors[0] == pytest.approx(errors[1], abs=1e-3)


def test_planted_atoms_are_found_by_default():
    X, atoms = planted()
    learned = MaskedDictionaryLearning(8, random_state=0).fit(X).components_
    cosines = np.abs(atoms @ learned.T) / np.linalg.norm(learned, axis=1)
    assert (cosines.max(axis=1) > 0.99).all()


def test_non_negative_factors_come_near_those_of_scikit_learn():
    from sklearn.decomposition import NMF

    X = datasets.load_digits().data
    learner = MaskedDictionaryLearning(8, positive_code=True, positive_dict=True, random_state=0).fit(X)
    assert learner.alpha_ == 0
    error = np.linalg.norm(X - learner.inverse_transform(learner.transform(X)))
    assert error < 1.02 * NMF(8, max_iter=1000, random_state=0).fit(X).reconstruction_err_


@pytest.fixture(scope="module")
def volumes():
    return make_brain_like(400, 600, n_maps=6)[0]


class TestAlpha:
    def alpha(self, X, **parameters):
        return MaskedDictionaryLearning(6, n_epochs=0.1, random_state=0, **parameters).fit(X).alpha_

    def test_ridge_is_a_share_of_an_atom(self, volumes):
        assert self.alpha(volumes, penalty="l2") == pytest.approx(RIDGE_SHARE)
        assert self.alpha(100 * volumes, penalty="l2") == pytest.approx(RIDGE_SHARE)
        assert self.alpha(volumes, penalty="l2", constraint="l1") == pytest.approx(RIDGE_SHARE * 6 / 600)
        wide = NormBall("l2", radius=3.0)
        assert self.alpha(volumes, penalty="l2", constraint=wide) == pytest.approx(9 * RIDGE_SHARE)

    def test_a_mixture_takes_the_weaker(self, volumes):
        parts = [self.alpha(volumes), self.alpha(volumes, penalty="l2")]
        assert self.alpha(volumes, penalty=ElasticNet(0.5)) == pytest.approx(2 * min(parts))

    def test_missing_values_and_zeros_that_are_not_stored_change_little(self, volumes):
        holes = volumes.astype(np.float64)
        holes[np.random.default_rng(0).random(volumes.shape) < 0.3] = np.nan
        assert self.alpha(holes, missing="nan") == pytest.approx(self.alpha(volumes), rel=0.25)
        thin = sparse.random_array((500, 2000), density=0.02, format="csr", rng=np.random.default_rng(0))
        assert self.alpha(thin) == pytest.approx(self.alpha(thin.toarray()), rel=1e-6)

    def test_rows_of_zeros_have_no_scale(self):
        assert self.alpha(np.zeros((50, 8))) == 0

    def test_a_number_keeps_its_meaning(self, volumes):
        assert self.alpha(volumes, alpha=0.7) == 0.7

    @pytest.mark.parametrize("alpha", ["strong", -1, None])
    def test_anything_else_is_refused(self, volumes, alpha):
        with pytest.raises(ParameterError, match="alpha must be"):
            self.alpha(volumes, alpha=alpha)

    def test_it_is_remembered(self, volumes, tmp_path):
        learner = MaskedDictionaryLearning(6, n_epochs=0.5, random_state=0).fit(volumes)
        learner.save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        assert (loaded.alpha, loaded.alpha_, loaded.batch_size_) == ("auto", learner.alpha_, learner.batch_size_)
        assert loaded.objective(volumes) == learner.objective(volumes)
        np.testing.assert_array_equal(loaded.partial_fit(volumes).components_, learner.partial_fit(volumes).components_)


def test_the_batch_follows_the_atoms():
    assert defaults.batch_size(100, 500) == 200
    assert defaults.batch_size(3, 500) == defaults.FEWEST_ROWS
    assert defaults.batch_size(1000, 2**22) == 16
    assert defaults.batch_size(10, 2**30) == 1


def test_small_tables_get_many_passes_and_large_ones_few():
    class Table:
        in_memory, dtype = True, np.dtype(np.float32)

        def __init__(self, *shape):
            self.shape = shape

    assert defaults.most_passes(Table(100, 10), 20) == defaults.MOST_PASSES
    assert defaults.most_passes(Table(100_000, 10), 20) == 4
    assert defaults.most_passes(Table(10_000_000, 10), 20) == 1
    wide = Table(100_000, 200_000)
    wide.in_memory = False
    assert defaults.most_passes(wide, 70) == 1


def test_streams_do_not_depend_on_how_they_are_cut():
    X, _ = make_planted(n_samples=400, n_features=50, n_atoms=5)
    learners = [MaskedDictionaryLearning(5, batch_size=20, random_state=0) for _ in range(2)]
    learners[0].partial_fit(X)
    for part in np.split(X, [20, 60, 300]):
        learners[1].partial_fit(part)
    assert learners[0].alpha_ == learners[1].alpha_
    np.testing.assert_array_equal(learners[0].components_, learners[1].components_)


class TestEnd:
    def test_a_converged_fit_is_reported_as_converged(self):
        learner = MaskedDictionaryLearning(8, random_state=0).fit(planted()[0])
        assert (learner.stopped_by_, learner.progress_) == ("tol", "converged")
        assert learner.n_iter_ == -(-learner._state.n_samples // 3000)

    def test_an_unfinished_fit_is_reported_as_improving(self, monkeypatch):
        monkeypatch.setattr(defaults, "most_passes", lambda source, k: 2.0)
        with pytest.warns(
            ConvergenceWarning, match=r"after 2 passes over 3,000 rows .*was improving by [\d.e-]+ % per pass"
        ):
            learner = MaskedDictionaryLearning(8, tol=1e-6, random_state=0).fit(planted()[0])
        assert learner.progress_.startswith("still improving by ")

    def test_a_flat_objective_is_not_called_improving(self, recwarn):
        learner = MaskedDictionaryLearning(4, random_state=0).fit(planted()[0][:3])
        assert (learner.stopped_by_, learner.progress_) == ("n_epochs", "converged")
        assert not [warning for warning in recwarn if warning.category is ConvergenceWarning]

    def test_a_number_of_passes_is_kept_without_a_word(self, recwarn):
        learner = MaskedDictionaryLearning(8, n_epochs=3, random_state=0).fit(planted()[0])
        assert learner.n_iter_ == 3
        assert not [warning for warning in recwarn if warning.category is ConvergenceWarning]

    def test_held_out_rows_show_progress_if_nothing_else_does(self):
        X = planted()[0]
        learner = MaskedDictionaryLearning(8, n_epochs=3, random_state=0).fit(X[:2500], validation=X[2500:])
        assert learner.progress_


class TestAdvice:
    def warns(self, match, X, **parameters):
        with pytest.warns(FitWarning, match=match) as caught:
            MaskedDictionaryLearning(4, random_state=0, **parameters).fit(X)
        return [str(warning.message) for warning in caught]

    def test_a_penalty_that_is_too_strong(self):
        X = planted()[0]
        (text,) = self.warns(r"9\d|100 % of the rows have only zero codes: alpha=50 is too large", X, alpha=50.0)
        better = float(text.split("alpha=")[2].split(",")[0])
        codes = MaskedDictionaryLearning(4, alpha=better, random_state=0).fit_transform(X)
        assert (codes != 0).any(axis=1).mean() > 0.5

    def test_a_penalty_that_is_too_weak(self):
        self.warns("of the codes are nonzero: alpha=1e-06 is too small.*try alpha=", planted()[0], alpha=1e-6)

    def test_no_alpha_is_advised_that_the_fit_nearly_has(self, monkeypatch, recwarn):
        monkeypatch.setattr("terafactor.dictionary.advice.suggest_alpha", lambda *_: 1.05e-6)
        MaskedDictionaryLearning(4, alpha=1e-6, random_state=0).fit(planted()[0])
        assert not [warning for warning in recwarn if "alpha=" in str(warning.message)]

    def test_auto_is_not_advised_to_fits_that_use_it(self):
        X, _ = make_planted(n_samples=400, n_features=60, n_atoms=5)
        (text,) = self.warns("of the codes are nonzero", X, penalty="group-lasso:4")
        assert "auto" not in text

    def test_a_matrix_of_zeros(self):
        assert len(self.warns("all values are zero in 50 rows of X", np.zeros((50, 8)), alpha=0.1)) == 1

    def test_negative_values_in_non_negative_factors(self):
        X = np.random.default_rng(0).standard_normal((200, 8))
        self.warns(r"50 % of the squared values of X are of negative entries", X, positive_code=True,
                   positive_dict=True)  # fmt: skip

    def test_atoms_that_nothing_uses(self):
        X = np.zeros((200, 6))
        X[:, 0] = np.random.default_rng(0).standard_normal(200)
        X[:, 1:3] = np.random.default_rng(1).standard_normal((200, 2))
        init = np.eye(4, 6)
        self.warns("1 of the 4 atoms is not used by any row: try n_components=3", X, alpha=0.05, init=init, n_epochs=2)

    def test_more_atoms_than_rows(self):
        X = np.random.default_rng(0).standard_normal((3, 6))
        texts = self.warns("n_components=4 exceeds the 3 rows of X: use fewer atoms than rows", X)
        assert not any("not used" in text for text in texts)

    def test_a_column_that_dominates_the_others(self):
        X = np.random.default_rng(0).standard_normal((200, 5))
        X[:, 3] *= 1000
        self.warns(r"column 3 holds 100.0 % of the squared values", X)

    def test_a_column_is_named_in_warnings(self, tmp_path):
        polars = pytest.importorskip("polars")
        X = np.random.default_rng(0).standard_normal((200, 5))
        X[:, 3] *= 1000
        frame = polars.DataFrame(X, schema=list("abcde"))
        frame.write_csv(tmp_path / "table.csv")
        for data in (frame, tmp_path / "table.csv"):
            self.warns(r"column 'd' holds 100.0 % of the squared values", data)

    def test_masks_that_are_too_small(self):
        X, _ = make_planted(n_samples=1500, n_features=120, n_atoms=20)
        with pytest.warns(
            FitWarning, match=r"the objective rose by .* 30 features per step are too few.* smaller reduction"
        ):
            MaskedDictionaryLearning(20, alpha=0.1, reduction=4, batch_size=40, random_state=0).fit(X)

    def test_a_good_fit_has_no_warnings(self, recwarn):
        MaskedDictionaryLearning(8, random_state=0).fit(planted()[0])
        assert not [warning for warning in recwarn if issubclass(warning.category, FitWarning | ConvergenceWarning)]
