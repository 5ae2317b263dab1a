"""A penalty, a backend and a learner that exist only here run through fit, save, load, resume and transform."""

from dataclasses import dataclass

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning, load_model, train
from terafactor.errors import DataError, ParameterError
from terafactor.problem import Penalty, register
from terafactor.problem.penalties import elastic_net as penalties
from terafactor.problem.registry import REGISTERED
from terafactor.runs.checkpoint import CheckpointPolicy
from terafactor.solver import backends, learners, use_backend
from terafactor.solver.backends.numpy import NumpyBackend
from terafactor.solver.learners.batches import BatchLearner
from terafactor.solver.maintain import Evidence


@register
@dataclass(frozen=True)
class Ridge(Penalty):
    """A penalty of one's own: value and codes, from inner products alone."""

    weight: float = 1.0

    def value(self, codes):
        return self.weight / 2 * (codes.astype(np.float64) ** 2).sum(axis=1)

    def codes(self, gram, products, strength, tolerance):
        ridge = self.weight * np.asarray(strength)[..., np.newaxis, np.newaxis] * np.eye(gram.shape[-1])
        system = np.broadcast_to(gram + ridge, (len(products), *gram.shape[-2:]))
        return np.linalg.solve(system, products[..., np.newaxis])[..., 0]


@register
@dataclass(frozen=True)
class GroupRidge(Penalty):
    """A penalty that knows how many atoms there are: one weight each."""

    weights: tuple[float, ...]

    def value(self, codes):
        return 0.5 * (codes.astype(np.float64) ** 2 @ np.array(self.weights))

    def codes(self, gram, products, strength, tolerance):
        return np.linalg.solve(gram + strength * np.diag(self.weights), products.T).T


class CountingBackend(NumpyBackend):
    """A backend of one's own."""

    n_sweeps = 0

    def sweep(self, *arguments, **others):
        CountingBackend.n_sweeps += 1
        super().sweep(*arguments, **others)


class TwiceLearner(BatchLearner):
    """A learner of one's own: two steps on every batch."""

    n_advances = 0

    def advance(self, state, data):
        TwiceLearner.n_advances += 1
        first = super().advance(state, data)
        state.n_batches -= 1  # the same batch once more
        second = super().advance(state, data)
        return Evidence(1, first.n_bytes, second.worst_rows, second.rows, second.codes)


def estimator(**parameters):
    defaults = {"n_components": 3, "alpha": 0.1, "batch_size": 10, "reduction": 3, "n_epochs": 3, "random_state": 0}
    return MaskedDictionaryLearning(**(defaults | parameters))


class KilledError(Exception):
    pass


def die_at(step):
    def die(snapshot):
        if snapshot.step == step:
            raise KilledError

    return die


def check(X, tmp_path, **parameters):
    """Fit, save, load, encode, and resume a run that was killed, to the same bits."""
    whole = train(estimator(**parameters), X, tmp_path / "whole")
    whole.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").transform(X), whole.transform(X))
    with pytest.raises(KilledError):
        train(
            estimator(**parameters), X, tmp_path / "cut", checkpoints=CheckpointPolicy(steps=4),
            callbacks=[die_at(10)],
        )  # fmt: skip
    resumed = train(estimator(**parameters), X, tmp_path / "cut", resume=True)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    return whole


@pytest.mark.parametrize("missing", [None, "nan"])
def test_a_penalty(X, tmp_path, missing):
    if missing:
        X[::3, 5] = np.nan
    ours = check(X, tmp_path, penalty=Ridge(2.0), missing=missing)
    assert load_model(tmp_path / "model").penalty == Ridge(2.0)
    same = estimator(alpha=0.2, penalty="l2", missing=missing).fit(X)
    rows = train(estimator(alpha=0.2, penalty="l2", missing=missing), X, tmp_path / "same")
    np.testing.assert_allclose(ours.components_, rows.components_, atol=1e-8)
    assert same.objective(X) > 0


def test_a_penalty_with_a_weight_for_each_atom(X, tmp_path):
    penalty = GroupRidge((1.0, 2.0, 3.0))
    ours = check(X, tmp_path, penalty=penalty, reduction=1, tol=1e-3)
    loaded = load_model(tmp_path / "model")
    assert loaded.penalty == penalty
    np.testing.assert_array_equal(loaded.partial_fit(X).components_, ours.partial_fit(X).components_)


def test_a_penalty_without_rules_is_refused_by_name(X):
    with pytest.raises(ParameterError, match="alpha='auto' has no rule for Ridge: pass a number"):
        estimator(penalty=Ridge(), alpha="auto").fit(X)
    with pytest.raises(ParameterError, match="needs a penalty with a field 'positive', which Ridge"):
        estimator(penalty=Ridge(), positive_code=True).fit(X)
    with pytest.raises(ParameterError, match=r"penalty must be one of .*elastic-net, group-lasso"):
        estimator(penalty=object()).fit(X)


def test_a_file_with_a_penalty_that_is_not_imported_is_refused_by_name(X, tmp_path, monkeypatch):
    estimator(penalty=Ridge()).fit(X).save(tmp_path / "model")
    monkeypatch.delitem(REGISTERED, "Ridge")
    with pytest.raises(DataError, match="penalty of the file is 'Ridge', which is not registered: import the module"):
        load_model(tmp_path / "model")


def test_a_name_is_registered_once():
    with pytest.raises(ParameterError, match="ElasticNet is already registered"):

        @register
        class ElasticNet:
            pass

    assert REGISTERED["ElasticNet"] is penalties.ElasticNet


def test_a_backend(X, tmp_path, monkeypatch):
    monkeypatch.setitem(backends.BACKENDS, "counting", lambda n_threads: CountingBackend())
    with use_backend("counting"):
        ours = check(X, tmp_path)
    assert CountingBackend.n_sweeps > 0
    np.testing.assert_allclose(ours.components_, train(estimator(), X, tmp_path / "plain").components_, atol=1e-8)


def test_a_learner(X, tmp_path, monkeypatch):
    monkeypatch.setattr(learners, "LEARNERS", [TwiceLearner, *learners.LEARNERS])
    ours = check(X, tmp_path)
    assert TwiceLearner.n_advances > 0
    assert ours.n_steps_ == 2 * ours._state.n_batches
