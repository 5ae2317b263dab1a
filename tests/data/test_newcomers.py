"""Data as people first bring them: tables with an index or with text, and objects other than matrices."""

import datetime
import re
import warnings

import numpy as np
import pytest

from terafactor import MaskedDictionaryLearning, open_source
from terafactor.errors import DataError, DataTypeError, FitWarning, ParameterError

NAMES = ["a", "b", "c"]


def values(n_rows=12):
    return np.random.default_rng(0).standard_normal((n_rows, 3))


def pandas_frame(**extra):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(values(), columns=NAMES).assign(**extra)


@pytest.mark.parametrize("index", [None, "text", "shuffled"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_the_unnamed_index_that_pandas_writes_to_text_is_not_a_feature(tmp_path, name, index):
    frame = pandas_frame()
    if index == "text":
        frame.index = [f"row {number}" for number in range(12)]
    elif index == "shuffled":
        frame.index = np.arange(12)[::-1]
    frame.to_csv(tmp_path / name, sep="\t" if "tsv" in name else ",")
    with pytest.warns(FitWarning, match=rf"first column of .*{name} has no name.*columns=\['', 'a', 'b', \.\.\.\]"):
        source = open_source(tmp_path / name)
    assert source.feature_names == NAMES
    np.testing.assert_array_equal(source.read(np.arange(12)), values())


def test_an_index_that_pandas_read_as_a_column_is_noticed(tmp_path):
    pandas = pytest.importorskip("pandas")
    pandas_frame().to_csv(tmp_path / "t.csv")
    frame = pandas.read_csv(tmp_path / "t.csv")
    frame.to_csv(tmp_path / "again.csv", index=False)
    for data, name, way_out in (
        (frame, "X", r"X\.drop\(columns=\['Unnamed: 0'\]\)"),
        (tmp_path / "again.csv", r".*again\.csv", r"drop=\['Unnamed: 0'\] \(--drop 'Unnamed: 0'\)"),
    ):
        with pytest.warns(FitWarning) as caught:
            MaskedDictionaryLearning(2, n_epochs=1, random_state=0).fit(data)
        start = rf"column 'Unnamed: 0' of {name} looks like a row index but is used as a feature"
        assert re.fullmatch(f"{start}: leave it out with {way_out}", str(caught[0].message))
    with warnings.catch_warnings(record=True) as caught:
        MaskedDictionaryLearning(2, n_epochs=1, random_state=0).fit(frame.drop(columns="Unnamed: 0"))
    assert not [warning for warning in caught if "index" in str(warning.message)]


@pytest.mark.parametrize("first", [0, 1])
def test_a_column_that_counts_the_rows_is_noticed(tmp_path, first):
    frame = pandas_frame()
    frame.insert(1, "id", np.arange(first, first + 12, dtype=float))
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data, text in (
        (frame, r"column 'id' of X counts the rows.*: leave it out with X\.drop\(columns=\['id'\]\)"),
        (tmp_path / "t.csv", r"column 'id' of .*t\.csv counts the rows.*with drop=\['id'\] \(--drop id\)"),
        (frame.to_numpy(), "column 1 of X counts the rows.*: leave it out$"),
    ):
        with pytest.warns(FitWarning) as caught:
            MaskedDictionaryLearning(2, alpha=0.01, random_state=0).fit(data)
        assert re.match(text, str(caught[0].message))


def test_other_columns_that_increase_do_not_count_the_rows():
    frame = pandas_frame(a=np.linspace(-1, 1, 12), b=np.arange(12) % 7, c=np.arange(12) * 3)
    with warnings.catch_warnings(record=True) as caught:
        MaskedDictionaryLearning(2, alpha=0.01, random_state=0).fit(frame)
    assert not [warning for warning in caught if "counts" in str(warning.message)]


def test_errors_about_values_name_the_column(tmp_path):
    frame = pandas_frame()
    frame.loc[3, "b"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data, name in ((frame, "X"), (tmp_path / "t.csv", r".*t\.csv")):
        with pytest.raises(DataError, match=rf"^{name} contains NaN at row 3, column 'b';"):
            MaskedDictionaryLearning(2, random_state=0).fit(data)


def test_an_unnamed_index_can_be_kept(tmp_path):
    pandas_frame().to_csv(tmp_path / "t.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = open_source(tmp_path / "t.csv", columns=["", "c"])
        assert open_source(tmp_path / "t.csv", columns=["c"]).shape == (12, 1)
        assert open_source(tmp_path / "t.csv", drop=["", "a"]).feature_names == ["b", "c"]
    np.testing.assert_array_equal(source.read(np.arange(12)), np.column_stack([np.arange(12), values()[:, 2]]))


@pytest.mark.parametrize("index", [True, False])
def test_column_names_that_are_numbers_are_not_a_row(tmp_path, index):
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(values()).to_csv(tmp_path / "t.csv", index=index)
    with pytest.warns(FitWarning, match=r"first line of .*t.csv.*0, 1, 2.*column names"):
        source = open_source(tmp_path / "t.csv")
    assert source.feature_names == ["0", "1", "2"]
    np.testing.assert_array_equal(source.read(np.arange(12)), values())


@pytest.mark.parametrize("first", ["0,1", "0,1,3", "0.0,1.0,2.0", ",1,2"])
def test_other_first_lines_of_numbers_are_rows(tmp_path, first):
    (tmp_path / "t.csv").write_text(f"{first}\n" + ",".join("7" for _ in first.split(",")) + "\n")
    assert open_source(tmp_path / "t.csv").shape == (2, len(first.split(",")))


def table(kind, folder):
    polars = pytest.importorskip("polars")
    frame = polars.from_pandas(pandas_frame(id=["x"] * 12, day=datetime.date(2020, 1, 1)))
    if kind == "frame":
        return frame
    write = {"csv": "write_csv", "parquet": "write_parquet", "arrow": "write_ipc", "feather": "write_ipc"}[kind]
    getattr(frame, write)(folder / f"t.{kind}")
    return folder / f"t.{kind}"


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "feather", "frame"])
def test_text_columns_are_named_with_both_ways_out(tmp_path, kind):
    data = table(kind, tmp_path)
    message = (
        r"columns 'id' \(String\), 'day' \(\w+\) of .* not numbers.*drop=\['id', 'day'\].*--drop id,day.*--columns"
    )
    with pytest.raises(DataError, match=message):
        open_source(data)
    for options in ({"drop": ["id", "day"]}, {"columns": NAMES}, {"columns": [*NAMES, "id"], "drop": "id"}):
        source = open_source(data, **options)
        assert source.feature_names == NAMES
        np.testing.assert_array_equal(source.read(np.arange(12)), values())
    with pytest.raises(DataError, match=r"has no column 'zz'; it has 'a', 'b', 'c'"):
        open_source(data, drop=["zz"])
    with pytest.raises(DataError, match=r"has no column 'dai' \(did you mean 'day'\?\)"):
        open_source(data, drop=["dai"])
    with pytest.raises(DataError, match=r"no column of .* is left"):
        open_source(data, columns=["a"], drop=["a"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,?\n", r"'b' contains '\?' at row 1: write a number, or nothing if it is missing, or leave out"),
        ("a;b\n1,5;2,5\n", r"'a' contains '1,5' at row 0: write decimal points, not commas$"),
    ],
)
def test_the_first_value_that_is_not_a_number_is_named(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "lines", ["a,b,c\n1,2,3\n\n4,5\n6,7,8\n", "1,2,3\n4,5,6\n\n7,8\n", '"a\n",b,c\n"1",2,3\n4,5\n']
)
def test_a_line_with_too_few_fields_is_named(tmp_path, lines):
    (tmp_path / "t.csv").write_text(lines)
    with pytest.raises(DataError, match=r"line 4 of .*t\.csv has 2 fields, 3 expected"):
        open_source(tmp_path / "t.csv")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_ratings_is_noticed(tmp_path, suffix):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"userId": [1, 2], "movieId": [3, 4], "rating": [4.5, 1.0], "timestamp": [0, 1]})
    getattr(frame, f"write_{suffix}")(tmp_path / f"t.{suffix}")
    with pytest.warns(FitWarning, match=r"looks like ratings \(userId, movieId, rating\).*terafactor ratings fit"):
        open_source(tmp_path / f"t.{suffix}")
    open_source(tmp_path / f"t.{suffix}", columns=["userId", "movieId", "rating"])
    open_source(frame.drop("rating"))


