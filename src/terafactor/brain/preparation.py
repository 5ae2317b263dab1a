"""Turn images into the matrix that a fit reads: find, mask, clean and pack them."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from terafactor._threads import Threads
from terafactor.brain.confounds import resolve_confounds
from terafactor.brain.find import find_images
from terafactor.brain.images import WITHOUT_WARNINGS, ImagesSource, check_space, open_images
from terafactor.brain.kinds import kind_of, name_of
from terafactor.brain.maskers import make_masker
from terafactor.data import MatrixSource, pack
from terafactor.data.fingerprint import fingerprint
from terafactor.data.packed.reader import FORMAT as PACKED
from terafactor.data.packed.reader import PackedSource
from terafactor.errors import DataError, ParameterError
from terafactor.solver.progress import RowsProgress

logger = logging.getLogger("terafactor")


def masked_images(
    images: Any,
    confounds: Any,
    mask: Any,
    options: Mapping[str, Any],
    *,
    resample: bool = False,
    global_signal: str | None = None,
    n_threads: int = 1,
) -> ImagesSource:
    """Return images as a source of masked and cleaned volumes, without reading their values.

    Parameters
    ----------
    images, confounds
        As in :meth:`BrainDictionaryLearning.fit`.
    mask : masker, mask image, path of one, or None
        A fitted masker is used without fitting it again, unless there are options.
    options : mapping
        Options of the masker.
    resample : bool
        Whether images may be in another space than the mask.
    global_signal : "regress" or None
        Whether to regress the mean over voxels out of each image.
    n_threads : int
        Number of threads that will read at the same time.
    """
    if global_signal not in (None, "regress"):
        raise ParameterError(f"global_signal must be 'regress' or None, got {global_signal!r}")
    inputs = find_images(images)
    fitted_mask = getattr(mask, "mask_img_", None)
    kind = kind_of(inputs if fitted_mask is None else [fitted_mask, *inputs])
    opened = open_images(kind, inputs, mask)
    if not resample:
        check_space(kind, inputs, opened, opened[0], name_of(inputs[0], 0))
    with WITHOUT_WARNINGS:
        masker = mask if hasattr(mask, "mask_img_") and not options else make_masker(kind, mask, opened, options)
    if not resample and getattr(masker, "target_affine", None) is None:
        check_space(kind, inputs, opened, masker.mask_img_, "the mask")
    cache_size = n_threads + 1 if n_threads > 1 else 1
    resolved = resolve_confounds(confounds, inputs, global_signal=global_signal == "regress")
    return ImagesSource(kind, inputs, opened, masker, resolved, cache_size)


def packed_images(
    source: ImagesSource, store: str | Path | None, *, block_rows: int, n_threads: int, show: bool = False
) -> MatrixSource:
    """Return the rows of a source from a packed store, which is written unless it exists.

    Parameters
    ----------
    source : ImagesSource
    store : path or None
        Folder of the store; None uses a temporary folder, removed with the returned source.
    block_rows : int
        Number of volumes that are read together.
    n_threads : int
        Number of images that are read, masked and written at the same time.
    show : bool
        Whether to show the progress.
    """
    if store is not None:
        return _reuse_or_pack(source, Path(store), block_rows, n_threads, show)
    folder = tempfile.mkdtemp(prefix="terafactor-")
    try:
        _pack(source, Path(folder) / "store", block_rows, n_threads, show)
        packed = _open_store(Path(folder) / "store")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(packed, shutil.rmtree, folder, ignore_errors=True)
    return packed


def stored_images(source: ImagesSource, store: Any) -> MatrixSource:
    """Return the rows of a source from a packed store if it holds them, otherwise the source; write nothing."""
    if not store or not os.path.lexists(store):
        return source
    packed = _open_store(Path(store))
    return packed if packed.fingerprint == fingerprint(source) else source


def _open_store(path: Path) -> PackedSource:
    return cast(PackedSource, PACKED.open(path))


def _reuse_or_pack(source: ImagesSource, store: Path, block_rows: int, n_threads: int, show: bool) -> MatrixSource:
    if not os.path.lexists(store):
        _pack(source, store, block_rows, n_threads, show)
        return _open_store(store)
    packed = _open_store(store)
    if packed.fingerprint != fingerprint(source):
        raise DataError(
            f"{store} holds other images, or images with another mask, cleaning or confounds: remove it, or pass "
            "another store"
        )
    logger.info("reusing the packed images in %s", store)
    return packed


def _pack(source: ImagesSource, store: Path, block_rows: int, n_threads: int, show: bool) -> None:
    logger.info("masking and packing %d images into %s", len(source.records), store)
    # Threads process images; BLAS is limited to one thread, because its last bits depend on the number of threads.
    with Threads(), RowsProgress("masking and packing", source.shape[0]) as progress:
        pack(source, store, block_rows=block_rows, n_threads=n_threads, progress=progress if show else None)
