"""The file format of models and checkpoints: a folder with a manifest and the arrays.

``arrays.safetensors`` holds the arrays, ``manifest.json`` everything else: format version, kind, parameters, numbers,
library versions, fingerprint of the data, dtype, shape and memory order of each array, size and sha256 of the file of
arrays, and the sha256 of the manifest itself. It has no time and no host name: equal fits give equal files.

Reading executes no code, and allocates no arrays before sizes and digests are verified.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._durable import folders_replaced, replace_durably, replace_folder, storage_errors, unfinished
from terafactor._typing import Array
from terafactor.errors import DataError, ParameterError, StorageError
from terafactor.runs.schema import COUNT, DIGEST, TABLE, TEXT, Rule, Schema, check_document, is_text
from terafactor.solver.state_dict import StateDict

FORMAT = "terafactor artifact"
MAJOR, MINOR = 1, 1
"""Readers refuse other major versions. Minor versions only add content that older readers may ignore."""

MANIFEST, ARRAYS = "manifest.json", "arrays.safetensors"
MAX_MANIFEST_BYTES = 2**28
"""Larger manifests are refused without being read."""

SAVED_DTYPES = ("float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
LIBRARIES = ("terafactor", "numpy", "scipy", "numba")

VERSIONS = Rule("a table of strings", lambda value: TABLE.holds(value) and all(map(is_text, value.values())))
SCHEMA: Schema = {
    "kind": TEXT,
    "parameters": TABLE,
    "numbers": TABLE,
    "arrays": TABLE,
    "files": {ARRAYS: {"bytes": COUNT, "sha256": DIGEST}},
    "fingerprint": TEXT.or_none(),
    "identity": TEXT.or_none().optional(),  # version 1.0 has none
    "versions": VERSIONS,
}
ARRAY_SCHEMA: Schema = {
    "dtype": Rule(f"one of {', '.join(SAVED_DTYPES)}", lambda value: is_text(value) and value in SAVED_DTYPES),
    "order": Rule("'C' or 'F'", lambda value: value in ("C", "F")),
    "shape": Rule(
        "a list of integers >= 0 and below 2^48",
        lambda value: isinstance(value, list) and all(COUNT.holds(length) and length < 2**48 for length in value),
    ),
}


@dataclass(frozen=True)
class Artifact:
    """The content of a model file or checkpoint: the parameters of an estimator and its learned state.

    Examples
    --------
    >>> from terafactor.runs import Artifact
    >>> from terafactor.solver.state_dict import StateDict
    >>> artifact = Artifact("MaskedDictionaryLearning", {"alpha": 0.1}, StateDict({"n_features": 10}))
    >>> artifact.parameters["alpha"]
    0.1
    """

    kind: str
    """Name of the estimator; looked up in a fixed table, never a path to code."""

    parameters: Mapping[str, Any]
    """Parameters of the estimator, as plain values."""

    state_dict: StateDict
    """Learned state."""

    fingerprint: str | None = None
    """Digest of the training data."""

    identity: str | None = None
    """Digest of the settings that define the run; None outside of runs, and in files of version 1.0."""

    versions: Mapping[str, str] = field(default_factory=lambda: {name: version(name) for name in LIBRARIES})
    """Versions of the libraries that wrote it."""


def write_artifact(artifact: Artifact, folder: Path | str, *, overwrite: bool = False) -> Path:
    """Write a folder atomically: if the process is killed, the folder is complete or absent.

    Parameters
    ----------
    artifact : Artifact
    folder : path
    overwrite : bool
        Whether an existing artifact there may be replaced.

    Examples
    --------
    >>> from terafactor.runs import Artifact, write_artifact
    >>> import tempfile
    >>> from terafactor.solver.state_dict import StateDict
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_artifact(Artifact("MaskedDictionaryLearning", {"alpha": 0.1}, StateDict()), f"{folder}/model")
    ...     sorted(file.name for file in path.iterdir())
    ['arrays.safetensors', 'manifest.json']
    """
    folder = Path(folder)
    _check_target(folder, overwrite)
    with unfinished(folder) as temporary:
        with storage_errors(temporary):
            temporary.mkdir(parents=True)
        described = _write_arrays(artifact.state_dict.arrays, temporary / ARRAYS)
        with storage_errors(temporary / MANIFEST):
            (temporary / MANIFEST).write_bytes(_manifest(artifact, described, temporary / ARRAYS))
        (replace_folder if overwrite else replace_durably)(temporary, folder)
    return folder


def read_artifact(folder: Path | str) -> Artifact:
    """Read a folder that :func:`write_artifact` wrote; refuse other, damaged or incompatible ones.

    Examples
    --------
    >>> from terafactor.runs import Artifact, read_artifact, write_artifact
    >>> import tempfile
    >>> from terafactor.solver.state_dict import StateDict
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_artifact(Artifact("MaskedDictionaryLearning", {"alpha": 0.1}, StateDict()), f"{folder}/model").name
    ...     read_artifact(f"{folder}/model").parameters["alpha"]
    'model'
    0.1
    """
    folder, failed = Path(folder), None
    while True:
        found = _version(folder)
        try:
            return _read(find_artifact(folder))
        except (DataError, StorageError):
            unchanged = _version(folder) == found  # otherwise another process replaced it while it was read
            if unchanged and found == failed:
                raise
            failed = found if unchanged else None


def _read(folder: Path) -> Artifact:
    manifest = read_manifest(folder)
    arrays = _read_arrays(folder / ARRAYS, manifest)
    return Artifact(
        kind=manifest["kind"],
        parameters=manifest["parameters"],
        state_dict=StateDict(manifest["numbers"], arrays),
        fingerprint=manifest["fingerprint"],
        identity=manifest.get("identity"),
        versions=manifest["versions"],
    )


def find_artifact(folder: Path) -> Path:
    """Return the folder, or its previous version if a process was killed while replacing it."""
    if folder.exists():
        return folder
    written = {}
    for path in folders_replaced(folder):
        with contextlib.suppress(FileNotFoundError):
            written[path] = (path / MANIFEST).stat().st_mtime_ns
    return max(written, key=written.__getitem__, default=folder)


def verify_artifact(folder: Path) -> None:
    """Raise an error unless manifest and arrays are complete, without allocating the arrays."""
    _check_file(folder / ARRAYS, read_manifest(folder))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and verify the manifest alone."""
    path = folder / MANIFEST
    with storage_errors(path, "read"):
        if not path.is_file():
            why = f"it has no {MANIFEST}" if folder.exists() else "it does not exist"
            raise DataError(f"{folder} is not a model or checkpoint: {why}")
        size = path.stat().st_size
        if size > MAX_MANIFEST_BYTES:
            raise DataError(
                f"{path} has {size:,} bytes, but a manifest has at most {MAX_MANIFEST_BYTES:,}: it was not written by "
                "terafactor"
            )
        content = path.read_bytes()
    manifest = _parse(content, path)
    _check_version(manifest, path)
    check_document(manifest, SCHEMA, str(path))
    for name, entry in manifest["arrays"].items():
        check_document(entry, ARRAY_SCHEMA, f"array {name!r} of {path}")
    return manifest


