"""Documents changed by someone who knows the format: each is refused with a TerafactorError, or read as it is.

Every field of every document gets values of another type, sign, size or depth, is removed, doubled, or gets a neighbor;
digests are recomputed. ``TERAFACTOR_FUZZ=10000`` tries up to that many changes of each document.
"""

import contextlib
import copy
import hashlib
import json
import os
import random
import resource
import shutil
import time

import numpy as np
import pytest
import tomli_w
from scipy import sparse

from terafactor import ElasticNet, MaskedDictionaryLearning, MatrixCompletion, NormBall, load_model, report_runs, train
from terafactor._typing import is_number
from terafactor.cli.fit import stored_estimator
from terafactor.cli.inspect import describe
from terafactor.errors import TerafactorError
from terafactor.runs import CheckpointPolicy, RunDirectory
from terafactor.runs.artifact import MANIFEST, _canonical
from terafactor.runs.checkpoint import newest
from terafactor.runs.parameters import plain_parameters

TRIES = int(os.environ.get("TERAFACTOR_FUZZ", "300"))
pytestmark = pytest.mark.timeout(3600 if TRIES > 300 else 300)
MAX_SECONDS, MAX_BYTES = 1.0, 200e6


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


VALUES = (
    None, True, False, -1, 0, 1, 3, 2**31, 2**63, 2**70, -(2**70), 10**400, 1.5, -0.5, 1e308, float("nan"),
    float("inf"), "", "x", "auto", "l1", "1", [], [1], ["a"], [None], [[1, 2], [3]], nested(200), {}, {"a": 1},
    {"type": "ElasticNet"}, {"type": "ElasticNet", "l1_ratio": "x"}, {"type": []}, {"type": "array"},
    {"type": "NormBall", "norm": [1]},
)  # fmt: skip


def fields(document, path=()):
    """Return the paths of all fields of nested tables, and of the first entries of lists."""
    entries = document.items() if isinstance(document, dict) else enumerate(document[:2])
    found = []
    for name, value in entries:
        found.append((*path, name))
        if isinstance(value, dict | list):
            found += fields(value, (*path, name))
    return found


def changed(document, path, value=None, *, remove=False):
    document = copy.deepcopy(document)
    table = document
    for name in path[:-1]:
        table = table[name]
    if remove:
        del table[path[-1]]
    else:
        table[path[-1]] = copy.deepcopy(value)
    return document


def mutations(document, tries=TRIES):
    """Yield descriptions and changed documents, each field about as often as others."""
    changes = []
    for path in fields(document):
        changes += [(path, value, False) for value in VALUES]
        changes += [(path, None, True), ((*path[:-1], "unknown"), 1, False)]
    random.Random(0).shuffle(changes)
    for path, value, remove in changes[:tries]:
        with contextlib.suppress(TypeError):  # a list has no field "unknown"
            yield f"{path} {'removed' if remove else repr(value)[:60]}", changed(document, path, value, remove=remove)


@contextlib.contextmanager
def bounded(description):
    """Allow errors of terafactor only, a second of work, and little memory."""
    started, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with np.errstate(all="ignore"), contextlib.suppress(TerafactorError):  # numbers may be huge
            yield
    except Exception as error:
        raise AssertionError(f"{description}: {error!r}") from error
    assert time.process_time() - started < MAX_SECONDS, description
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1024 < MAX_BYTES, description


def write_manifest(folder, manifest):
    manifest = {name: value for name, value in manifest.items() if name != "sha256"}
    digest = hashlib.sha256(_canonical(manifest)).hexdigest()
    (folder / MANIFEST).write_bytes(_canonical(manifest | {"sha256": digest}))


def dense_model(X, **parameters):
    return MaskedDictionaryLearning(3, batch_size=10, random_state=0, n_threads=1, **parameters).fit(X), X


def ratings_model(X):
    ratings = sparse.random_array((30, 20), density=0.4, rng=np.random.default_rng(0), format="csr")
    ratings.data = np.round(4 * ratings.data) + 1
    return MatrixCompletion(3, random_state=0, n_threads=1).fit(ratings), ratings


