"""Matrices in files: every format reads as the matrix that was written."""

import numpy as np
import pytest
from scipy import sparse

from terafactor import MaskedDictionaryLearning, open_source
from terafactor.data.sources.sparse import SparseSource
from terafactor.data.views.joined import JoinedSource
from terafactor.data.views.rows import SelectedRows
from terafactor.errors import DataError, DataTypeError
from terafactor.testing import CountingSource, SourceContract

pytestmark = pytest.mark.filterwarnings("ignore:.*zarr.*:UserWarning")


def values(dtype=np.float64, n_rows=37):
    return np.random.default_rng(0).standard_normal((n_rows, 23)).astype(dtype)


def write_npy(folder, *arrays):
    for number, array in enumerate(arrays):
        np.save(folder / f"part{number}.npy", array)
    return str(folder / "part*.npy")


def write_hdf5(path, array, **options):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("deep/values", data=array, **options)
        file.create_dataset("names", data=np.arange(4))
    return path


class TestNpy(SourceContract):
    def make(self, tmp_path):
        return open_source(write_npy(tmp_path, values())), values()


class TestManyNpy(SourceContract):
    def make(self, tmp_path):
        array = values(np.float32)
        return open_source(write_npy(tmp_path, array[:5], array[5:6], array[6:])), array


class TestColumnMajorNpy(SourceContract):
    def make(self, tmp_path):
        return open_source(write_npy(tmp_path, np.asfortranarray(values()))), values()


class TestBigEndianNpy(SourceContract):
    def make(self, tmp_path):
        return open_source(write_npy(tmp_path, values().astype(">f8"))), values()


class TestIntegerNpy(SourceContract):
    def make(self, tmp_path):
        array = (100 * values()).astype(np.int16)
        return open_source(write_npy(tmp_path, array)), array.astype(np.float32)


class TestMemmap(SourceContract):
    def make(self, tmp_path):
        np.save(tmp_path / "values.npy", values())
        return open_source(np.load(tmp_path / "values.npy", mmap_mode="r")[3:]), values()[3:]


class TestColumnMajorMemmap(SourceContract):
    def make(self, tmp_path):
        np.save(tmp_path / "values.npy", values())
        return open_source(np.load(tmp_path / "values.npy", mmap_mode="r")[:, 2:]), values()[:, 2:]


class TestRawMemmapAtAnOffset(SourceContract):
    def make(self, tmp_path):
        (tmp_path / "raw").write_bytes(b"x" * 5000 + values().tobytes())
        return open_source(np.memmap(tmp_path / "raw", np.float64, "r", 5000, (37, 23))), values()


class TestHDF5(SourceContract):
    def make(self, tmp_path):
        return open_source(write_hdf5(tmp_path / "file.h5", values())), values()


class TestChunkedHDF5(SourceContract):
    def make(self, tmp_path):
        path = write_hdf5(tmp_path / "file.h5", values(np.float32), chunks=(5, 4), compression="gzip")
        return open_source(f"{path}::/deep/values"), values(np.float32)