def _check_target(folder: Path, overwrite: bool) -> None:
    """Raise an error if something is at the path of a new artifact, unless it is an artifact to overwrite."""
    while (found := _identity(folder)) is not None:
        is_artifact = (folder / MANIFEST).is_file()
        if is_artifact and overwrite:
            return
        if is_artifact or _identity(folder) == found:  # otherwise another process replaced it between the two calls
            way_out = "pass overwrite=True to replace it" if is_artifact else "choose another path"
            raise ParameterError(f"{folder} exists: {way_out}")


def _version(folder: Path) -> object:
    """Return what differs once another process has replaced an artifact."""
    found = find_artifact(folder)
    return found, _identity(found)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return what distinguishes a file or folder from another one of the same name; None if there is none."""
    with storage_errors(path, "read"):
        try:
            found = path.lstat()
        except FileNotFoundError:
            return None
    return found.st_dev, found.st_ino, found.st_ctime_ns  # numbers of files are used again


def _manifest(artifact: Artifact, described: dict[str, Any], file: Path) -> bytes:
    manifest = {
        "format": FORMAT,
        "version": [MAJOR, MINOR],
        "kind": artifact.kind,
        "parameters": dict(artifact.parameters),
        "numbers": dict(artifact.state_dict.numbers),
        "arrays": described,
        "files": {ARRAYS: {"bytes": file.stat().st_size, "sha256": _digest(file)}},
        "fingerprint": artifact.fingerprint,
        "identity": artifact.identity,
        "versions": dict(artifact.versions),
    }
    return _canonical(manifest | {"sha256": hashlib.sha256(_canonical(manifest)).hexdigest()})


def _canonical(manifest: Mapping[str, Any]) -> bytes:
    """Return the only accepted bytes of a manifest, so that any changed byte is detected."""
    return (json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    damaged = DataError(f"{path} is damaged: its content does not match its sha256")
    try:
        manifest = json.loads(content)
        if not isinstance(manifest, dict) or _canonical(manifest) != content:
            raise damaged
        stated = manifest.pop("sha256", None)
        expected = hashlib.sha256(_canonical(manifest)).hexdigest()
    except (ValueError, RecursionError) as error:
        raise damaged from error
    if stated != expected:
        raise damaged
    return manifest


def _check_version(manifest: dict[str, Any], path: Path) -> None:
    if manifest.get("format") != FORMAT:
        raise DataError(f"{path} is not a manifest of terafactor: its format is {manifest.get('format')!r}")
    found = manifest.get("version")
    if not (isinstance(found, list) and len(found) == 2 and all(type(number) is int for number in found)):
        raise DataError(f"the version in {path} must be two integers, got {found!r}: it is damaged or was edited")
    if found[0] != MAJOR:
        raise DataError(
            f"{path} has format version {found[0]}.{found[1]}, but this version of terafactor reads {MAJOR}.x: "
            f"use the version that wrote it ({manifest.get('versions')})"
        )


def _write_arrays(arrays: Mapping[str, Array], path: Path) -> dict[str, Any]:
    """Write the arrays without copies, Fortran-ordered ones transposed; return their description."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    by_column = {name for name, array in arrays.items() if array.flags.f_contiguous and not array.flags.c_contiguous}
    stored = {name: np.asarray(array.T if name in by_column else array, order="C") for name, array in arrays.items()}
    with storage_errors(path):
        try:
            save_file(stored, path)
            path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors makes it readable by its owner only
        except SafetensorError as error:  # which has no errno
            raise OSError(None, str(error)) from error
    return {
        name: {"dtype": array.dtype.name, "shape": list(array.shape), "order": "F" if name in by_column else "C"}
        for name, array in arrays.items()
    }


