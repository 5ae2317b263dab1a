"""Every registered penalty: optimal codes, and a fit on every kind of data."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import orthogonal_mp_gram

from terafactor import MaskedDictionaryLearning, RandomMasks, load_model
from terafactor.errors import ParameterError
from terafactor.problem import OMP, ElasticNet, GroupLasso, Simplex, TopK
from terafactor.problem.registry import PENALTIES, from_text

K, ROWS = 12, 9
STRENGTH = 0.2

PENALTIES_TO_TEST = [
    ElasticNet(1.0),
    ElasticNet(0.0),
    ElasticNet(0.4, positive=True),
    GroupLasso(3),
    GroupLasso(4, l1_ratio=0.4),
    GroupLasso((0, 1, 1, 2, 0, 2, 5, 5, 5, 5, 1, 7), l1_ratio=0.2, positive=True),
    OMP(4),
    TopK(4),
    Simplex(),
    Simplex(total=3.0),
]
CONVEX = [penalty for penalty in PENALTIES_TO_TEST if not isinstance(penalty, OMP)]
named = pytest.mark.parametrize("penalty", PENALTIES_TO_TEST, ids=repr)


@pytest.fixture(name="data")
def correlated_atoms():
    """Inner products of correlated atoms of unit norm, and of rows with them: G (k, k), h (b, k), atoms, rows."""
    random = np.random.default_rng(0)
    atoms = random.standard_normal((K, 20)) + random.standard_normal(20)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    rows = random.standard_normal((ROWS, 20))
    return atoms @ atoms.T, rows @ atoms.T, atoms, rows


def literal_prox(penalty, points, strength):
    """The proximal operator of each penalty, written down from its definition."""
    if isinstance(penalty, Simplex):
        low, high = points.min(axis=1) - penalty.total, points.max(axis=1)
        for _ in range(60):  # bisection for the threshold that leaves the right sum
            middle = (low + high) / 2
            above = np.maximum(points - middle[:, np.newaxis], 0).sum(axis=1) > penalty.total
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.maximum(points - high[:, np.newaxis], 0)
    l1 = strength * penalty.l1_ratio
    points = np.maximum(points, 0) if penalty.positive else points
    soft = np.sign(points) * np.maximum(np.abs(points) - l1, 0)
    if isinstance(penalty, ElasticNet):
        return soft / (1 + strength * (1 - penalty.l1_ratio))
    labels = np.arange(K) // penalty.groups if isinstance(penalty.groups, int) else np.array(penalty.groups)
    for label in set(labels.tolist()):
        group = labels == label
        norms = np.linalg.norm(soft[:, group], axis=1, keepdims=True)
        weight = strength * (1 - penalty.l1_ratio) * np.sqrt(group.sum())
        soft[:, group] *= np.maximum(1 - weight / np.maximum(norms, 1e-300), 0)
    return soft


def literal_codes(penalty, gram, products, strength):
    """Proximal gradient descent, long enough."""
    curvature = np.linalg.eigvalsh(gram)[-1]
    codes = np.zeros_like(products)
    for _ in range(3_000):
        codes = literal_prox(penalty, codes - (codes @ gram - products) / curvature, strength / curvature)
    return codes


@pytest.mark.parametrize("penalty", CONVEX, ids=repr)
def test_codes_equal_a_literal_proximal_loop(penalty, data):
    gram, products, _, _ = data
    codes = penalty.codes(gram, products, STRENGTH, 1e-10)
    np.testing.assert_allclose(codes, literal_codes(penalty, gram, products, STRENGTH), atol=1e-6)
    assert penalty.violation(gram, products, STRENGTH, codes).max() < 1e-8
    assert (penalty.violation(gram, products, STRENGTH, codes + 0.1) > 1e-3).all()


@pytest.mark.parametrize("share", [0.1, 0.01])
@pytest.mark.parametrize("penalty", CONVEX, ids=repr)
def test_the_tolerance_holds_for_nearly_dependent_atoms(penalty, share):
    """The violation of the codes returned, not that of codes one update earlier, is at most the tolerance."""
    random = np.random.default_rng(0)
    atoms = random.standard_normal((K, 20)) + 4 * random.standard_normal(20)
    gram, products = atoms @ atoms.T, random.standard_normal((200, 20)) @ atoms.T
    strength = share * np.median(np.abs(products))
    codes = penalty.codes(gram, products, strength, 1e-4)
    scale = np.maximum(np.abs(products).max(axis=1), np.abs(codes @ gram).max(axis=1))
    assert (penalty.violation(gram, products, strength, codes) / scale).max() <= 1e-4


@pytest.mark.parametrize("n_nonzero", [1, 4, K])
def test_matching_pursuit_equals_that_of_scikit_learn(data, n_nonzero):
    gram, products, _, _ = data
    codes = OMP(n_nonzero).codes(gram, products, 0.0, 1e-6)
    expected = orthogonal_mp_gram(gram, products.T, n_nonzero_coefs=n_nonzero).T
    np.testing.assert_allclose(codes, expected, atol=1e-6)
    assert OMP(n_nonzero).violation(gram, products, 0.0, codes).max() < 1e-8


def test_matching_pursuit_passes_over_copies_and_zeros():
    """An atom that is a copy of a selected one, or zero, is never selected; a row that is explained needs no more."""
    atoms = np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0], [0, 0, 0]])
    rows = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 5.0]])
    codes = OMP(4).codes(atoms @ atoms.T, rows @ atoms.T, 0.0, 1e-6)
    np.testing.assert_allclose(codes, [[2, 0, 1, 0], [0, 0, 0, 0]])


def test_top_k_solves_least_squares_on_the_most_correlated_atoms(data):
    gram, products, atoms, rows = data
    codes = TopK(3).codes(gram, products, 0.0, 1e-6)
    for row, code, correlation in zip(rows, codes, products, strict=True):
        chosen = np.argsort(-np.abs(correlation))[:3]
        expected = np.linalg.lstsq(atoms[chosen].T, row, rcond=None)[0]
        np.testing.assert_allclose(code[chosen], expected, atol=1e-8)
        assert np.count_nonzero(code) == 3


@named
def test_rows_with_a_gram_matrix_each_are_coded_alone(penalty, data):
    """Missing values: the code of a row is that of the row alone with its own Gram matrix and strength."""
    _, _, atoms, rows = data
    seen = np.random.default_rng(1).random(rows.shape) < 0.8
    grams = np.stack([(atoms * mask) @ atoms.T + 1e-9 * np.eye(K) for mask in seen])
    products = np.ascontiguousarray((rows * seen) @ atoms.T)
    strengths = STRENGTH * seen.mean(axis=1)
    together = penalty.codes(grams, products, strengths, 1e-9)
    for i in range(ROWS):
        alone = penalty.codes(grams[i], products[i : i + 1], strengths[i], 1e-9)
        np.testing.assert_allclose(together[i], alone[0], atol=1e-6)


@pytest.mark.parametrize("penalty", [each for each in CONVEX if each.is_sparse], ids=repr)
def test_codes_vanish_at_the_zero_strength(penalty, data):
    gram, products, _, _ = data
    for strength, row in zip(penalty.zero_strength(products), products, strict=True):
        above, below = (penalty.codes(gram, row[np.newaxis], factor * strength, 1e-9) for factor in (1.001, 0.99))
        assert not above.any()
        assert below.any() or strength == 0


def test_every_registered_penalty_is_tested():
    registered = {kind for kind in PENALTIES.values() if kind.__module__.startswith("terafactor.")}
    assert {type(penalty) for penalty in PENALTIES_TO_TEST} == {kind for kind in registered if isinstance(kind, type)}


@named
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_of_a_model_satisfy_the_optimality_conditions(penalty, dtype, X):
    """In single precision, too, from data to codes: 1e-4 of the largest product, the tolerance of codes."""
    X = np.hstack([X, X[:, ::-1] ** 2]).astype(dtype)
    model = MaskedDictionaryLearning(K, penalty=penalty, random_state=0, n_epochs=3).fit(X)
    codes, atoms = model.transform(X).astype(np.float64), model.components_.astype(np.float64)
    gram, products = atoms @ atoms.T, X.astype(np.float64) @ atoms.T
    scale = np.maximum(np.abs(products).max(axis=1), np.abs(codes @ gram).max(axis=1))
    assert (penalty.violation(gram, products, model.alpha_, codes) / scale).max() <= 1e-4


@named
def test_non_negative_codes_work_or_are_refused_by_name(penalty, X):
    model = MaskedDictionaryLearning(K, penalty=penalty, positive_code=True, random_state=0, n_epochs=2)
    if isinstance(penalty, OMP):
        name = type(penalty).__name__
        with pytest.raises(ParameterError, match=f"positive_code=True needs a penalty with a field 'positive'.*{name}"):
            model.fit(X)
        return
    codes = model.fit(X).transform(X)
    assert codes.min() >= 0
    assert codes.any()


@named
@pytest.mark.parametrize("kind", ["dense", "missing", "sparse", "masks", "masked statistics", "exact", "float64"])
def test_a_fit_lowers_the_objective_and_survives_saving(penalty, kind, X, tmp_path):
    X = np.hstack([X, X[:, ::-1] ** 2]).astype(np.float64 if kind == "float64" else np.float32)
    masks = {"masks": {}, "masked statistics": {"statistics": "masked"}, "exact": {"projection": "exact"}}
    options = {"reduction": RandomMasks(2, **masks[kind])} if kind in masks else {}
    if kind == "missing":
        X[::4, 3], options["missing"] = np.nan, "nan"
    data = csr_array(np.where(np.abs(X) > 0.5, X, 0)) if kind == "sparse" else X

    def fit(n_threads, n_epochs):
        model = MaskedDictionaryLearning(K, penalty=penalty, random_state=0, n_threads=n_threads, n_epochs=n_epochs)
        return model.set_params(**options).fit(data)

    model = fit(1, 5)
    untrained = MaskedDictionaryLearning(K, penalty=penalty, alpha=model.alpha_, random_state=0, **options)
    untrained.set_params(n_epochs=0.05, batch_size=1).fit(data)
    if kind != "exact":  # which does not guarantee descent
        assert model.objective(data) < untrained.objective(data)
    np.testing.assert_array_equal(model.components_, fit(2, 5).components_)
    codes = model.transform(data)
    if isinstance(penalty, OMP):
        assert (np.count_nonzero(codes, axis=1) <= penalty.n_nonzero).all()
    if getattr(penalty, "positive", False):
        assert codes.min() >= 0
    if isinstance(penalty, Simplex):
        np.testing.assert_allclose(codes.sum(axis=1), penalty.total, rtol=1e-4)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.penalty == penalty
    np.testing.assert_array_equal(loaded.transform(data), codes)


def test_group_lasso_finds_the_planted_groups_with_the_default_alpha():
    """With the atoms known, rows in noise use the planted groups and few others."""
    random = np.random.default_rng(0)
    penalty, atoms = GroupLasso(3), random.standard_normal((60, 100)) / 10
    planted = random.random((300, 20)) < 0.1
    planted = planted[planted.any(axis=1)]
    codes = random.standard_normal((len(planted), 60)) * np.repeat(planted, 3, axis=1)
    products = (codes @ atoms + 0.2 * random.standard_normal((len(planted), 100))) @ atoms.T
    alpha = penalty.auto_alpha(float(np.median(penalty.zero_strength(products))), 1.0)
    found = penalty.codes(atoms @ atoms.T, products, alpha, 1e-6).reshape(-1, 20, 3).any(axis=2)
    assert (found == planted).mean() > 0.95


def test_simplex_recovers_shares():
    """Unmixing: rows are mixtures of pure spectra, and codes are the shares."""
    random = np.random.default_rng(0)
    spectra = np.abs(random.standard_normal((3, 30))).astype(np.float64)
    shares = random.dirichlet(np.ones(3), 50)
    codes = Simplex().codes(spectra @ spectra.T, shares @ spectra @ spectra.T, 0.0, 1e-8)
    np.testing.assert_allclose(codes, shares, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l1", ElasticNet(1.0)),
        ("l2", ElasticNet(0.0)),
        ("elastic-net:0.25", ElasticNet(0.25)),
        ("elastic-net:0.25,positive=True", ElasticNet(0.25, positive=True)),
        ("omp:5", OMP(5)),
        ("top-k:n_nonzero=2", TopK(2)),
        ("simplex", Simplex()),
        ("group-lasso:(0,0,1),l1_ratio=0.5", GroupLasso((0, 0, 1), 0.5)),
    ],
)
def test_penalties_by_name(text, expected):
    assert from_text(text, PENALTIES, "penalty") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lasso", "penalty must be one of .*elastic-net, .*got 'lasso'"),
        ("omp:", None),
        ("omp:x", "invalid arguments of penalty 'omp:x': write omp:value or omp:name=value"),
        ("omp:n=3", "invalid arguments of penalty"),
        ("omp:__import__('os').getpid()", "invalid arguments of penalty"),
        ("omp:3)(", "invalid arguments of penalty"),
        ("omp:" + "(" * 5000, "invalid arguments of penalty"),
        ("omp:0", "n_nonzero must be an integer >= 1, got 0"),
        ("simplex:-1", "total of the simplex must be a number > 0, got -1"),
        ("group-lasso:0", "groups must be k labels or a number of atoms per group >= 1, got 0"),
        ("group-lasso:2,l1_ratio=1", "l1_ratio of the group lasso must be at least 0 and below 1, got 1"),
    ],
)
def test_wrong_texts_are_refused(text, message):
    if message is None:
        assert from_text(text, PENALTIES, "penalty") == OMP()
        return
    with pytest.raises(ParameterError, match=message):
        from_text(text, PENALTIES, "penalty")


def test_labels_must_be_as_many_as_atoms(X):
    with pytest.raises(ParameterError, match="groups has 3 labels, but n_components is 4: pass one label per atom"):
        MaskedDictionaryLearning(4, penalty=GroupLasso((0, 0, 1)), alpha=0.1).fit(X)


def test_positive_codes(X):
    model = MaskedDictionaryLearning(4, penalty="group-lasso:2", positive_code=True, random_state=0).fit(X)
    assert model.transform(X).min() >= 0
    MaskedDictionaryLearning(4, penalty="simplex", positive_code=True, random_state=0, n_epochs=1).fit(X)
    with pytest.raises(ParameterError, match="positive_code=True needs a penalty with a field 'positive', which OMP"):
        MaskedDictionaryLearning(4, penalty="omp:2", positive_code=True).fit(X)
