"""Documents changed by someone who knows the format: each is refused with a TerafactorError, or read as it is.

Every field of every document gets values of another type, sign, size or depth, is removed, doubled, or gets a neighbor;
digests are recomputed. ``TERAFACTOR_FUZZ=4000`` tries up to that many changes of each document; ``pytest -s`` shows how
many were refused.
"""

import contextlib
import copy
import hashlib
import json
import os
import random
import resource
import shutil
import struct
import time
from collections import Counter

import numpy as np
import pytest
import tomli_w
from scipy import sparse
from typer.testing import CliRunner

from terafactor import (
    ElasticNet,
    MaskedDictionaryLearning,
    MatrixCompletion,
    NormBall,
    RandomMasks,
    load_model,
    open_source,
    pack,
    report_runs,
    train,
)
from terafactor._typing import is_number
from terafactor.cli.app import app
from terafactor.cli.fit import stored_estimator
from terafactor.cli.inspect import describe
from terafactor.data.packed import layout
from terafactor.errors import ParameterError, TerafactorError
from terafactor.runs import CheckpointPolicy, RunDirectory, directory
from terafactor.runs.artifact import ARRAYS, MANIFEST, _canonical
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


OUTCOMES = Counter()


@pytest.fixture(autouse=True)
def outcomes(request):
    OUTCOMES.clear()
    yield
    print(request.node.name, dict(OUTCOMES))


@contextlib.contextmanager
def bounded(description):
    """Allow errors of terafactor only, a second of work, and little memory."""
    started, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with np.errstate(all="ignore"):  # numbers may be huge
            yield
        OUTCOMES["read"] += 1
    except TerafactorError:
        OUTCOMES["refused"] += 1
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


def brain_model(X):
    nibabel = pytest.importorskip("nibabel")
    brain = pytest.importorskip("terafactor.brain", exc_type=ImportError)
    mask = nibabel.Nifti1Image(np.ones((4, 4, 4), np.uint8), np.eye(4))
    values = 100 + np.random.default_rng(0).standard_normal((4, 4, 4, 30)).astype(np.float32)
    image = nibabel.Nifti1Image(values, np.eye(4))
    options = {"n_epochs": 1, "batch_size": 10, "random_state": 0, "store": False, "n_threads": 1}
    return brain.BrainDictionaryLearning(2, mask=mask, **options).fit([image]), [image]


