"""Tables of ratings and their ids."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from terafactor import RatingTable
from terafactor.errors import DataError, DataTypeError, FitWarning, ParameterError
from terafactor.ratings import open_ratings
from terafactor.ratings.table.ids import Ids

ANY_IDS = [
    [5, 3, 5, 1],
    [-7, 2**62, -7, 0],
    [2**63 + 5, 2**63, 2**63 + 5, 2**63],
    [-1, 2**63, 2**70, -1],
    ["b", "a", "b", "Ä"],
    ["1", 1, "1", 2.5],
    [(1, 2), (1, 3), (1, 2), "x"],
    [(1, 2), (1, 3), (1, 2)],
    np.array([3, 1, 3, 2], np.uint8),
    np.array([3, 1, 3, 2**63 - 1], np.uint64),
    np.array([3, -(2**40), 3, 2], object),
    [np.int32(3), 4, np.uint64(3), np.int64(-1)],
    np.array(["b", "a", "b"], object),
    np.array([3.0, 1.0, 3.0]),
    np.array([1.5, 2.0, 1.5]),
    np.array(["2020-01-01", "2021-01-01"], "datetime64[us]"),
    [True, False, True, True],
]

MISSING_IDS = [
    (np.array([(1, 2), (1, 3)]), "got shape \\(2, 2\\)"),
    ([None, 1], "id number 0 is missing \\(None\\)"),
    ([1.0, np.nan], "id number 1 is missing \\(nan\\)"),
    (np.array(["2020-01-01", "NaT"], "datetime64[ns]"), "id number 1 is missing \\(NaT\\)"),
]


@pytest.mark.parametrize("given_ids", ANY_IDS, ids=str)
def test_ids_of_any_type_are_kept(given_ids):
    as_objects = np.empty(len(given_ids), object)
    as_objects[:] = list(given_ids)
    known, numbers = Ids.of(as_objects if isinstance(given_ids[0], tuple) else given_ids)
    assert [known.values[number] for number in numbers] == list(given_ids)
    np.testing.assert_array_equal(known.find(as_objects), numbers)
    np.testing.assert_array_equal(known.find(given_ids), numbers)
    assert len(known) == len(set(given_ids))
    if known.values.dtype != object:
        assert known.values.tolist() == sorted(set(given_ids))


@pytest.mark.parametrize(("given_ids", "message"), MISSING_IDS, ids=str)
def test_ids_that_are_missing_are_named(given_ids, message):
    with pytest.raises(DataError, match=message):
        RatingTable.of(given_ids, [1, 2], [3.0, 4.0])
    with pytest.raises(DataError, match=message):
        RatingTable.of([1, 2], given_ids, [3.0, 4.0])


def test_ids_of_data_frames_are_kept():
    import pandas

    numbers, names = pandas.Series([3, 1], dtype="Int64"), pandas.Series(["b", "a"], dtype="category")
    table = RatingTable.of(numbers, names, [3.0, 4.0])
    assert (table.user_ids.values.tolist(), table.item_ids.values.tolist()) == ([1, 3], ["a", "b"])
    days = pandas.to_datetime(["2020-01-01", "2021-01-01"])
    dated = RatingTable.of(days, names, [3.0, 4.0]).user_ids
    assert dated.values.tolist() == list(days)
    assert dated.find([days[1]]).tolist() == dated.find(days.to_numpy()[1:].astype("M8[D]")).tolist() == [1]
    with pytest.raises(DataError, match="id number 1 is missing"):
        RatingTable.of(pandas.Series([3, None], dtype="Int64"), names, [3.0, 4.0])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-50, 50) | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_are_numbered_as_by_a_sort(values):
    known, numbers = Ids.of(np.array(values, np.int64))
    expected, inverse = np.unique(np.array(values, np.int64), return_inverse=True)
    np.testing.assert_array_equal(known.values, expected)
    np.testing.assert_array_equal(numbers, inverse)


def test_ids_that_are_not_known_have_no_number():
    known = Ids(np.array([10, 4, 7]))
    assert known.find([4, 5, 10, -1]).tolist() == [1, -1, 0, -1]
    assert known.find(["4", "x"]).tolist() == [-1, -1]
    assert known.find([4, "4"]).tolist() == [1, -1]
    assert known.find([]).tolist() == []
    assert Ids(np.array([], np.int64)).find([3]).tolist() == [-1]


def test_new_ids_come_after_the_known_ones():
    more, numbers = Ids(np.array([10, 4])).extended([7, 4, 3, 7])
    assert more.values.tolist() == [10, 4, 3, 7]
    assert numbers.tolist() == [3, 1, 2, 3]
    mixed, numbers = Ids(np.array(["a"])).extended(["a", "longer"])
    assert mixed.values.tolist() == ["a", "longer"]
    assert mixed.find(["longer"]).tolist() == [1]
    large, _ = Ids(np.array([10, 4])).extended([2**63])
    assert large.values.tolist() == [10, 4, 2**63]
    assert Ids(np.array([10, 4])).extended(["x"])[0].values.tolist() == [10, 4, "x"]
    assert Ids(np.array([], np.int64)).extended(["x"])[0].values.tolist() == ["x"]


@pytest.mark.parametrize(
    "values", [[3, -5, 2**62], ["", "a", "ü€", "a b"], [], np.array([3, 2**63 - 1], np.uint64)], ids=str
)
def test_ids_survive_a_file(values):
    known = Ids(np.array(values, dtype=None if len(values) else np.int64))
    assert Ids.from_state_dict(known.state_dict()).values.tolist() == known.values.tolist()


def test_ids_that_no_file_can_hold_are_refused():
    known, _ = Ids.of(np.array([(1, 2), None], dtype=object)[:1].repeat(2))
    with pytest.raises(DataError, match="integers below 2\\*\\*63 or text, got tuple"):
        known.state_dict()
    known, _ = Ids.of([1, 2**63])
    with pytest.raises(
        DataError, match="integers below 2\\*\\*63 or text, got 9223372036854775808: convert ids to text"
    ):
        known.state_dict()


def test_duplicate_pairs():
    pairs = (["u", "u", "v", "u"], [1, 2, 1, 1], [1.0, 5.0, 2.0, 3.0])
    with pytest.raises(DataError, match="user u rates item 1 more than once: pass duplicates='last'"):
        RatingTable.of(*pairs)
    last = RatingTable.of(*pairs, duplicates="last")
    assert sorted(zip(last.users.tolist(), last.items.tolist(), last.values.tolist(), strict=True)) == [
        (0, 0, 3.0), (0, 1, 5.0), (1, 0, 2.0),
    ]  # fmt: skip
    by_time = RatingTable.of(*pairs, [9, 0, 0, 1], duplicates="last")
    assert by_time.values[by_time.items == 0].tolist() == [1.0, 2.0]
    mean = RatingTable.of(*pairs, duplicates="mean")
    assert sorted(mean.values.tolist()) == [2.0, 2.0, 5.0]
    with pytest.raises(ParameterError, match="duplicates must be"):
        RatingTable.of(*pairs, duplicates="first")
    with pytest.raises(DataError, match="more than once"):
        RatingTable.from_matrix(sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1]))))


def test_entries_that_are_stored_twice():
    X = sparse.coo_array(([1.0, 4.0, 3.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    with pytest.raises(DataError, match="duplicates='last'"):
        open_ratings(X)
    assert open_ratings(X, duplicates="last").values.tolist() == [4, 3]
    assert open_ratings(X, duplicates="mean").values.tolist() == [2.5, 3]


def test_bad_ratings_are_named():
    with pytest.raises(DataError, match="rating number 1 is nan"):
        RatingTable.of([1, 2], [1, 2], [3.0, np.nan])
    with pytest.raises(DataError, match=r"rating number 1 is -1e\+39, beyond the 3\.4e\+38 that float32 holds"):
        RatingTable.of([1, 2], [1, 2], [3.0, -1e39])
    with pytest.raises(DataError, match="same length"):
        RatingTable.of([1, 2], [1, 2], [3.0])
    with pytest.raises(DataError, match="id number 1 is missing"):
        RatingTable.of([1, None], [1, 2], [3.0, 4.0])
    with pytest.raises(DataError, match="sequence of numbers"):
        RatingTable.of([1], [1], ["five"])


def test_ratings_are_opened_from_what_there_is(ratings, X, tmp_path):
    import pandas
    import polars

    users, items, values = ratings
    expected = X.toarray()
    frame = {"movieId": items, "userId": users, "rating": values}
    dense = np.where(expected == 0, np.nan, expected)
    for given_ratings in (
        X, X.tocoo(), sparse.csc_matrix(X), ratings, RatingTable.of(*ratings), polars.DataFrame(frame),
        pandas.DataFrame(frame), dense,
    ):  # fmt: skip
        np.testing.assert_array_equal(open_ratings(given_ratings).as_matrix().toarray(), expected)
    named = pandas.DataFrame({"who": users, "item": items, "rating": values})
    np.testing.assert_array_equal(open_ratings(named, columns={"user": "who"}).as_matrix().toarray(), expected)
    with pytest.raises(DataError, match="no column is recognized as user among who, item, rating"):
        open_ratings(named)
    with pytest.raises(DataError, match="no column 'nobody' for user"):
        open_ratings(named, columns={"user": "nobody"})
    with pytest.raises(DataTypeError, match="got int"):
        open_ratings(3)


@pytest.mark.parametrize(
    ("header", "columns", "error", "message"),
    [
        ("user,item,rating", {"usr": "user"}, ParameterError, "columns must have the keys user, .*, got 'usr'"),
        ("user,item,rating", {"user": "item"}, DataError, "no column is recognized as item among user, item, rating"),
        ("a,b,c", {"user": "a", "item": "a"}, ParameterError, "column 'a' is named for user and item"),
        ("user,item,user,rating", None, DataError, "several columns are recognized as user: user, user; rename all"),
        ("a,item,a,rating", {"user": "a"}, DataError, "several columns are recognized as user: a, a; rename all"),
        ("user,Item,item,rating", None, DataError, "several columns are recognized as item: Item, item; rename all"),
    ],
)
def test_columns_that_are_not_clear_are_refused(tmp_path, header, columns, error, message):
    import pandas

    frame = pandas.DataFrame([range(header.count(",") + 1)], columns=header.split(","))
    frame.to_csv(tmp_path / "x.csv", index=False)
    for given_ratings in (frame, tmp_path / "x.csv"):
        with pytest.raises(error, match=message):
            open_ratings(given_ratings, columns=columns)


def test_a_column_may_be_named_for_another_role():
    import pandas

    frame = pandas.DataFrame([[1, 2, 3, 4]], columns=["item", "user", "time", "other"])
    turned = open_ratings(frame, columns={"user": "item", "item": "user", "rating": "time"})
    assert (turned.user_ids.values, turned.item_ids.values, turned.values, turned.times) == (1, 2, 3, None)


@pytest.mark.parametrize("dtype", [int, np.float32])
def test_an_array_of_triplets_is_refused(ratings, dtype):
    users, items, values = ratings
    triplets = np.column_stack([users, items, values]).astype(dtype)
    with pytest.raises(DataError, match=r"shape \(2067, 3\) looks like rows \(user, item, rating\).*pass the tuple"):
        open_ratings(triplets)
    assert open_ratings(tuple(triplets.T)).shape == (120, 60)


@pytest.mark.parametrize("change", ["", "time", "repeated", "no rating", "nine", "one", "halves"])
def test_an_array_of_triplets_is_refused_whatever_its_rows(change):
    random = np.random.default_rng(0)
    pairs = random.permutation(900 * 1600)[:5000]
    triplets = np.column_stack([pairs // 1600, pairs % 1600, random.integers(1, 6, 5000)]).astype(float)
    if change == "time":
        triplets = np.column_stack([triplets, random.integers(8e8, 9e8, 5000)])
    if change == "repeated":
        triplets[100:200] = triplets[:100]
    if change == "no rating":
        triplets[7, 2] = np.nan
    if change == "halves":
        triplets[:, 0] //= 30
        triplets[:, 2] *= 1000.5
    triplets = triplets[: {"nine": 9, "one": 1}.get(change)]
    with pytest.raises(DataError, match=r"looks like rows \(user, item, rating.*tuple\(X\.T\)"):
        open_ratings(triplets)


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[1, 1, 1.5], [1, 2, 3], [2, 1, 2.5]]),
        np.array([[1, 30, 3], [2, 40, 5], [3, 50, 1]]),
        np.column_stack([np.arange(10), np.arange(10)[::-1], np.resize([1, 5, 3], 10)]),
    ],
)
def test_a_few_rows_that_may_be_triplets_give_a_warning(rows):
    with pytest.warns(FitWarning, match=r"if its rows are \(user, item, rating\), pass the tuple of its columns"):
        assert open_ratings(rows).shape == rows.shape


@pytest.mark.parametrize("missing", [0, np.nan])
@pytest.mark.parametrize("n_items", [3, 4])
def test_small_dense_ratings_are_accepted(missing, n_items):
    random = np.random.default_rng(0)
    for n_users in (1, 5, 9, 30, 300):
        stars = random.integers(1, 6, (n_users, n_items)).astype(float)
        stars[0, 2] = 5
        assert open_ratings(stars).shape == stars.shape
        stars[random.random(stars.shape) < 0.3] = missing
        stars[0, 2] = 5
        assert open_ratings(stars).shape == stars.shape
    tutorial = np.array([[5, 3, 0, 1], [4, 0, 0, 1], [1, 1, 0, 5], [1, 0, 0, 4], [0, 1, 5, 4]])
    assert len(open_ratings(tutorial)) == 20


@pytest.mark.parametrize("dtype", [object, str, complex, "datetime64[s]"])
def test_dense_ratings_that_are_not_numbers_are_refused(dtype):
    with pytest.raises(DataError, match="a dense array of ratings must hold numbers, got"):
        open_ratings(np.ones((3, 5)).astype(int).astype(dtype))
    assert open_ratings(np.ones((3, 5), np.float16)).values.tolist() == [1.0] * 15


def test_matrices_with_three_items_are_accepted(ratings):
    stars = np.random.default_rng(0).integers(1, 6, (200, 3)).astype(float)
    assert open_ratings(stars).shape == (200, 3)
    assert open_ratings(sparse.coo_array(np.arange(1, 61).reshape(20, 3))).shape == (20, 3)
    assert open_ratings(np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 4.0]])).shape == (2, 3)
    assert open_ratings(np.column_stack([ratings[0], ratings[1], np.full(2067, np.nan)])).shape == (2067, 3)


def test_long_ids_are_refused():
    with pytest.raises(DataError, match="id number 1 has 1,001 characters, at most 1,000 are allowed: 'xxx"):
        RatingTable.of(["a", "x" * 1001], [1, 2], [3.0, 4.0])


def test_zeros_that_are_stored_are_ratings():
    matrix = sparse.coo_array(([0.0, 2.0], ([0, 1], [1, 0])), shape=(3, 2))
    table = RatingTable.from_matrix(matrix)
    assert len(table) == 2
    assert table.shape == (3, 2)


def test_a_matrix_that_claims_more_users_than_fit_in_memory_is_refused(monkeypatch):
    matrix = sparse.coo_array(([5.0], ([0], [1])), shape=(10**7, 3))
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", str(10**8))
    with pytest.raises(DataError, match=r"the matrix of ratings would take at least 400,000,120 bytes of memory"):
        RatingTable.from_matrix(matrix)
