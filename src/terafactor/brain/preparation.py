"""From images as they are given to a matrix that a fit reads: found, masked, cleaned, and packed once."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from terafactor._threads import Executor
from terafactor.brain.confounds import resolve_confounds
from terafactor.brain.find import find_images
from terafactor.brain.images import QUIET, ImagesSource, check_alike, open_images
from terafactor.brain.kinds import kind_of, make_masker, name_of
from terafactor.data import MatrixSource, pack
from terafactor.data.fingerprint import fingerprint
from terafactor.data.packed.reader import PackedSource
from terafactor.errors import DataError
from terafactor.solver.progress import RowsProgress

logger = logging.getLogger("terafactor")


def masked_images(
    images: Any,
    confounds: Any,
    mask: Any,
    options: Mapping[str, Any],
    *,
    resample: bool = False,
    n_threads: int = 1,
) -> ImagesSource:
    """Return images as a source whose rows are masked and cleaned volumes; nothing is read yet.

    Parameters
    ----------
    images, confounds
        As :meth:`BrainDictionaryLearning.fit` takes them.
    mask : masker, mask image, path of one, or None
        A fitted masker without options is used as it is.
    options : mapping
        For the masker.
    resample : bool
        Whether images may lie otherwise than the mask.
    n_threads : int
        Threads that will read at the same time.
    """
    things = find_images(images)
    held = getattr(mask, "mask_img_", None)
    kind = kind_of(things if held is None else [held, *things])
    opened = open_images(kind, things, mask)
    if not resample:
        check_alike(kind, things, opened, opened[0], name_of(things[0], 0))
    with QUIET:
        masker = mask if hasattr(mask, "mask_img_") and not options else make_masker(kind, mask, opened, options)
    if not resample and getattr(masker, "target_affine", None) is None:
        check_alike(kind, things, opened, masker.mask_img_, "the mask")
    n_kept = n_threads + 1 if n_threads > 1 else 1
    return ImagesSource(kind, things, opened, masker, resolve_confounds(confounds, things), n_kept)


def packed_images(
    source: ImagesSource, store: str | Path | None, *, block_rows: int, n_threads: int, show: bool = False
) -> MatrixSource:
    """Return the same rows from a packed store, written now unless it is there.

    Parameters
    ----------
    source : ImagesSource
    store : path or None
        Its folder; None makes one that vanishes with the source that is returned.
    block_rows : int
        Volumes that are read together.
    n_threads : int
        Images read, masked and written at the same time.
    show : bool
        Whether to say how many volumes are done.
    """
    if store is not None:
        return _kept_store(source, Path(store), block_rows, n_threads, show)
    folder = tempfile.mkdtemp(prefix="terafactor-")
    try:
        _pack(source, Path(folder) / "store", block_rows, n_threads, show)
        packed = PackedSource(Path(folder) / "store")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(packed, shutil.rmtree, folder, ignore_errors=True)
    return packed


def stored_images(source: ImagesSource, store: Any) -> MatrixSource:
    """Return the same rows from a packed store if it is there and holds them, else the source; nothing is written."""
    if not store or not os.path.lexists(store):
        return source
    packed = PackedSource(Path(store))
    return packed if packed.fingerprint == fingerprint(source) else source


def _kept_store(source: ImagesSource, store: Path, block_rows: int, n_threads: int, show: bool) -> MatrixSource:
    if not os.path.lexists(store):
        _pack(source, store, block_rows, n_threads, show)
        return PackedSource(store)
    packed = PackedSource(store)
    if packed.fingerprint != fingerprint(source):
        raise DataError(
            f"{store} holds other images, or these masked or cleaned otherwise: remove it, or name another store"
        )
    logger.info("%s holds these images already", store)
    return packed


def _pack(source: ImagesSource, store: Path, block_rows: int, n_threads: int, show: bool) -> None:
    logger.info("masking and packing %d images into %s", len(source.records), store)
    # An image per thread leaves no cores for BLAS, whose bits would depend on how many it had.
    with Executor(), RowsProgress("masking and packing", source.shape[0]) as progress:
        pack(source, store, block_rows=block_rows, n_threads=n_threads, progress=progress if show else None)
