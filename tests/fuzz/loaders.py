"""The loaders of files: for each, valid samples, how to read one completely, and how to repair its checksums."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from terafactor import (
    CheckpointPolicy,
    ElasticNet,
    MaskedDictionaryLearning,
    MatrixCompletion,
    RandomMasks,
    load_model,
    open_source,
    pack,
    train,
)
from terafactor.cli.fit import stored_estimator
from terafactor.cli.inspect import describe
from terafactor.data.packed import layout
from terafactor.ratings import read_ratings
from terafactor.ratings.readers import read_titles
from terafactor.runs.artifact import ARRAYS, MANIFEST, _canonical
from terafactor.runs.checkpoint import newest
from terafactor.training.model_file import restore_estimator

MAX_CELLS = 2**22
"""A sample that now claims to be larger is read in parts."""


def _unchanged(sample: Path) -> None:
    """Repair nothing."""


@dataclass(frozen=True)
class Loader:
    """A loader of files."""

    make: Callable[[Path], None]
    """Write samples: each file or folder in a folder is one."""

    read: Callable[[Path], Any]
    """Read a sample completely."""

    repair: Callable[[Path], None] = _unchanged
    """Recompute the checksums of a changed sample, which would hide the parser."""

    fixed_tries: int = 10
    """Tries in the tests, where all loaders together may take six seconds."""


def values(n_rows: int = 24, n_features: int = 9) -> Any:
    return np.random.default_rng(0).standard_normal((n_rows, n_features))


def read_all(sample: Path | str, **options: Any) -> None:
    """Open a matrix, and read all rows and some columns, or the first and last ones of many."""
    source = open_source(sample, **options)
    n_rows, n_features = source.shape
    most = max(1, MAX_CELLS // n_features)
    rows = np.arange(n_rows) if n_rows <= most else np.array([0, n_rows - 1])
    if len(rows) * n_features <= MAX_CELLS:
        source.read(rows)
    source.read(rows[::-1][:5], np.unique([0, n_features // 2, n_features - 1]))
    for record in range(len(source.records)):
        source.row_blocks(record), source.tiles(record), source.record_name(record)
    if source.stored_share < 1:
        source.read_stored(rows[:5])


def read_raw(sample: Path) -> None:
    read_all(f"raw://{sample}", shape=(24, 9), dtype="float64")


def make_numpy(folder: Path) -> None:
    np.save(folder / "rows.npy", values())
    np.save(folder / "columns.npy", np.asfortranarray(values().astype("f4")))
    np.save(folder / "integers.npy", np.arange(20, dtype=">i2").reshape(4, 5))
    values().tofile(folder / "plain.raw")


def read_numpy(sample: Path) -> None:
    read_raw(sample) if sample.suffix == ".raw" else read_all(sample)


def make_npz(folder: Path) -> None:
    from scipy import sparse

    matrix = sparse.random_array((12, 9), density=0.3, rng=np.random.default_rng(0), format="csr")
    for kind in ("csr", "csc", "coo", "dia", "bsr"):
        sparse.save_npz(folder / f"{kind}.npz", matrix.asformat(kind), compressed=kind != "coo")
    np.savez(folder / "refused.npz", X=values(), Y=np.arange(3))


def make_text(folder: Path) -> None:
    import gzip

    lines = [",".join(f"{value:.3f}" for value in row) for row in values(6, 4)]
    text = "\n".join(["a,b,c,d", *lines]) + "\n"
    (folder / "names.csv").write_text(text)
    (folder / "numbers.tsv").write_text("\n".join(lines).replace(",", "\t"))
    (folder / "index.csv").write_text(
        "".join(f"{n},{line}\n" for n, line in zip(["", 1, 2, 3], [text[:7], *lines], strict=False))
    )
    (folder / "packed.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def make_tables(folder: Path) -> None:
    import pandas
    import polars

    frame = polars.DataFrame({
        "a": values()[:, 0], "b": np.arange(24, dtype="i4"), "c": values()[:, 2].astype("f4"), "d": [None, 1] * 12,
    })  # fmt: skip
    for kind in ("uncompressed", "zstd", "snappy"):
        frame.write_parquet(folder / f"{kind}.parquet", compression=kind, row_group_size=9)
    pandas.DataFrame(values(6, 3), columns=list("xyz"), index=list("abcdef")).to_parquet(folder / "index.parquet")
    for kind in ("uncompressed", "zstd", "lz4"):
        frame.write_ipc(folder / f"{kind}.arrow", compression=kind)


def make_hdf5(folder: Path) -> None:
    import h5py

    for name, options in {"plain": {}, "gzip": {"chunks": (5, 4), "compression": "gzip", "shuffle": True}}.items():
        for version in ("earliest", "latest"):
            with h5py.File(folder / f"{name}-{version}.h5", "w", libver=version) as file:
                file.create_dataset("group/X", data=values(), **options)
                file.attrs["note"] = "hello"


def make_h5ad(folder: Path) -> None:
    import h5py
    from scipy import sparse

    matrix = sparse.random_array((12, 9), density=0.3, rng=np.random.default_rng(0), format="csr")
    names = [f"gene{number}" for number in range(9)]
    for kind in ("sparse", "chunked", "dense"):
        options = {"chunks": (5,), "compression": "gzip"} if kind == "chunked" else {}
        with h5py.File(folder / f"{kind}.h5ad", "w") as file:
            file.create_group("var").attrs["_index"] = "names"
            file["var"].create_dataset("names", data=names)
            if kind == "dense":
                file["X"] = matrix.toarray()
                continue
            group = file.create_group("X")
            group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [12, 9]})
            for part in ("indptr", "indices", "data"):
                group.create_dataset(part, data=getattr(matrix, part), **options)


def make_zarr(folder: Path) -> None:
    import zarr

    zarr.create_array(folder / "three.zarr", data=values(), chunks=(7, 4))
    zarr.create_array(folder / "sharded.zarr", data=values(), chunks=(4, 3), shards=(8, 9))
    zarr.create_array(folder / "plain.zarr", data=values(), chunks=(12, 9), compressors=None)
    zarr.create_array(folder / "two.zarr", data=values(), chunks=(7, 4), zarr_format=2)


def make_stores(folder: Path) -> None:
    for dtype in ("float32", "float64", "int16"):
        pack(values(12, 20), folder / dtype, block_rows=4, dtype=dtype)


def repair_store(sample: Path) -> None:
    file = sample / "zarr.json"
    content = json.loads(file.read_bytes())["attributes"]["terafactor"]
    content.pop("checksum", None)
    file.write_bytes(layout.encode(layout._with_digest(content)))


def ratings_matrix() -> Any:
    from scipy import sparse

    ratings = sparse.random_array((20, 12), density=0.4, rng=np.random.default_rng(0), format="csr")
    ratings.data = np.round(4 * ratings.data) + 1
    return ratings


SMALL: dict[str, Any] = {"n_epochs": 1, "random_state": 0, "n_threads": 1}


def make_models(folder: Path) -> None:
    dense = partial(MaskedDictionaryLearning, 3, batch_size=8, **SMALL)
    dense().fit(values()).save(folder / "plain")
    dense(reduction=RandomMasks(2, "masked")).fit(values()).save(folder / "masked")
    dense(penalty=ElasticNet(0.3), alpha=0.2).fit(values()).save(folder / "elastic")


def read_model(sample: Path) -> None:
    model = load_model(sample)
    with np.errstate(all="ignore"):
        model.transform(values())
    describe(str(sample))


def make_rating_models(folder: Path) -> None:
    X = ratings_matrix()
    MatrixCompletion(3, **SMALL).fit(X).save(folder / "masked")
    MatrixCompletion(3, alpha=0.1, **SMALL).fit(X).save(folder / "ridge")
    rows, columns = X.nonzero()
    MatrixCompletion(3, **SMALL).fit(([f"u{row}" for row in rows], columns, X.data)).save(folder / "names")


def read_rating_model(sample: Path) -> None:
    model = load_model(sample)
    with np.errstate(all="ignore"):
        model.transform(ratings_matrix()), model.predict(ratings_matrix())
        model.recommend(n=2), model.similar_items(model.items_[:1], n=2)
        model.partial_fit(ratings_matrix())
    describe(str(sample))


def repair_artifact(sample: Path) -> None:
    """Recompute the digests of a model or checkpoint, as someone would who knows the format."""
    manifest = json.loads((sample / MANIFEST).read_bytes())
    arrays = (sample / ARRAYS).read_bytes()
    manifest["files"][ARRAYS] = {"bytes": len(arrays), "sha256": hashlib.sha256(arrays).hexdigest()}
    manifest.pop("sha256", None)
    digest = hashlib.sha256(_canonical(manifest)).hexdigest()
    (sample / MANIFEST).write_bytes(_canonical(manifest | {"sha256": digest}))


def make_brain_models(folder: Path) -> None:
    from terafactor.brain import BrainDictionaryLearning

    options = {"batch_size": 10, "store": False, **SMALL}
    BrainDictionaryLearning(2, mask=brain_mask(), **options).fit([brain_series()]).save(folder / "volumes")
    BrainDictionaryLearning(2, **options).fit([cifti_series()]).save(folder / "cifti")


def read_brain_model(sample: Path) -> None:
    model = load_model(sample)
    with np.errstate(all="ignore"):
        model.transform([cifti_series() if sample.name == "cifti" else brain_series()])
    describe(str(sample))


def make_runs(folder: Path) -> None:
    """Write a run that was killed after ten steps, with its data."""

    def die(snapshot: Any) -> None:
        if snapshot.step == 10:
            raise KeyboardInterrupt

    run, data = folder / "run", values(60)
    run.mkdir()
    np.save(run / "X.npy", data)
    estimator = MaskedDictionaryLearning(3, alpha=0.1, batch_size=10, **SMALL | {"n_epochs": 3})
    with contextlib.suppress(KeyboardInterrupt):
        train(estimator, run / "X.npy", run, checkpoints=CheckpointPolicy(None, 4), callbacks=[die])


def read_run(sample: Path) -> None:
    """Inspect, load and resume a copy of a run."""
    copied = Path(shutil.copytree(sample, sample.with_name("copy"), symlinks=True))
    try:
        describe(str(copied))
        estimator, _ = stored_estimator(copied)
        n_epochs = estimator.n_epochs
        if isinstance(n_epochs, int | float) and n_epochs > 3:  # which is allowed, and takes long
            estimator.set_params(n_epochs=3)
        with np.errstate(all="ignore"):
            train(estimator, copied / "X.npy", copied, resume=True)
    finally:
        shutil.rmtree(copied)


def repair_run(sample: Path) -> None:
    for checkpoint in (sample / "checkpoints").iterdir():
        repair_artifact(checkpoint)


def make_checkpoints(folder: Path) -> None:
    X = values(48)
    dense = MaskedDictionaryLearning(3, batch_size=8, reduction=RandomMasks(2, "masked"), **SMALL)
    train(dense, X, folder / "a", checkpoints=CheckpointPolicy(None, 2, keep=2))
    train(MatrixCompletion(3, **SMALL), ratings_matrix(), folder / "b", checkpoints=CheckpointPolicy(None, 1, keep=2))
    for name in "ab":
        shutil.move(folder / name / "checkpoints", folder / f"checkpoints-{name}")
        shutil.rmtree(folder / name)


def read_checkpoint(sample: Path) -> None:
    found = newest(sample)
    if found is not None:
        with np.errstate(all="ignore"):
            model = restore_estimator(found[1])
            model.transform(ratings_matrix() if sample.name.endswith("b") else values())


def repair_checkpoints(sample: Path) -> None:
    for checkpoint in sample.iterdir():
        repair_artifact(checkpoint)


def make_rating_texts(folder: Path) -> None:
    rows, columns = ratings_matrix().nonzero()
    plain = [f"{row}\t{column}\t{1 + row % 5}\t{1010 + row}" for row, column in zip(rows, columns, strict=True)][:30]
    named = "user,item,rating,timestamp\n" + "\n".join(plain).replace("\t", ",") + "\n"
    (folder / "ratings.dat").write_text("\n".join(plain).replace("\t", "::") + "\n")
    (folder / "u.data").write_text("\n".join(plain) + "\n")
    (folder / "named.csv").write_text(named)
    (folder / "dated.csv").write_text(named.replace(",10", ",2000-01-"))
    quoted = ('"' + line.replace(",", '","') + '"\n' for line in named.splitlines())
    (folder / "quoted.csv").write_text("".join(quoted))
    (folder / "padded.tsv").write_text(named.replace("\n", "\n00").replace(",", "\t")[:-2])
    (folder / "recbole.inter").write_text(
        "user_id:token\titem_id:token\trating:float\n" + "\n".join(p[: p.rindex("\t")] for p in plain) + "\n"
    )


def make_rating_files(folder: Path) -> None:
    import polars
    from scipy import sparse

    X = ratings_matrix()
    rows, columns = X.nonzero()
    frame = polars.DataFrame({"user": rows, "item": [f"i{n}" for n in columns], "rating": X.data, "time": rows * 1000})
    for kind in ("uncompressed", "zstd"):
        frame.write_parquet(folder / f"{kind}.parquet", compression=kind)
    sparse.save_npz(folder / "csr.npz", X)
    sparse.save_npz(folder / "coo.npz", X.tocoo())
    np.savez(folder / "ids.npz", user=rows, item=columns, rating=X.data)
    np.savez_compressed(folder / "names.npz", user=rows.astype(str), item=columns, rating=X.data, timestamp=rows)


def make_netflix(folder: Path) -> None:
    from terafactor.ratings.readers.netflix import PROBE

    for name, files in {
        "combined": ["combined_data_1.txt", "combined_data_2.txt"],
        "single": ["mv_0000001.txt"],
    }.items():
        (folder / name).mkdir()
        for first, file in enumerate(files):
            lines = "".join(f"{user},{1 + user % 5},2005-09-0{1 + user % 9}\n" for user in range(3, 9))
            movies = range(1 + 3 * first, 4 + 3 * first)
            (folder / name / file).write_text("".join(f"{movie}:\n{lines}" for movie in movies))
        (folder / name / PROBE).write_text("1:\n3\n4\n2:\n5\n")


def read_netflix(sample: Path) -> None:
    from terafactor.ratings.readers.netflix import split_probe

    split_probe(read_ratings(sample), sample)


def make_titles(folder: Path) -> None:
    rows = [(1, "Heat"), (2, "Dune, Part One"), (3, 'The "Thing"'), (4, "Amélie")]
    (folder / "movies.csv").write_text(
        "movieId,title,genres\n" + "".join(f'{n},"{t.replace(chr(34), chr(34) * 2)}",x\n' for n, t in rows)
    )
    (folder / "movies.dat").write_text("".join(f"{n}::{t}::x\n" for n, t in rows), encoding="latin-1")
    (folder / "u.item").write_text("".join(f"{n}|{t}|x\n" for n, t in rows))
    (folder / "titles.tsv").write_text("item\ttitle\n" + "".join(f"{n}\t{t}\n" for n, t in rows))


SPACE = (4, 4, 4)
SUFFIXES = {
    "plain": ".nii",
    "gzip": ".nii.gz",
    "integers": ".nii",
    "dtseries": ".dtseries.nii",
    "ptseries": ".ptseries.nii",
}
"""Suffixes of images by the name of the sample."""


def brain_mask() -> Any:
    import nibabel

    return nibabel.Nifti1Image(np.ones(SPACE, np.uint8), np.diag([3.0, 3, 3, 1]))


def brain_series(n_volumes: int = 20) -> Any:
    import nibabel

    numbers = 100 + np.random.default_rng(0).standard_normal((*SPACE, n_volumes)).astype(np.float32)
    image = nibabel.Nifti1Image(numbers, np.diag([3.0, 3, 3, 1]))
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((3, 3, 3, 2.0))
    return image


def make_images(folder: Path) -> None:
    """Write a series and a mask into each folder."""
    import nibabel

    integers = np.round(np.asarray(brain_series().dataobj)).astype(np.int16)
    for name, suffix in list(SUFFIXES.items())[:3]:
        (folder / name).mkdir()
        image = brain_series() if name != "integers" else nibabel.Nifti2Image(integers, np.diag([3.0, 3, 3, 1]))
        image.to_filename(folder / name / f"bold{suffix}")
        brain_mask().to_filename(folder / name / f"mask{suffix}")


def read_images(sample: Path) -> None:
    from terafactor.brain.preparation import masked_images

    image, mask = (sample / f"{name}{SUFFIXES[sample.name]}" for name in ("bold", "mask"))
    options = {"integers": {"smoothing_fwhm": None}, "plain": {"high_pass": 0.01}, "dtseries": {"high_pass": 0.01}}
    source = masked_images([image], None, mask, options.get(sample.name, {}))
    with np.errstate(all="ignore"):
        source.read(np.arange(source.shape[0]))
        source.background()
    source.record_identity(0)


def cifti_axis(parcels: bool) -> Any:
    import nibabel

    axes = nibabel.cifti2.cifti2_axes
    models = axes.BrainModelAxis.from_surface(np.arange(24), 100, name="CIFTI_STRUCTURE_CORTEX_LEFT")
    if not parcels:
        return models
    return axes.ParcelsAxis.from_brain_models([(f"p{n}", models[2 * n : 2 * n + 2]) for n in range(12)])


def cifti_series(parcels: bool = False, n_volumes: int = 20) -> Any:
    import nibabel

    axis, times = cifti_axis(parcels), nibabel.cifti2.cifti2_axes.SeriesAxis(0, 1, n_volumes)
    return nibabel.Cifti2Image(
        values(n_volumes, len(axis)).astype("f4"), nibabel.cifti2.Cifti2Header.from_axes((times, axis))
    )


def make_cifti(folder: Path) -> None:
    for name, suffix in list(SUFFIXES.items())[3:]:
        (folder / name).mkdir()
        cifti_series(name == "ptseries").to_filename(folder / name / f"bold{suffix}")
        cifti_series(name == "ptseries", 1).to_filename(folder / name / f"mask{suffix}")


def make_surfaces(folder: Path) -> None:
    import nibabel

    (folder / "surface").mkdir()
    numbers = values(10242, 2).astype("f4").T
    arrays = [nibabel.gifti.GiftiDataArray(row, intent="NIFTI_INTENT_TIME_SERIES") for row in numbers]
    for part in "LR":
        nibabel.GiftiImage(darrays=arrays).to_filename(folder / "surface" / f"a_hemi-{part}_bold.func.gii")


def read_surfaces(sample: Path) -> None:
    from terafactor.brain.preparation import masked_images

    source = masked_images(sorted(sample.glob("*.gii")), None, None, {"standardize": None})
    source.read(np.arange(source.shape[0]))


CONFOUNDS_IMAGE, CONFOUNDS = "sub-1_task-rest_bold.nii", "sub-1_task-rest_desc-confounds_timeseries.tsv"


def make_confounds(folder: Path) -> None:
    names = ["trans_x", "rot_y", "cosine00", "csf", "non_steady_state_outlier00"]
    columns = np.column_stack([values(20, 4), np.arange(20) == 0])
    lines = ["\t".join(names), *("\t".join(f"{value:.4g}" for value in row) for row in columns)]
    lines[1] = "n/a" + lines[1][lines[1].index("\t") :]
    for name in ("auto", "given"):
        (folder / name).mkdir()
        brain_series().to_filename(folder / name / CONFOUNDS_IMAGE)
        (folder / name / CONFOUNDS).write_text(
            "\n".join(lines if name == "auto" else [lines[0], *lines[2:], lines[2]]) + "\n"
        )


def read_confounds(sample: Path) -> None:
    from terafactor.brain.preparation import masked_images

    confounds = "auto" if sample.name == "auto" else [sample / CONFOUNDS]
    source = masked_images([sample / CONFOUNDS_IMAGE], confounds, brain_mask(), {"smoothing_fwhm": None})
    with np.errstate(all="ignore"):
        source.read(np.arange(source.shape[0]))
    source.record_identity(0)


LOADERS = {
    "numpy": Loader(make_numpy, read_numpy, fixed_tries=50),
    "npz": Loader(make_npz, read_all, fixed_tries=20),
    "text": Loader(make_text, read_all, fixed_tries=20),
    "tables": Loader(make_tables, read_all),
    "hdf5": Loader(make_hdf5, read_all),
    "h5ad": Loader(make_h5ad, read_all),
    "zarr": Loader(make_zarr, read_all),
    "packed": Loader(make_stores, read_all, repair_store),
    "model": Loader(make_models, read_model, repair_artifact),
    "ratings-model": Loader(make_rating_models, read_rating_model, repair_artifact),
    "brain-model": Loader(make_brain_models, read_brain_model, repair_artifact, fixed_tries=3),
    "checkpoints": Loader(make_checkpoints, read_checkpoint, repair_checkpoints),
    "run": Loader(make_runs, read_run, repair_run, fixed_tries=3),
    "ratings-text": Loader(make_rating_texts, read_ratings, fixed_tries=20),
    "ratings-files": Loader(make_rating_files, read_ratings, fixed_tries=20),
    "netflix": Loader(make_netflix, read_netflix),
    "titles": Loader(make_titles, read_titles, fixed_tries=40),
    "images": Loader(make_images, read_images, fixed_tries=5),
    "cifti": Loader(make_cifti, read_images, fixed_tries=5),
    "surfaces": Loader(make_surfaces, read_surfaces, fixed_tries=2),
    "confounds": Loader(make_confounds, read_confounds, fixed_tries=5),
}