def test_missing_numbers_at_the_end_of_lines_are_read(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,\n,,\n \n4,5,6\n")
    assert np.isnan(open_source(tmp_path / "t.csv").read(np.arange(3))[:2, 2]).all()


def test_errors_list_some_of_many_columns(tmp_path):
    names = [f"f{number}" for number in range(30)]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join("x" * 30) + "\n")
    with pytest.raises(DataError, match=r"'f9', \.\.\.\]\) \(--drop .*,f9,\.\.\.\)") as raised:
        open_source(tmp_path / "t.csv")
    assert "f10" not in str(raised.value)
    with pytest.raises(DataError, match=r"has no column 'zz'; it has 'f0', .*'f9' and 20 more$"):
        open_source(tmp_path / "t.csv", drop=["zz"])


@pytest.mark.parametrize("text", ["a b c\n1 2 3\n", "1 2 3\n4 5 6\n"])
def test_numbers_separated_by_spaces_are_refused(tmp_path, text):
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(DataError, match=r"format of .*t\.txt is unknown; if it is a CSV, use text://.*t\.txt"):
        open_source(tmp_path / "t.txt")
    with pytest.raises(DataError, match=r"no separator found in .*t\.txt: separate numbers by , ; \| or tabs"):
        open_source(f"text://{tmp_path / 't.txt'}")


