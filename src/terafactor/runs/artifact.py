"""The one file format: a model or a checkpoint is a folder with a manifest and the arrays.

``arrays.safetensors`` holds the arrays, ``manifest.json`` everything else: format version, kind, parameters, numbers,
library versions, fingerprint of the data, dtype, shape and memory order of each array, size and sha256 of the file of
arrays, and the sha256 of itself. There is no clock and no host name in it, so that equal fits give equal files.

Nothing in it is executed when it is read, and nothing is allocated before sizes and digests agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._durable import naming, replace_durably
from terafactor._typing import Array
from terafactor.errors import DataError, ParameterError
from terafactor.solver.state_dict import StateDict

FORMAT = "terafactor artifact"
MAJOR, MINOR = 1, 1
"""A reader refuses another major version; a minor version adds what older readers may ignore."""

MANIFEST, ARRAYS = "manifest.json", "arrays.safetensors"
LARGEST_MANIFEST = 2**28
"""Bytes above which a manifest is refused unread."""

DTYPES = ("float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
LIBRARIES = ("terafactor", "numpy", "scipy", "numba")


@dataclass(frozen=True)
class Artifact:
    """What a file holds: the parameters of an estimator and what it had learned at some moment."""

    kind: str
    """Which estimator it is of; looked up in a fixed table, never a path to code."""

    parameters: Mapping[str, Any]
    """Parameters of the estimator, as plain values."""

    state_dict: StateDict
    """What it learned."""

    fingerprint: str | None = None
    """Digest of the data that it learned from."""

    identity: str | None = None
    """Digest of what defines the run that it belongs to; None outside of runs, and in files of version 1.0."""

    versions: Mapping[str, str] = field(default_factory=lambda: {name: version(name) for name in LIBRARIES})
    """Versions of the libraries that made it."""


def write_artifact(artifact: Artifact, folder: Path | str, *, overwrite: bool = False) -> Path:
    """Write a folder that is there in full or not at all. An existing one is only replaced when told to.

    Parameters
    ----------
    artifact : Artifact
    folder : path
    overwrite : bool
        Whether an existing artifact there may be replaced.
    """
    folder = Path(folder)
    if folder.exists() and not (overwrite and (folder / MANIFEST).is_file()):
        way_out = "say overwrite=True to replace it" if (folder / MANIFEST).is_file() else "choose another place"
        raise ParameterError(f"{folder} exists: {way_out}")
    temporary = folder.with_name(f".{folder.name}.unfinished")
    with naming(temporary):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    described = _write_arrays(artifact.state_dict.arrays, temporary / ARRAYS)
    content = _manifest(artifact, described, temporary / ARRAYS)
    with naming(temporary / MANIFEST):
        (temporary / MANIFEST).write_bytes(content)
    if folder.exists():
        _set_aside(folder)
    replace_durably(temporary, folder)
    shutil.rmtree(_aside(folder), ignore_errors=True)
    return folder


def read_artifact(folder: Path | str) -> Artifact:
    """Read a folder that :func:`write_artifact` wrote, refusing one that is damaged, foreign or of another version."""
    folder = place_of(Path(folder))
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


def place_of(folder: Path) -> Path:
    """Return where an artifact is: set aside, where a process was killed while it replaced it."""
    return _aside(folder) if not folder.exists() and _aside(folder).exists() else folder


def verify_artifact(folder: Path) -> None:
    """Raise an error unless manifest and arrays are whole, without allocating the arrays."""
    _check_file(folder / ARRAYS, read_manifest(folder))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and verify the manifest alone."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder} is not a model or checkpoint: it has no {MANIFEST}")
    with naming(path, "read"):
        size = path.stat().st_size
        if size > LARGEST_MANIFEST:
            raise DataError(f"{path} has {size} bytes, more than any manifest: it is not ours")
        content = path.read_bytes()
    manifest = _parse(content, path)
    _check_version(manifest, path)
    _check_fields(manifest, path)
    return manifest


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
    """Return the one spelling of a manifest, so that any changed byte shows."""
    return (json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    damaged = DataError(f"{path} is damaged: its content does not match its sha256")
    try:
        manifest = json.loads(content)
        stated = manifest.pop("sha256") if isinstance(manifest, dict) else None
        expected = hashlib.sha256(_canonical(manifest)).hexdigest()
        whole = (
            isinstance(manifest, dict) and stated == expected and _canonical(manifest | {"sha256": stated}) == content
        )
    except (ValueError, KeyError, RecursionError) as error:
        raise damaged from error
    if not whole:
        raise damaged
    return manifest


def _check_version(manifest: dict[str, Any], path: Path) -> None:
    if manifest.get("format") != FORMAT:
        raise DataError(f"{path} is not a manifest of terafactor: its format is {manifest.get('format')!r}")
    found = manifest.get("version")
    if not (isinstance(found, list) and len(found) == 2 and all(type(number) is int for number in found)):
        raise DataError(f"{path} must state a version of two integers, got {found!r}")
    if found[0] != MAJOR:
        raise DataError(
            f"{path} has format version {found[0]}.{found[1]}, this terafactor reads {MAJOR}.x: "
            f"use the terafactor that wrote it ({manifest.get('versions')})"
        )


def _check_fields(manifest: dict[str, Any], path: Path) -> None:
    kinds = {"kind": str, "parameters": dict, "numbers": dict, "arrays": dict, "files": dict, "versions": dict}
    wrong = [name for name, kind in kinds.items() if not isinstance(manifest.get(name), kind)]
    if wrong or not isinstance(manifest.get("fingerprint"), str | None):
        raise DataError(f"{path} lacks {', '.join(wrong) or 'fingerprint'} or has it in another form: it is not ours")
    for name, entry in manifest["arrays"].items():
        if not _describes_an_array(entry):
            raise DataError(f"{path} describes array {name!r} as {entry!r}, which no file of ours does")


def _describes_an_array(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("dtype") in DTYPES
        and entry.get("order") in ("C", "F")
        and isinstance(entry.get("shape"), list)
        and all(type(length) is int and 0 <= length < 2**48 for length in entry["shape"])
    )


def _write_arrays(arrays: Mapping[str, Array], path: Path) -> dict[str, Any]:
    """Write the arrays without copying them, those in column order transposed; return their description."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    by_column = {name for name, array in arrays.items() if array.flags.f_contiguous and not array.flags.c_contiguous}
    stored = {name: np.asarray(array.T if name in by_column else array, order="C") for name, array in arrays.items()}
    with naming(path):
        try:
            save_file(stored, path)
        except SafetensorError as error:  # it does not tell the number of the error
            raise OSError(None, str(error)) from error
    return {
        name: {"dtype": array.dtype.name, "shape": list(array.shape), "order": "F" if name in by_column else "C"}
        for name, array in arrays.items()
    }