MODELS = {
    "plain": lambda X: dense_model(X, alpha=0.1),
    "objects": lambda X: dense_model(X, penalty=ElasticNet(0.3), constraint=NormBall("elastic-net", 2.0, 0.4)),
    "masked": lambda X: dense_model(X, reduction=RandomMasks(2, "masked")),
    "ratings": ratings_model,
    "brain": brain_model,
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


@pytest.fixture
def fit_options(tmp_path, monkeypatch):
    """Return a function that gives options in a TOML file to ``terafactor fit``, which trains nothing."""
    monkeypatch.setattr("terafactor.cli.fit.train_in_directory", lambda *arguments, **options: None)

    def invoke(file):
        line = ["fit", "X.npy", "--config", str(file), "--out", str(tmp_path / "run")]
        result = CliRunner().invoke(app, line)
        if result.exit_code == 2:
            raise ParameterError(result.output)
        if result.exception is not None:
            raise result.exception

    return invoke


FLAT = {"components": 3, "batch-size": 10, "penalty": "l1", "columns": ["a"], "positive-dict": False, "n_epochs": 1}


def test_options_in_a_file(tmp_path, interrupted, fit_options):
    objects = {"penalty": {"type": "ElasticNet", "l1_ratio": 0.3}, "constraint": {"type": "NormBall", "norm": "l1"}}
    config = interrupted.config()
    for document in (FLAT, config | {"parameters": config["parameters"] | objects}):
        for description, options in mutations(document, TRIES // 5):
            with contextlib.suppress(TypeError, AttributeError, RecursionError):  # TOML has no null
                (tmp_path / "options.toml").write_text(tomli_w.dumps(options))
            with bounded(description):
                fit_options(tmp_path / "options.toml")


OPTIONS = {
    "number for a table": b"parameters = 3",
    "text for a table": b'holdout = "x"\n[parameters]',
    "number for data": b"data = 1\n[parameters]",
    "type": b"[parameters]\nalpha = {type = []}",
    "brackets": b"x = " + b"[" * 10_000,
    "no text": b"\xff\xfe",
}


@pytest.mark.parametrize("text", OPTIONS.values(), ids=OPTIONS)
def test_texts_that_are_not_options(tmp_path, fit_options, text):
    (tmp_path / "options.toml").write_bytes(text)
    with pytest.raises(ParameterError):
        fit_options(tmp_path / "options.toml")


def test_options_in_a_large_file(tmp_path, fit_options):
    with open(tmp_path / "options.toml", "wb") as file:
        file.truncate(directory.MAX_CONFIG_BYTES + 1)
    with pytest.raises(ParameterError, match="has at most"):
        fit_options(tmp_path / "options.toml")


@pytest.mark.timeout(60)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_options_in_a_pipe(tmp_path, fit_options):
    os.mkfifo(tmp_path / "options.toml")
    with pytest.raises(ParameterError, match="pipe, socket"):
        fit_options(tmp_path / "options.toml")


def test_metrics(tmp_path, interrupted):
    lines = interrupted.metrics_file.read_bytes().splitlines(keepends=True)
    for number, (description, document) in enumerate(mutations(json.loads(lines[-1]), TRIES // 3)):
        interrupted.metrics_file.write_bytes(b"".join(lines[:-1]) + json.dumps(document).encode() + b"\n")
        with bounded(description):
            use(interrupted, tmp_path, resume=number % 5 == 0)


@pytest.fixture(scope="module", params=["float32", "int16"])
def store(request, tmp_path_factory):
    """Return the path of a packed store, and its rows."""
    path = tmp_path_factory.mktemp("stores") / "store"
    pack(np.random.default_rng(0).standard_normal((12, 20)), path, block_rows=4, dtype=request.param)
    return path, open_source(path).read(np.arange(12))


def test_metadata_of_a_store(store):
    path, rows = store
    file = path / "zarr.json"
    before = file.read_bytes()
    content = json.loads(before)["attributes"]["terafactor"]
    del content["checksum"]
    for description, document in mutations(content, TRIES // 2):
        try:
            file.write_bytes(layout.encode(layout._with_digest(document)))
        except ValueError:  # NaN, which the digest does not know
            file.write_text(json.dumps(layout.group_document({"terafactor": document | {"checksum": "0" * 64}})))
        with bounded(description):
            source = open_source(path)
            read = source.read(np.arange(source.shape[0]))
            np.testing.assert_array_equal(read, rows[: len(read)], description)
            describe(str(path))
    file.write_bytes(before)


def test_metadata_of_the_parts_of_a_store(store):
    path, rows = store
    for file in sorted(path.rglob("*/zarr.json")):
        before = file.read_bytes()
        for description, document in mutations(json.loads(before), TRIES // 20):
            file.write_text(json.dumps(document))
            with bounded(f"{file}: {description}"):
                np.testing.assert_array_equal(open_source(path).read(np.arange(len(rows))), rows, description)
        file.write_bytes(before)


def test_header_of_the_arrays(X, tmp_path):
    """The header of safetensors, with its length and the digests of the manifest recomputed."""
    model, rows = MODELS["plain"](X)
    model.save(tmp_path / "model")
    expected = model.transform(rows)
    file = tmp_path / "model" / ARRAYS
    content, manifest = file.read_bytes(), json.loads((tmp_path / "model" / MANIFEST).read_bytes())
    end = 8 + struct.unpack("<Q", content[:8])[0]
    for number, (description, document) in enumerate(mutations(json.loads(content[8:end]))):
        header = json.dumps(document).encode()
        length = (len(header), 0, 2**63 - 1, len(header) + 7)[number % 12 if number % 12 < 4 else 0]
        file.write_bytes(struct.pack("<Q", length) + header + content[end:])
        manifest["files"][ARRAYS] = {
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        write_manifest(tmp_path / "model", manifest)
        with bounded(description):
            np.testing.assert_array_equal(load_model(tmp_path / "model").transform(rows), expected, description)


def doubled(document, path):
    """Return JSON in which the field at a path occurs twice, the second time with another value."""
    marker, name = "0b9c1e", path[-1]
    table = document
    for each in path[:-1]:
        table = table[each]
    text = json.dumps(changed(document, (*path[:-1], marker), table[name]))
    return text.replace(f'"{marker}":', f'"{name}":').encode()


def test_doubled_fields_of_every_document(X, tmp_path, store):
    model, _ = MODELS["plain"](X)
    model.save(tmp_path / "model")
    for file, read in ((tmp_path / "model" / MANIFEST, load_model), (store[0] / "zarr.json", open_source)):
        before = file.read_bytes()
        document = json.loads(before)
        for path in fields(document):
            if isinstance(path[-1], str):
                file.write_bytes(doubled(document, path))
                with pytest.raises(TerafactorError):
                    read(file.parent)
        file.write_bytes(before)
        read(file.parent)


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
def test_texts_that_are_not_documents(tmp_path, interrupted, text):
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