def test_an_unknown_option_is_named_with_those_of_the_format(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    np.save(tmp_path / "X.npy", values())
    with pytest.raises(
        ParameterError, match=r"unknown option 'column' for .*t\.csv: its format takes columns and drop"
    ):
        open_source(tmp_path / "t.csv", column="a")
    with pytest.raises(ParameterError, match=r"unknown option 'x' for .*X\.npy: its format takes no options"):
        open_source(tmp_path / "X.npy", x=1)


def test_complex_numbers_are_refused(tmp_path):
    np.save(tmp_path / "X.npy", values() * 1j)
    with pytest.raises(DataError, match=r"X\.npy holds complex128: complex numbers are not supported"):
        open_source(tmp_path / "X.npy")


def test_options_of_tables_are_refused_elsewhere(tmp_path):
    np.save(tmp_path / "X.npy", values())
    for data in (tmp_path / "X.npy", str(tmp_path / "X*.npy"), values()):
        with pytest.raises(ParameterError, match=r"drop= cannot be used with .*--drop.* are for tables"):
            open_source(data, drop=["a"])


def frames_with_text():
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    text = pandas_frame(id=["x"] * 12)
    return {
        "text": text,
        "category": text.astype({"id": "category"}),
        "string": text.astype({"id": "string"}),
        "date": pandas_frame(id=pandas.Timestamp("2020-01-01")),
        "objects": pandas_frame(id=[{}] * 12),
        "polars": polars.from_pandas(text),
        "lazy": polars.from_pandas(text).lazy(),
        "arrow": polars.from_pandas(text).to_arrow(),
    }


@pytest.mark.parametrize("kind", ["text", "category", "string", "date", "objects", "polars", "lazy", "arrow"])
def test_a_frame_with_text_is_refused_by_column(kind):
    frame = frames_with_text()[kind]
    way_out = r"leave out the column with X\.drop(_columns)?\((columns=)?\['id'\]\)$"  # in the words of the package
    with pytest.raises(DataError, match=rf"column 'id' \(.*\) of X is not a number: {way_out}"):
        MaskedDictionaryLearning(2).fit(frame)
    model = MaskedDictionaryLearning(2, random_state=0).fit(values())
    with pytest.raises(DataError, match=r"column 'id' "):
        model.transform(frame)


def test_columns_named_by_numbers_are_refused_by_number():
    frame = pandas_frame().rename(columns={"a": 0, "b": 1, "c": 2})
    frame[7] = "x"
    with pytest.raises(DataError, match=r"column 7 \(.*\) of X is not a number"):
        MaskedDictionaryLearning(2).fit(frame)


def test_frames_of_numbers_in_objects_are_read():
    frame = pandas_frame().astype(object)
    model = MaskedDictionaryLearning(2, random_state=0)
    np.testing.assert_array_equal(model.fit(frame).components_, model.fit(pandas_frame()).components_)


def test_none_in_a_list_is_missing():
    X = values().tolist()
    X[3][1] = None
    model = MaskedDictionaryLearning(2, missing="nan", random_state=0)
    expected = values()
    expected[3, 1] = np.nan
    np.testing.assert_array_equal(model.fit(X).components_, model.fit(expected).components_)


def test_a_frame_of_mixed_objects_is_refused():
    with pytest.raises(DataError, match=r"the DataFrame cannot be read as columns of numbers|column 'id'"):
        open_source(pandas_frame(id=[1, "x"] * 6))


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (None, DataTypeError, "X must be a matrix .*got NoneType"),
        ({"a": [1.0, 2.0]}, DataTypeError, r"X must be a matrix .*got dict: pandas.DataFrame\(X\)"),
        ({1.0, 2.0}, DataTypeError, "X must be a matrix .*got set"),
        (3.0, DataTypeError, "X must be a matrix .*got float"),
        (object(), DataTypeError, "X must be a matrix .*got object"),
        (np.array([["2020-01-01"]] * 5, "M8[D]"), DataError, r"X holds datetime64\[D\], which is not a number"),
        (np.array([[1], [2]], "m8[s]"), DataError, r"X holds timedelta64\[s\], which is not a number"),
        (np.zeros((3, 2), [("a", "f4")]), DataError, "X holds .*which is not a number"),
        ([["a", "b"], ["c", "d"]], DataError, r"X contains 'a' at row 0, column 0, which is not a number"),
        (np.array([["1", "2"], ["3", "x"]]), DataError, r"X contains 'x' at row 1, column 1, which is not a number"),
        (np.array([[1, 2], [3, "x"]], object), DataError, r"X contains 'x' at row 1, column 1, which is not a number"),
        (np.array([[1, {}], [3, 4]], object), DataTypeError, r"X contains {} at row 0, column 1"),
        ([[1.0, 2.0], [3.0]], DataError, "the rows of X have different lengths"),
        ([datetime.date(2020, 1, 1)], DataTypeError, r"X contains datetime.date\(2020, 1, 1\)"),
    ],
)
def test_data_that_is_not_a_matrix_is_refused_by_name(X, error, message):
    with pytest.raises(error, match=message):
        MaskedDictionaryLearning(2).fit(X)


@pytest.mark.parametrize(("suffix", "write"), [("pq", "write_parquet"), ("ipc", "write_ipc"), ("csv", "write_csv")])
def test_brackets_in_the_names_of_tables_are_literal(tmp_path, suffix, write):
    polars = pytest.importorskip("polars")
    getattr(polars.DataFrame({"a": [1.0, 2.0]}), write)(tmp_path / f"t1.{suffix}")
    getattr(polars.DataFrame({"a": [5.0]}), write)(tmp_path / f"t[1].{suffix}")
    for data in (tmp_path / f"t[1].{suffix}", f"{tmp_path}/t[1].{suffix}", f"{tmp_path}/t[[]1].{suffix}"):
        np.testing.assert_array_equal(open_source(data).read(np.arange(1)), [[5]])


def test_the_case_of_a_suffix_does_not_matter(tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": [1.0, 2.0]}).write_ipc(tmp_path / "T.ARROW")
    assert open_source(tmp_path / "T.ARROW").shape == (2, 1)