def _read_arrays(path: Path, manifest: dict[str, Any]) -> dict[str, Array]:
    """Read the arrays once size, digest and header agree with the manifest."""
    from safetensors import SafetensorError, safe_open

    _check_file(path, manifest)
    try:
        with naming(path, "read"), safe_open(path, framework="numpy") as file:
            return _matching(file, manifest["arrays"], path)
    except SafetensorError as error:
        raise DataError(f"{path} is not a file of arrays: {error}") from error


def _check_file(path: Path, manifest: dict[str, Any]) -> None:
    """Raise an error unless the file of arrays has the size and digest of its manifest."""
    expected = manifest["files"].get(ARRAYS)
    if not path.is_file():
        raise DataError(f"{path} is missing")
    with naming(path, "read"):
        size = path.stat().st_size
    if not isinstance(expected, dict) or size != expected.get("bytes"):
        raise DataError(f"{path} has {size} bytes instead of those of its manifest, {expected!r}: it is damaged")
    if _digest(path) != expected.get("sha256"):
        raise DataError(f"{path} is damaged: its content does not match the sha256 in {MANIFEST}")


def _matching(file: Any, described: dict[str, Any], path: Path) -> dict[str, Array]:
    if set(file.keys()) != set(described):
        raise DataError(f"{path} holds {sorted(file.keys())}, but its manifest lists {sorted(described)}")
    arrays = {}
    for name, entry in described.items():
        shape = tuple(entry["shape"])
        stored = shape[::-1] if entry["order"] == "F" else shape
        if tuple(file.get_slice(name).get_shape()) != stored:
            raise DataError(f"{path}: array {name!r} has another shape than {shape}, which its manifest states")
        array = file.get_tensor(name)
        if array.dtype.name != entry["dtype"]:
            raise DataError(f"{path}: array {name!r} is {array.dtype}, but its manifest states {entry['dtype']}")
        arrays[name] = array.T if entry["order"] == "F" else array
    return arrays


def _digest(path: Path) -> str:
    with naming(path, "read"), open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")


def _set_aside(folder: Path) -> None:
    with naming(folder):
        shutil.rmtree(_aside(folder), ignore_errors=True)
        os.rename(folder, _aside(folder))