MODELS = {
    "plain": lambda X: dense_model(X, alpha=0.1),
    "objects": lambda X: dense_model(X, penalty=ElasticNet(0.3), constraint=NormBall("elastic-net", 2.0, 0.4)),
    "masked": lambda X: dense_model(X, reduction=2, statistics="masked"),
    "ratings": ratings_model,
}


@pytest.mark.parametrize("kind", MODELS)
def test_manifest_of_a_model(X, tmp_path, kind):
    model, rows = MODELS[kind](X)
    model.save(tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / MANIFEST).read_bytes())
    for description, document in mutations(manifest):
        write_manifest(tmp_path / "model", document)
        with bounded(description):
            loaded = load_model(tmp_path / "model")
            stated = {name: value for name, value in document["parameters"].items() if not isinstance(value, dict)}
            found = plain_parameters(loaded.get_params(deep=False))
            assert repr({name: found[name] for name in stated}) == repr(stated), description
            (loaded.predict if kind == "ratings" else loaded.transform)(rows)


@pytest.fixture
def interrupted(X, tmp_path):
    """Return a run that was killed after ten steps, and its data."""

    def die(snapshot):
        if snapshot.step == 10:
            raise KeyboardInterrupt

    np.save(tmp_path / "X.npy", X)
    with pytest.raises(KeyboardInterrupt):
        train(
            MaskedDictionaryLearning(3, alpha=0.1, batch_size=10, n_epochs=2, random_state=0, n_threads=1),
            tmp_path / "X.npy",
            tmp_path / "killed",
            checkpoints=CheckpointPolicy(None, 4),
            callbacks=[die],
        )
    return RunDirectory(tmp_path / "killed")


def use(run, tmp_path, *, resume=True):
    """Do with a copy of a run what users do."""
    copied = shutil.copytree(run.path, tmp_path / "copy", symlinks=True)
    try:
        describe(str(copied))
        report_runs(copied, path=tmp_path / "report.html")
        if resume:
            estimator, _ = stored_estimator(copied)
            if is_number(estimator.n_epochs) and estimator.n_epochs > 2:  # which is allowed, and takes long
                estimator.set_params(n_epochs=2)
            train(estimator, tmp_path / "X.npy", copied, resume=True)
    finally:
        shutil.rmtree(copied)


def test_manifest_of_a_checkpoint(tmp_path, interrupted):
    path = newest(interrupted.checkpoints)[0]
    manifest = json.loads((path / MANIFEST).read_bytes())
    for description, document in mutations(manifest, TRIES // 5):
        write_manifest(path, document)
        with bounded(description):
            use(interrupted, tmp_path)


def test_configuration(tmp_path, interrupted):
    config = interrupted.config()
    for description, document in mutations(config, TRIES // 3):
        try:
            interrupted.config_file.write_text(tomli_w.dumps(document))
        except (TypeError, AttributeError, RecursionError):  # TOML has no null, and keys are strings
            continue
        with bounded(description):
            use(interrupted, tmp_path)


def test_metrics(tmp_path, interrupted):
    lines = interrupted.metrics_file.read_bytes().splitlines(keepends=True)
    for number, (description, document) in enumerate(mutations(json.loads(lines[-1]), TRIES // 3)):
        interrupted.metrics_file.write_bytes(b"".join(lines[:-1]) + json.dumps(document).encode() + b"\n")
        with bounded(description):
            use(interrupted, tmp_path, resume=number % 5 == 0)


TEXTS = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"1",
    b"NaN",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 10_000,
    b"\x00",
)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_that_are_no_documents(tmp_path, interrupted, text):
    for file in (interrupted.config_file, interrupted.metrics_file, newest(interrupted.checkpoints)[0] / MANIFEST):
        before = file.read_bytes()
        file.write_bytes(text + b"\n")
        with bounded(f"{file.name}: {text[:20]!r}"):
            use(interrupted, tmp_path)
        file.write_bytes(before)


def test_doubled_fields(tmp_path, interrupted):
    checkpoint = newest(interrupted.checkpoints)[0] / MANIFEST
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b'"kind":', b'"kind": "other",\n "kind":', 1))
    assert newest(interrupted.checkpoints)[0] != checkpoint.parent
    interrupted.config_file.write_text("seed = 1\n" + interrupted.config_file.read_text())
    with pytest.raises(TerafactorError, match="is not TOML"):
        interrupted.config()