class TestHDF5Dataset(SourceContract):
    def make(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(write_hdf5(tmp_path / "file.h5", values()), "r") as file:
            return open_source(file["deep/values"]), values()


@pytest.mark.filterwarnings("ignore")
class TestH5ad(SourceContract):
    def make(self, tmp_path):
        anndata = pytest.importorskip("anndata")
        anndata.AnnData(values(np.float32)).write_h5ad(tmp_path / "cells.h5ad")
        return open_source(tmp_path / "cells.h5ad"), values(np.float32)


@pytest.mark.filterwarnings("ignore")
class TestAnnData(SourceContract):
    def make(self, tmp_path):
        anndata = pytest.importorskip("anndata")
        return open_source(anndata.AnnData(values(np.float32))), values(np.float32)


class TestZarr2(SourceContract):
    def make(self, tmp_path):
        return open_source(write_zarr(tmp_path / "a.zarr", values(), chunks=(7, 5), zarr_format=2)), values()


class TestZarr3(SourceContract):
    def make(self, tmp_path):
        return open_source(write_zarr(tmp_path / "a.zarr", values(np.float32), chunks=(7, 5))), values(np.float32)


class TestShardedZarr(SourceContract):
    def make(self, tmp_path):
        return open_source(write_zarr(tmp_path / "a", values(), chunks=(2, 5), shards=(4, 10))), values()


class TestArrayOfZarrGroup(SourceContract):
    def make(self, tmp_path):
        write_zarr(tmp_path / "group", values(), name="inner/values", chunks=(7, 5))
        return open_source(f"zarr://{tmp_path}/group::inner/values"), values()


def write_zarr(path, array, name=None, **options):
    import zarr

    zarr.create_array(path, name=name, data=array, **options)
    return path


class TestDask(SourceContract):
    def make(self, tmp_path):
        dask_array = pytest.importorskip("dask.array")
        return open_source(dask_array.from_array(values(), chunks=(8, 6)) + 1), values() + 1


class TestDaskOfSparseBlocks(SourceContract):
    def make(self, tmp_path):
        dask_array = pytest.importorskip("dask.array")
        return open_source(dask_array.from_array(values(), chunks=(8, 6)).map_blocks(sparse.csr_array)), values()


class TestParquet(SourceContract):
    def make(self, tmp_path):
        frame_of(values()).write_parquet(tmp_path / "table.parquet", row_group_size=10)
        return open_source(tmp_path / "table.parquet"), values()


class TestArrowFile(SourceContract):
    def make(self, tmp_path):
        frame_of(values(np.float32)).write_ipc(tmp_path / "table.arrow")
        return open_source(tmp_path / "table.arrow"), values(np.float32)


class TestText(SourceContract):
    def make(self, tmp_path):
        frame_of(values()).write_csv(tmp_path / "table.csv")
        return open_source(tmp_path / "table.csv"), values()


class TestDataFrame(SourceContract):
    def make(self, tmp_path):
        return open_source(frame_of(values())), values()


class TestArrowTable(SourceContract):
    def make(self, tmp_path):
        pytest.importorskip("pyarrow")
        return open_source(frame_of(values()).to_arrow()), values()


def frame_of(array):
    polars = pytest.importorskip("polars")
    return polars.DataFrame(array, schema=[f"f{number}" for number in range(array.shape[1])])


class TestIterator(SourceContract):
    def make(self, tmp_path):
        return open_source((values()[start : start + 5] for start in range(0, 37, 5)), folder=tmp_path), values()


def test_files_are_records_in_alphabetical_order(tmp_path):
    array = values()
    source = open_source(write_npy(tmp_path, array[:5], array[5:]))
    assert source.records == [range(5), range(5, 37)]
    assert source.record_name(1).endswith("part1.npy")


def labels_of(source):
    return [source.record_label(number) for number in range(len(source.records))]


def test_files_of_the_same_name_have_distinct_labels(tmp_path):
    for folder in ("subject1", "subject2"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "scan.npy", values())
    assert labels_of(open_source(f"{tmp_path}/*/scan.npy")) == ["subject1/scan.npy", "subject2/scan.npy"]
    assert labels_of(open_source(write_npy(tmp_path, values(), values()))) == ["part0.npy", "part1.npy"]
    arrays = JoinedSource([open_source(values()), open_source(values())])
    assert len(set(labels_of(arrays))) == 2


def test_a_list_may_mix_formats(tmp_path):
    np.save(tmp_path / "a.npy", values())
    write_hdf5(tmp_path / "b.h5", values())
    source = open_source([tmp_path / "a.npy", f"{tmp_path}/b.h5::/deep/values"])
    np.testing.assert_array_equal(source.read(np.array([0, 37])), values()[[0, 0]])


def test_a_temporary_file_leaves_nothing_behind(tmp_path):
    open_source(iter([values()]), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_columns_of_a_table_can_be_chosen(tmp_path):
    frame_of(values()).write_parquet(tmp_path / "table.parquet")
    source = open_source(tmp_path / "table.parquet", columns=["f3", "f1"])
    np.testing.assert_array_equal(source.read(np.arange(37)), values()[:, [3, 1]])


def write_tables(folder, *frames):
    for number, frame in enumerate(frames):
        frame.write_parquet(folder / f"table{number}.parquet")
    return [folder / f"table{number}.parquet" for number in range(len(frames))]


def test_tables_that_are_read_as_one_are_joined_by_name(tmp_path):
    frame = frame_of(values())
    paths = write_tables(tmp_path, frame, frame.select(sorted(frame.columns, reverse=True)), frame)
    source = open_source(paths)
    assert list(source.feature_names) == frame.columns
    np.testing.assert_array_equal(source.read(np.arange(111)), np.vstack([values()] * 3))
    nested = JoinedSource([open_source(paths[0]), open_source(paths[1:])])
    np.testing.assert_array_equal(nested.read(np.arange(111)), source.read(np.arange(111)))


def test_tables_with_other_features_are_refused_by_name(tmp_path):
    frame = frame_of(values())
    paths = write_tables(tmp_path, frame, frame.rename({"f3": "other"}), frame.drop("f5"))
    with pytest.raises(DataError, match=r"table1.parquet has no feature 'f3', which .*table0.parquet has.*columns="):
        open_source(paths[:2])
    with pytest.raises(DataError, match=r"table2.parquet has no feature 'f5'"):
        open_source([paths[0], paths[2]])
    with pytest.raises(DataError, match=r"table2.parquet has no feature 'f5'"):
        open_source([paths[2], paths[0]])
    assert open_source(paths, columns=["f2", "f1"]).shape == (111, 2)


def test_names_of_features_are_handed_on(tmp_path):
    (path,) = write_tables(tmp_path, frame_of(values()))
    source = open_source(path)
    handed = [open_source(frame_of(values())), SelectedRows(source, np.arange(3)), CountingSource(source)]
    np.save(tmp_path / "plain.npy", values())
    handed.append(open_source([tmp_path / "plain.npy", path]))  # what has no names is joined by position
    assert all(list(other.feature_names) == [f"f{number}" for number in range(23)] for other in handed)


@pytest.mark.parametrize("kind", ["array", "frame", "lazy frame", "arrow", "anndata"])
def test_nan_in_memory_is_a_missing_value_with_missing_nan(kind):
    X = values()
    X[3, 4] = np.nan
    learner = MaskedDictionaryLearning(2, missing="nan", random_state=0)
    expected = learner.fit(X).components_.copy()
    if kind == "anndata":
        data = pytest.importorskip("anndata").AnnData(X)
    else:
        frame = frame_of(X)
        data = {"array": X, "frame": frame, "lazy frame": frame.lazy(), "arrow": frame.to_arrow()}[kind]
    for given in (data, open_source(data)):
        np.testing.assert_array_equal(learner.fit(given).components_, expected)
        with pytest.raises(DataError, match=r"NaN at row 3, (column|feature) '?f?4\b"):
            MaskedDictionaryLearning(2).fit(given)


def test_frames_in_memory_are_joined_by_name():
    frame = frame_of(values())
    joined = JoinedSource([open_source(frame), open_source(frame.select(frame.columns[::-1]))])
    np.testing.assert_array_equal(joined.read(np.arange(74)), np.concatenate([values()] * 2))


@pytest.mark.parametrize("fill", [0.0, np.nan])
def test_sparse_columns_of_a_pandas_frame_are_filled_in(fill):
    pandas = pytest.importorskip("pandas")
    expected = values()
    expected[3, 4] = expected[5, 6] = fill
    frame = pandas.DataFrame(expected, columns=[f"f{number}" for number in range(23)])
    source = open_source(frame.astype(pandas.SparseDtype(expected.dtype, fill)))
    np.testing.assert_array_equal(source.read(np.arange(37)), expected)


@pytest.mark.parametrize("name", [None, "subject"])
def test_the_index_of_a_pandas_frame_is_not_a_feature(tmp_path, name):
    pandas = pytest.importorskip("pandas")
    table = pytest.importorskip("pyarrow").Table
    index = pandas.Index(np.arange(37)[::-1] * 1000, name=name)
    frame = pandas.DataFrame(values(), columns=[f"f{number}" for number in range(23)], index=index)
    frame.to_parquet(tmp_path / "table.parquet")
    assert open_source(tmp_path / "table.parquet").shape == (37, 23)
    assert open_source(table.from_pandas(frame)).shape == (37, 23)
    learner = MaskedDictionaryLearning(2, random_state=0)
    expected = learner.fit(frame).components_.copy()
    np.testing.assert_array_equal(learner.fit(table.from_pandas(frame)).components_, expected)
    stored = name or "__index_level_0__"
    assert open_source(tmp_path / "table.parquet", columns=["f1", stored]).read(np.array([0]))[0, 1] == 36_000


def test_a_part_of_annotated_data_on_disk_is_not_taken_for_the_whole(tmp_path):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(values()).write_h5ad(tmp_path / "cells.h5ad")
    data = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    assert open_source(data).shape == (37, 23)
    for part in (data[:9], data[:, :5]):
        with pytest.raises(DataError, match=r"view of a part of .*to_memory"):
            open_source(part)
        assert open_source(part.to_memory()).shape == part.shape
    data.file.close()


def test_annotated_data_without_a_matrix_is_refused():
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    with pytest.raises(DataError, match="no X"):
        open_source(anndata.AnnData(obs=pandas.DataFrame(index=["a", "b"])))


def test_a_short_table_is_read_once(tmp_path):
    frame_of(values()).write_parquet(tmp_path / "table.parquet")
    assert open_source(tmp_path / "table.parquet").stored_bytes(np.arange(37)) == values().nbytes


def test_an_index_without_a_name_is_known_by_its_column(tmp_path):
    frame_of(values()).rename({"f22": "__index_level_0__"}).write_ipc(tmp_path / "table.arrow")
    assert open_source(tmp_path / "table.arrow").shape == (37, 22)


class Unpickled:
    """An object that fails the test when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_bad_npy_files_are_refused_by_name(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([[Unpickled()]], object), allow_pickle=True)
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    np.save(tmp_path / "flat.npy", np.ones(3))
    np.save(tmp_path / "no rows.npy", np.ones((0, 3)))
    np.save(tmp_path / "cut.npy", values())
    with open(tmp_path / "cut.npy", "r+b") as file:
        file.truncate(1000)
    header = {"descr": "<f8", "fortran_order": False, "shape": (37, -1)}
    with open(tmp_path / "negative.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "text.npy").write_text("1 2 3 4 5 6 7 8 9")
    for name, message in {
        "objects": "objects.*never unpickled",
        "words": "holds <U1, which is not a number",
        "flat": r"shape \(3,\)",
        "no rows": r"shape \(0, 3\)",
        "negative": r"shape \(37, -1\)",
        "cut": r"claims float64 of shape \(37, 23\), 6936 bytes, but the file has 1000",
        "empty": "not a .npy file",
        "text": "not a .npy file",
    }.items():
        with pytest.raises(DataError, match=rf"{name}\.npy.*{message}|{message}"):
            open_source(tmp_path / f"{name}.npy")


def test_a_header_that_claims_a_huge_matrix_allocates_nothing(tmp_path):
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2**20)}
    with open(tmp_path / "huge.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(DataError, match=r"huge.npy claims"):
        open_source(tmp_path / "huge.npy")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (np.ones((3, 22)), "part1.npy has 22 features, but .*part0.npy has 23"),
        (np.ones((3, 23), np.float32), "part1.npy is read as float32, but .*part0.npy as float64"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path, other, message):
    with pytest.raises(DataError, match=message):
        open_source(write_npy(tmp_path, values(), other))


def test_a_file_that_shrinks_later_is_noticed(tmp_path):
    source = open_source(write_npy(tmp_path, values()))
    with open(tmp_path / "part0.npy", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(DataError, match=r"part0.npy ended"):
        source.read(np.array([30]))


def test_datasets_that_are_not_a_matrix_are_refused(tmp_path):
    path = write_hdf5(tmp_path / "file.h5", values())
    with pytest.raises(DataError, match="no dataset '/other'; it has /deep/values"):
        open_source(f"{path}::/other")
    with pytest.raises(DataError, match=r"shape \(4,\)"):
        open_source(f"{path}::names")
    (tmp_path / "no.h5").write_text("hello")
    with pytest.raises(DataError, match=r"no.h5 cannot be opened as HDF5"):
        open_source(tmp_path / "no.h5")
    write_zarr(tmp_path / "group", values(), name="inner")
    with pytest.raises(DataError, match="group that holds inner"):
        open_source(tmp_path / "group")


def test_open_groups_are_refused_with_the_names_of_their_arrays(tmp_path):
    import zarr

    h5py = pytest.importorskip("h5py")
    write_zarr(tmp_path / "group", values(), name="inner")
    groups = [(zarr.open_group(tmp_path / "group"), "inner")]
    with h5py.File(write_hdf5(tmp_path / "file.h5", values())) as file:
        for group, held in (*groups, (file, "deep/values"), (file["deep"], "values")):
            with pytest.raises(DataError, match=rf"is a group that holds {held}: name one, as in group\['name'\]"):
                MaskedDictionaryLearning(2).fit(group)


def test_tables_with_text_are_refused(tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": [1.0], "b": ["x"]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"column 'b' \(String\) of .*t.parquet is not a number"):
        open_source(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="no column 'c'; it has 'a', 'b'"):
        open_source(tmp_path / "t.parquet", columns=["c"])


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "yields no rows"),
        ([np.ones((2, 3)), np.ones((2, 4))], "batch 1 of the iterator has 4 features"),
        ([np.ones(3)], r"batch 0 of the iterator has shape \(3,\)"),
        ([np.ones((2, 3), "f4"), np.full((2, 3), 1e300)], "batch 1 of the iterator is read as float64, but .* float32"),
    ],
)
def test_iterators_of_anything_else_are_refused(batches, message):
    with pytest.raises(DataError, match=message):
        open_source(iter(batches))


def test_batches_of_two_types_are_kept_as_one_that_is_named():
    batches = [np.ones((2, 3), np.float32), np.full((2, 3), 1e300)]
    source = open_source(iter(batches), dtype="float64")
    np.testing.assert_array_equal(source.read(np.arange(4)), np.concatenate(batches))


def test_entries_absent_from_sparse_blocks_of_a_dask_array_can_be_missing():
    dask_array = pytest.importorskip("dask.array")
    matrix = sparse.random_array((20, 9), density=0.3, format="csr", rng=np.random.default_rng(0))
    matrix.data[0] = 0  # stored, so not absent
    dense = dask_array.from_array(matrix.toarray(), chunks=(8, 6))
    blocks = dask_array.from_array(matrix, chunks=(8, 6))
    rows, columns = np.array([17, 3, 4]), np.array([8, 0, 5])
    expected = SparseSource(matrix).absent_as_missing().read(rows, columns)
    np.testing.assert_array_equal(open_source(blocks).absent_as_missing().read(rows, columns), expected)
    assert not np.isnan(open_source(blocks).read(rows)).any()
    with pytest.raises(DataTypeError, match="the dask array is dense"):
        open_source(dense).absent_as_missing()


def test_dask_arrays_of_unknown_length_are_refused():
    dask_array = pytest.importorskip("dask.array")
    array = dask_array.from_array(values(), chunks=(8, 6))
    with pytest.raises(DataError, match="compute_chunk_sizes"):
        open_source(array[array[:, 0] > 0])


def test_variables_of_annotated_data_name_the_features(tmp_path):
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    data = anndata.AnnData(values(np.float32))
    data.var_names = pandas.Index([f"gene {number}" for number in range(data.n_vars)])
    data.raw = data
    data.write_h5ad(tmp_path / "one.h5ad")
    data[:, ::-1].copy().write_h5ad(tmp_path / "other.h5ad")
    for source in (open_source(data), open_source(tmp_path / "one.h5ad"), open_source(f"{tmp_path}/one.h5ad::raw/X")):
        assert source.feature_names == list(data.var_names)
    assert open_source([tmp_path / "one.h5ad"] * 2).feature_names == list(data.var_names)
    with pytest.raises(DataError, match=r"other.h5ad::X has its features in another order, from 'gene \d+' on"):
        open_source([tmp_path / "one.h5ad", tmp_path / "other.h5ad"])


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("named", [True, False])
def test_text_with_or_without_names(tmp_path, separator, named):
    lines = [["a", "b", "c"]] * named + [["1", "2.5", "NA"], ["-3", "", "1e-3"]]
    path = tmp_path / "table.tsv"
    text = "\r\n\r\n".join(separator.join(line) for line in lines)  # blank lines do not count
    path.write_text(f"\ufeff{text}\r\n\r\n", encoding="utf-8", newline="")
    source = open_source(path)
    assert source.feature_names == (["a", "b", "c"] if named else None)
    np.testing.assert_array_equal(source.read(np.arange(2)), [[1, 2.5, np.nan], [-3, np.nan, 1e-3]])


def test_compressed_text_and_columns_by_name(tmp_path):
    np.savetxt(tmp_path / "a.csv.gz", values(), delimiter=",", header=",".join("abcdefghijklmnopqrstuvw"), comments="")
    assert open_source(str(tmp_path / "a.csv.gz"), columns=["c", "a"]).read(np.array([5])).tolist() == [
        values()[5, [2, 0]].tolist()
    ]
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    (tmp_path / "c.csv").write_text("y,x\n4,3\n")
    both = open_source(str(tmp_path / "[bc].csv"))
    np.testing.assert_array_equal(both.read(np.arange(2)), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,x\nAnn,1\n", r"column 'id' \(String\) of .*t.csv is not a number"),
        (b"a,b\n3,4,5\n", "t.csv cannot be read as lines of numbers"),
        (b"\xff\xfe1\x00", "t.csv cannot be read as lines of numbers in UTF-8"),
        (b"", "t.csv cannot be read as lines of numbers"),
        (b"x,y\n", r"t.csv.*at least one"),
    ],
)
def test_text_that_is_not_a_matrix(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-20], lambda raw: raw[:40] + b"\xff" * 40 + raw[80:], lambda raw: b"1"]
)
def test_damaged_compressed_text(tmp_path, damage):
    np.savetxt(tmp_path / "X.csv.gz", values(), delimiter=",")
    path = tmp_path / "X.csv.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"X\.csv\.gz cannot be read as lines of numbers"):
        open_source(path)


def test_a_fit_to_text(tmp_path):
    np.savetxt(tmp_path / "X.csv", values(), delimiter=",")
    options = {"n_components": 3, "alpha": 0.1, "random_state": 0}
    from_text = MaskedDictionaryLearning(**options).fit(tmp_path / "X.csv")
    np.testing.assert_array_equal(from_text.components_, MaskedDictionaryLearning(**options).fit(values()).components_)


@pytest.mark.parametrize(("suffix", "write"), [("parquet", "write_parquet"), ("arrow", "write_ipc")])
def test_a_name_with_brackets_is_not_a_pattern(tmp_path, suffix, write):
    polars = pytest.importorskip("polars")
    getattr(polars.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}), write)(tmp_path / f"t1.{suffix}")
    getattr(polars.DataFrame({"a": [5.0], "b": [6.0]}), write)(tmp_path / f"t[1].{suffix}")
    source = open_source(tmp_path / f"t[1].{suffix}")
    np.testing.assert_array_equal(source.read(np.arange(source.shape[0])), [[5, 6]])
