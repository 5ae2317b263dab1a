"""Surfaces: nilearn's ``SurfaceImage``, and pairs of GIFTI files with ``hemi-L`` and ``hemi-R`` in their names."""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import logging
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from terafactor._memory import check_size, max_bytes
from terafactor._typing import Array
from terafactor.brain.kinds import ImageKind, nibabel, nilearn, without_icon
from terafactor.data.sources.formats import is_a
from terafactor.errors import DataError
from terafactor.solver.state_dict import StateDict

logger = logging.getLogger("terafactor")

FSAVERAGE5 = 10242
"""Vertices per hemisphere of the mesh that nilearn ships."""

COMPRESSED = re.compile(rb"<Data>([^<]*)</Data>")
"""Content of an array of a GIFTI file."""

INFLATED_AT_ONCE = 2**20
"""Bytes."""

HEMISPHERES = {"left": "hemi-L", "right": "hemi-R"}


class Surfaces(ImageKind):
    """Series at the vertices of one or two hemispheres."""

    name = "surface"
    suffix = ".func.gii"

    def recognizes(self, given: Any) -> bool:
        if isinstance(given, str | os.PathLike):
            return os.fspath(given).endswith((".gii", ".gii.gz"))
        return is_a(given, "nilearn", "SurfaceImage")

    def open_path(self, path: Path, mask: Any) -> Any:
        surface = nilearn("surface")
        files = {part: file for part, file in _hemispheres(path).items() if file.exists()}
        if not files:
            raise DataError(f"{path} does not exist")
        for file in files.values():
            check_gifti_size(file)
        data = {part: surface.load_surf_data(str(file)) for part, file in files.items()}
        data = {part: values.reshape(len(values), -1) for part, values in data.items()}  # one volume comes as (p,)
        mesh = _mesh(mask, str(path), {part: len(values) for part, values in data.items()})
        return surface.SurfaceImage(mesh={part: mesh.parts[part] for part in data}, data=data)

    def files(self, path: Path) -> list[Path]:
        return [file for file in hemisphere_files(path) if file.exists()]

    def length(self, image: Any) -> int | None:
        return int(image.shape[1]) if len(image.shape) == 2 else None

    def load(self, image: Any) -> tuple[Any, int]:
        parts = {part: np.asarray(values, np.float32) for part, values in image.data.parts.items()}
        n_bad = sum(values.size - int(np.count_nonzero(np.isfinite(values))) for values in parts.values())
        if n_bad:
            parts = {part: np.where(np.isfinite(values), values, 0) for part, values in parts.items()}
        return type(image)(mesh=image.mesh, data=parts), n_bad

    def mismatch(self, image: Any, reference: Any) -> str | None:
        found, needed = _vertices(image), _vertices(reference)
        return None if found == needed else f"has {found} vertices instead of {needed}"

    def viewer(self, masker: Any, row: Array, background: Array | None, title: str) -> str | None:
        if find_spec("plotly") is None:
            logger.warning("pages of surface maps need plotly, which is not installed: pip install 'terafactor[brain]'")
            return None
        image = self.plain_masker(masker).inverse_transform(row)
        part = max(image.data.parts, key=lambda part: float(np.abs(image.data.parts[part]).max()))
        view = nilearn("plotting").view_surf(image.mesh, surf_map=image, hemi=part, title=title)
        return without_icon(view.get_standalone())

    def new_masker(self, mask: Any, options: Mapping[str, Any]) -> Any:
        mask = self.open(mask)
        return nilearn("maskers").SurfaceMasker(mask_img=mask, **{"standardize": None, **options})

    def fit_masker(self, masker: Any, images: Sequence[Any]) -> Any:
        return masker.fit(None if masker.mask_img is not None else images[0])

    def masker_arrays(self, masker: Any) -> dict[str, Array]:
        image, arrays = masker.mask_img_, {}
        for part, values in image.data.parts.items():
            arrays[f"mask_{part}"] = np.asarray(values).ravel() > 0
            arrays[f"coordinates_{part}"] = np.asarray(image.mesh.parts[part].coordinates, np.float64)
            arrays[f"faces_{part}"] = np.asarray(image.mesh.parts[part].faces, np.int64)
        return arrays

    def restore_masker(self, state_dict: StateDict, options: Mapping[str, Any]) -> Any:
        surface = nilearn("surface")
        parts = [part for part in HEMISPHERES if f"mask_{part}" in state_dict.arrays]
        mesh, data = {}, {}
        for part in parts:
            data[part] = state_dict.array(f"mask_{part}", (None,), np.bool_)
            coordinates = state_dict.array(f"coordinates_{part}", (len(data[part]), 3), np.float64)
            faces = state_dict.array(f"faces_{part}", (None, 3), np.int64)
            mesh[part] = surface.InMemoryMesh(coordinates, faces)
        return self.new_masker(surface.SurfaceImage(mesh=mesh, data=data), options).fit()

    def as_files(self, image: Any, stem: Path) -> dict[Path, Any]:
        gifti, files = nibabel().gifti, {}
        for part, values in image.data.parts.items():
            arrays = [
                gifti.GiftiDataArray(column, datatype="NIFTI_TYPE_FLOAT32")
                for column in np.asarray(values, np.float32).T
            ]
            path = stem.with_name(f"{stem.name}_{HEMISPHERES[part]}{self.suffix}")
            files[path] = gifti.GiftiImage(darrays=arrays)  # one array per map, as viewers expect
        return files


def hemisphere_files(path: Path) -> list[Path]:
    """Return the files of both hemispheres, given one of them."""
    return list(_hemispheres(path).values())


def _hemispheres(path: Path) -> dict[str, Path]:
    for found in HEMISPHERES.values():
        if found in path.name:
            return {part: path.with_name(path.name.replace(found, tag)) for part, tag in HEMISPHERES.items()}
    raise DataError(f"the name of {path} must contain its hemisphere, hemi-L or hemi-R")


def _mesh(mask: Any, name: str, found: dict[str, int]) -> Any:
    """Return the mesh of the mask, or fsaverage5 if the numbers of vertices match."""
    mesh = getattr(getattr(mask, "mask_img", mask), "mesh", None)
    if mesh is not None:
        return mesh
    if set(found.values()) != {FSAVERAGE5}:
        raise DataError(
            f"{name} has {found} vertices, and a GIFTI file of series does not hold its mesh: pass a SurfaceImage with "
            f"the mesh as mask (only fsaverage5, with {FSAVERAGE5} vertices per hemisphere, needs none)"
        )
    return nilearn("datasets").load_fsaverage("fsaverage5")["pial"]


def _vertices(image: Any) -> dict[str, int]:
    return {part: len(values) for part, values in image.data.parts.items()}


KIND = Surfaces()


def check_gifti_size(path: Path) -> None:
    """Refuse a GIFTI file whose compressed arrays take more memory than allowed, which nibabel would allocate."""
    limit, n_bytes = max_bytes(), 0
    if limit is None:
        return
    content = bytearray()
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        while part := file.read(INFLATED_AT_ONCE):  # a read of up to the limit would allocate all of it
            content += part
            check_size(len(content), str(path), limit)
    for match in COMPRESSED.finditer(content):
        stream = zlib.decompressobj()
        with contextlib.suppress(binascii.Error, zlib.error):  # nibabel refuses these
            waiting = base64.b64decode(match[1])
            while waiting:
                n_bytes += len(stream.decompress(waiting, INFLATED_AT_ONCE))
                check_size(n_bytes, str(path), limit)
                waiting = stream.unconsumed_tail
