"""A checkpoint belongs to one run: what config.toml, data and parameters were when it was written."""

import re

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning, load_model, train
from terafactor.errors import DataError
from terafactor.runs.artifact import read_artifact, write_artifact
from terafactor.runs.checkpoint import CheckpointPolicy, newest
from terafactor.runs.directory import RunDirectory


class KilledError(Exception):
    pass


def estimator(**parameters):
    return MaskedDictionaryLearning(
        **({"n_components": 3, "alpha": 0.1, "batch_size": 10, "n_epochs": 3, "random_state": 0} | parameters)
    )


def cut(X, folder, **parameters):
    """Leave a run that was killed after ten steps."""

    def die(snapshot):
        if snapshot.step == 10:
            raise KilledError

    with pytest.raises(KilledError):
        train(estimator(**parameters), X, folder, checkpoints=CheckpointPolicy(steps=4), callbacks=[die])
    return RunDirectory(folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [("seed = 0", "seed = 1"), ("alpha = 0.1", "alpha = 0.2"), ("batch_size = 10", "batch_size = 20"),
     ("n_components = 3", "n_components = 4"), ("amount = 4", "amount = 5")],
)  # fmt: skip
def test_an_edited_configuration_is_refused(X, tmp_path, old, new):
    run = cut(X, tmp_path / "run")
    text = run.config_file.read_text()
    assert old in text
    run.config_file.write_text(text.replace(old, new))
    name, value = new.split(" = ")
    parameters = {name: float(value) if "." in value else int(value)} if name not in ("seed", "amount") else {}
    if name == "seed":
        parameters = {"random_state": 1}
    with pytest.raises(DataError, match=r"belongs to another run than|cannot reproduce the choice"):
        train(estimator(**parameters), X, run.path, resume=True)


def test_a_checkpoint_of_another_run_on_the_same_data_is_refused(X, tmp_path):
    run, other = cut(X, tmp_path / "run"), cut(X, tmp_path / "other", alpha=0.3)
    ours, theirs = newest(run.checkpoints)[0], newest(other.checkpoints)[0]
    for file in theirs.iterdir():
        (ours / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DataError, match=re.escape(f"{ours} belongs to another run")):
        train(estimator(), X, run.path, resume=True)


def test_when_to_stop_may_change(X, tmp_path):
    run = cut(X, tmp_path / "run")
    longer = train(estimator(n_epochs=4, max_time=1000.0, tol=1e-12), X, run.path, resume=True)
    whole = train(estimator(n_epochs=4, tol=1e-12), X, tmp_path / "whole")
    np.testing.assert_array_equal(longer.components_, whole.components_)


def test_an_unfinished_run_of_an_earlier_version_is_refused_but_loads(X, tmp_path):
    from dataclasses import replace

    run = cut(X, tmp_path / "run")
    path, artifact = newest(run.checkpoints)
    write_artifact(replace(artifact, identity=None), path, overwrite=True)
    assert read_artifact(path).identity is None
    with pytest.raises(DataError, match=r"was written by an earlier terafactor.* load it with load_model"):
        train(estimator(), X, run.path, resume=True)
    assert load_model(path).components_.shape == (3, X.shape[1])
