"""A checkpoint belongs to one run: what config.toml, data and parameters were when it was written."""

import copy
import re
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import tomli_w

from terafactor import MaskedDictionaryLearning, load_model, train
from terafactor.cli.fit import stored_estimator
from terafactor.errors import DataError, TerafactorError
from terafactor.runs.artifact import read_artifact, write_artifact
from terafactor.runs.checkpoint import CheckpointPolicy, newest
from terafactor.runs.directory import RunDirectory
from terafactor.solver.state_dict import StateDict


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
    run = cut(X, tmp_path / "run")
    path, artifact = newest(run.checkpoints)
    write_artifact(replace(artifact, identity=None), path, overwrite=True)
    assert read_artifact(path).identity is None
    with pytest.raises(DataError, match=r"was written by an earlier terafactor.* load it with load_model"):
        train(estimator(), X, run.path, resume=True)
    assert load_model(path).components_.shape == (3, X.shape[1])


@pytest.mark.parametrize(
    ("name", "value"),
    [("dictionary", np.nan), ("data_code", np.inf), ("code_gram", np.nan), ("feature_counts", -1),
     ("feature_counts", 2**62), ("idle_rows", -(2**62)), ("n_steps", -1), ("n_batches", 2**70),
     ("mean_penalty", np.nan), ("alpha", 10**400)],
)  # fmt: skip
def test_a_checkpoint_with_values_that_no_fit_has_is_refused(X, tmp_path, name, value):
    run = cut(X, tmp_path / "run")
    path, artifact = newest(run.checkpoints)
    numbers, arrays = dict(artifact.state_dict.numbers), dict(artifact.state_dict.arrays)
    if name in arrays:
        arrays[name] = np.full_like(arrays[name], value)
    else:
        numbers[name] = value
    write_artifact(replace(artifact, state_dict=StateDict(numbers, arrays)), path, overwrite=True)
    for use in (lambda: train(estimator(), X, run.path, resume=True), lambda: load_model(path)):
        with pytest.raises(DataError, match=name):
            use()


OTHER = {str: "other", bool: True, int: 7, float: 0.37, list: [5, 5], dict: {}}
ALLOWED = {"parameters.n_epochs", "parameters.max_time", "parameters.tol"}


def leaves(table, prefix=""):
    """Return the paths of all values in nested tables."""
    found = []
    for name, value in table.items():
        found += leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return found


def edited(config, path, value):
    """Return a configuration with another value at a path, or without it if the value is None."""
    config = copy.deepcopy(config)
    *tables, name = path.split(".")
    table = config
    for each in tables:
        table = table[each]
    if value is None:
        del table[name]
    else:
        table[name] = value
    return config


def edits(config):
    """Return configurations with one change each, by a description."""
    changes = {}
    for path in leaves(config):
        value = config
        for name in path.split("."):
            value = value[name]
        other = (not value) if isinstance(value, bool) else OTHER[type(value)]
        changes |= {f"{path} changed": edited(config, path, other), f"{path} removed": edited(config, path, None)}
    for path in ("kind", "data", "holdout", "parameters"):
        changes |= {f"{path} removed": edited(config, path, None), f"{path} empty": edited(config, path, {})}
    for path in ("more", "data.more", "holdout.more", "parameters.more", "parameters.missing", "parameters.init"):
        changes[f"{path} added"] = edited(config, path, "nan")
    return changes


def test_every_edit_of_the_configuration_is_refused_on_resume(X, tmp_path):
    data = tmp_path / "X.npy"
    np.save(data, X)
    run, whole = cut(str(data), tmp_path / "run"), train(estimator(), str(data), tmp_path / "whole")
    original = run.config_file.read_bytes()
    changes = edits(tomllib.loads(original.decode()))
    assert len(changes) >= 35
    harmless = {f"{path} {how}" for path in ALLOWED for how in ("changed", "removed")}
    harmless |= {"parameters.random_state removed", "data.source removed", "data.source changed"}
    for name in sorted(set(changes) - harmless):
        run.config_file.write_text(tomli_w.dumps(changes[name]))
        with pytest.raises(TerafactorError):
            resume_as_the_command_does(run, str(data))
    run.config_file.write_bytes(original)
    resumed = resume_as_the_command_does(run, str(data))
    np.testing.assert_array_equal(resumed.components_, whole.components_)


def resume_as_the_command_does(run, data):
    """Resume with the parameters of the configuration, as ``terafactor resume run --source data`` does."""
    resumed, _ = stored_estimator(run.path)
    return train(resumed, data, run.path, resume=True)


@pytest.mark.parametrize("change", [{"n_epochs": 4.0}, {"max_time": 1000.0}, {"tol": 1e-9}])
def test_edits_of_when_to_stop_are_allowed(X, tmp_path, change):
    run = cut(X, tmp_path / "run")
    config = tomllib.loads(run.config_file.read_text())
    config["parameters"] |= change
    run.config_file.write_text(tomli_w.dumps(config))
    whole = train(estimator(**change), X, tmp_path / "whole")
    np.testing.assert_array_equal(resume_as_the_command_does(run, X).components_, whole.components_)