def _read_arrays(path: Path, manifest: dict[str, Any]) -> dict[str, Array]:
    """Read the arrays after checking size, digest and header against the manifest."""
    from safetensors import SafetensorError, safe_open

    _check_file(path, manifest)
    try:
        with storage_errors(path, "read"), safe_open(path, framework="numpy") as file:
            return _read_described(file, manifest["arrays"], path)
    except SafetensorError as error:
        raise DataError(f"{path} is not a file of arrays: {error}") from error


def _check_file(path: Path, manifest: dict[str, Any]) -> None:
    """Raise an error unless the file of arrays has the size and digest of its manifest."""
    expected = manifest["files"][ARRAYS]
    with storage_errors(path, "read"):
        if not path.is_file():
            raise DataError(f"{path} is missing: the model or checkpoint is incomplete")
        size = path.stat().st_size
    if size != expected["bytes"]:
        raise DataError(f"{path} is damaged: it has {size:,} bytes instead of {expected['bytes']:,}")
    if _digest(path) != expected["sha256"]:
        raise DataError(f"{path} is damaged: its content does not match the sha256 in {MANIFEST}")


def _read_described(file: Any, described: dict[str, Any], path: Path) -> dict[str, Array]:
    """Read the arrays of an open file, refusing those that the manifest describes differently."""
    if set(file.keys()) != set(described):
        raise DataError(f"{path} holds {sorted(file.keys())}, but its manifest lists {sorted(described)}")
    arrays = {}
    for name, entry in described.items():
        shape = tuple(entry["shape"])
        stored = shape[::-1] if entry["order"] == "F" else shape
        if tuple(file.get_slice(name).get_shape()) != stored:
            raise DataError(f"{path}: array {name!r} does not have the shape {shape} that its manifest states")
        array = file.get_tensor(name)
        if array.dtype.name != entry["dtype"]:
            raise DataError(f"{path}: array {name!r} is {array.dtype}, but its manifest states {entry['dtype']}")
        arrays[name] = array.T if entry["order"] == "F" else array
    return arrays


def _digest(path: Path) -> str:
    with storage_errors(path, "read"), open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
