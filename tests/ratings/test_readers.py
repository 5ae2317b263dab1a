"""Files of ratings."""

import io
import os
import re
import zipfile
from dataclasses import astuple

import numpy as np
import pytest
from scipy import sparse

from terafactor.errors import DataError, ParameterError
from terafactor.ratings import read_ratings
from terafactor.ratings.readers import read_netflix, read_titles
from terafactor.ratings.readers import text as text_reader
from terafactor.ratings.readers.netflix import split_probe
from terafactor.ratings.readers.text import COMMA, survey

ROWS = [(1, 10, 5.0, 100), (1, 20, 3.5, 101), (7, 10, 1.0, 99), (3, 30, 4.0, 50)]


TWO_LINES = 'user,item,rating\n"1\n",2,3\n1,3\n'


def text(separator, header=None, rows=ROWS):
    lines = [separator.join(map(str, row)) for row in rows]
    return "\n".join(([header] if header else []) + lines) + "\n"


def content(table):
    times = [None] * len(table) if table.times is None else table.times.tolist()
    users, items = table.user_ids.values[table.users].tolist(), table.item_ids.values[table.items].tolist()
    return sorted(zip(users, items, table.values.tolist(), times, strict=True))


TEXTS = [
    ("ratings.dat", text("::")),
    ("u.data", text("\t")),
    ("ratings.csv", text(",", "userId,movieId,rating,timestamp")),
    ("ratings.csv", "\ufeff" + text(",", "userId,movieId,rating,timestamp").replace("\n", "\r\n")),
    ("ml.inter", text("\t", "user_id:token\titem_id:token\trating:float\ttimestamp:float")),
    ("x.tsv", text("\t", "item\tuser\trating\ttime", [(i, u, r, t) for u, i, r, t in ROWS])),
    ("x.csv", text(",", "title,user,item,rating,time", [('"a, b"', *row) for row in ROWS])),
]


@pytest.mark.parametrize(("name", "written"), TEXTS)
def test_text_files(tmp_path, name, written):
    (tmp_path / name).write_text(written, newline="")
    assert content(read_ratings(tmp_path / name)) == sorted(ROWS)


@pytest.mark.parametrize("blank", ["", "  ", "\t"], ids=repr)
@pytest.mark.parametrize("place", [0, 1, 3, 5, None])
@pytest.mark.parametrize(("name", "written"), TEXTS)
def test_blank_lines_are_skipped(tmp_path, name, written, place, blank):
    end = "\r\n" if "\r" in written else "\n"
    lines = written.splitlines()
    lines.insert(len(lines) if place is None else place, blank)
    (tmp_path / name).write_text(end.join([*lines, blank, blank]), newline="")
    assert content(read_ratings(tmp_path / name)) == sorted(ROWS)


def test_text_files_without_times_and_with_ids_that_are_text(tmp_path):
    path = tmp_path / "ratings.dat"
    path.write_text(text("::", rows=[row[:3] for row in ROWS]))
    assert content(read_ratings(path)) == sorted((*row[:3], None) for row in ROWS)
    path = tmp_path / "x.csv"
    path.write_text("user,item,rating\n1,a,3\nx2,b,4\n")
    assert content(read_ratings(path)) == [("1", "a", 3.0, None), ("x2", "b", 4.0, None)]


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        ("user, item, rating\nann, apple pie, 3\nbob, beer , 4\n", ["apple pie", "beer"]),
        ('user,item,rating\nann,"12"" pipe, long",3\nbob,beer,4\n', ['12" pipe, long', "beer"]),
        ('user,item,rating\nann,12" pipe,3\nbob,beer,4\n', ['12" pipe', "beer"]),
        ('user\titem\trating\nann\t"Weird Al\t3\nbob\tbeer\t4\ncid\t"q\t4\n', ['"Weird Al', '"q', "beer"]),
    ],
    ids=["space", "enclosed", "bare quote", "open quotes"],
)
def test_white_space_and_quotes_around_ids(tmp_path, written, ids):
    path = tmp_path / "ratings.csv"
    path.write_text(written)
    assert sorted({row[1] for row in content(read_ratings(path))}) == ids


HEADER = "user,item,rating,title\n"
SOME = "".join(f'{user},"item {user}",3,"a, b"\n' for user in range(100))


@pytest.mark.parametrize(
    ("written", "last"),
    [
        ("".join(f'{n},"5\\" disc {n}",3,"a"\n' for n in range(200)), '5" disc 99'),
        ("".join(f'{n},"a \\"b\\" {n}",3,"a"\n' for n in range(200)), 'a "b" 99'),
        ("".join(f'{n},"a \\"b, c\\" {n}",3,"a"\n' for n in range(200)), 'a "b, c" 99'),
        ("".join(f'{n},item {n},3,"5\\" disc, {n}"\n' for n in range(200)), "item 99"),
        ("".join(f'{n},item {n},3,5" disc {n}\n' for n in range(200)), "item 99"),
        ("".join(f'{n},"z\\\\ \\" {n}",3,"a"\n' for n in range(200)), 'z\\ " 99'),
        ("".join(f'{n},"C:\\",3,"{n}"\n' for n in range(200)), "C:\\"),
        ("".join(f'{n},"item ""{n}""\n",3,"a\n\nb"\n' for n in range(200)), 'item "99"'),
        (SOME + '100,"5\\" disc",3,"a"\n' + "".join(f"{n},item {n},3,a\n" for n in range(101, 200)), "item 99"),
        (SOME + '100,"5\\" disc",3,"a"\n' + SOME.replace("item", "thing") + '100,"6\\" disc",3,"a"\n', "thing 99"),
    ],
)
def test_quotes_never_lose_a_line(tmp_path, written, last):
    (tmp_path / "x.csv").write_text(HEADER + written)
    table = read_ratings(tmp_path / "x.csv")
    assert len(table) == written.count(",3,")
    assert last in table.item_ids.values


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (SOME + '100,"5" disc",3,"a"\n' + SOME.replace("item", "other"), 102),
        (SOME + '100,"5\\" disc,3,a\n' + SOME.replace("item", "other"), 102),
        (SOME + f"100,{'x' * 1001},3,a\n", 102),
        (SOME + f"100,{'x' * 200_000},3,a\n", 102),
        (SOME.replace("\n", "\n" * 2) + '100,"5" disc",3,"a"\n', 202),
    ],
)
def test_lines_with_invalid_fields_are_named(tmp_path, written, line):
    (tmp_path / "x.csv").write_text(HEADER + written)
    with pytest.raises(DataError, match=rf"x\.csv, line {line}"):
        read_ratings(tmp_path / "x.csv")


@pytest.mark.parametrize("n_lines", [100, 20_000])
def test_a_quote_that_encloses_many_lines_is_named(tmp_path, n_lines):
    lines = [f"{user},item {user},3,a\n" for user in range(n_lines)]
    (tmp_path / "x.csv").write_text(HEADER + '1,"a,3,x\n' + "".join(lines) + '2,b",3,x\n' + "".join(lines[2:]))
    with pytest.raises(DataError, match=rf"x\.csv, line {2 if n_lines > 1000 else n_lines + 3}"):
        read_ratings(tmp_path / "x.csv")


def test_a_quote_among_enclosed_fields_is_named(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text('user,item,rating\nann,"a",3\nbob,12" pipe,4\n')
    with pytest.raises(DataError, match="line 3 has a quote that is not closed"):
        read_ratings(path)


@pytest.mark.parametrize("record", ['1,2,"1,234"', '1,"a\nb",x'])
def test_a_bad_line_is_shown_as_it_is_written(tmp_path, record):
    path = tmp_path / "ratings.csv"
    path.write_text(f'user,item,rating\n1,"a",3\n\n{record}\n1,b,4\n')
    number = 4 + record.count("\n")
    with pytest.raises(
        DataError, match=rf"line {number}: the rating is not a finite number: {re.escape(repr(record))}$"
    ):
        read_ratings(path)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_the_header_shows_the_separator(tmp_path, name, separator):
    header = separator.join(["userId", "movieId", "rating", "timestamp"])
    (tmp_path / name).write_text(text(separator, header))
    assert content(read_ratings(tmp_path / name)) == sorted(ROWS)
    (tmp_path / name).write_text(text(separator, header.replace("rating", '"rating"')) + f"1{separator}2{separator}x")
    with pytest.raises(DataError, match="line 6: 3 fields instead of at least 4"):
        read_ratings(tmp_path / name)


def test_times_may_be_dates(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("user,item,rating,date\n1,10,5,2020-01-02\n1,10,3,2020-01-01T23:00:00\n2,10,4,2020-01-03\n")
    assert read_ratings(path, duplicates="last").values.tolist() == [5, 4]
    path.write_text("user,item,rating,date\n1,10,5,2020-01-02\n2,10,4,yesterday\n")
    with pytest.raises(DataError, match="line 3: the time is not a date like 2020-01-31"):
        read_ratings(path)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("x.csv", "user,item,rating,date\n1,10,5,31/01/2020\n2,10,4,\n"),
        ("x.csv", "user,item,rating,date\n1,10,5,2020-01-31\n2,10,4,yesterday\n"),
        ("u.data", "1\t10\t5\t31/01/2020\n2\t10\t4\tyesterday\n"),
    ],
)
def test_times_may_be_ignored(tmp_path, name, written):
    (tmp_path / name).write_text(written)
    with pytest.raises(
        DataError, match=r"the time is .*\(pass columns={'time': ''}, on the command line --column time=,"
    ):
        read_ratings(tmp_path / name)
    table = read_ratings(tmp_path / name, columns={"time": ""})
    assert content(table) == [(1, 10, 5.0, None), (2, 10, 4.0, None)]


def test_a_missing_header_is_reported(tmp_path):
    (tmp_path / "x.csv").write_text("1,10,5\n2,10,4\n")
    with pytest.raises(DataError, match="A file without a header needs one"):
        read_ratings(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("My ID,item,rating\n1,10,5\n")
    with pytest.raises(DataError, match="--column 'user=My ID'"):
        read_ratings(tmp_path / "x.csv")


def test_another_encoding_is_named(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes("user,item,rating\n1,Heat,3\n1,Amélie,4\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"x\.csv, line 3 is not UTF-8: b'1,Am\\xe9lie,4\\n'; convert the file"):
        read_ratings(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("read", [read_ratings, read_titles])
def test_utf_16_is_named(tmp_path, read, encoding):
    path = tmp_path / "x.csv"
    path.write_text("user,item,rating,title\n1,Heat,3,Heat\n", encoding=encoding)
    with pytest.raises(DataError, match=r"x\.csv seems to be UTF-16, and text must be UTF-8: .* iconv -f utf-16"):
        read(path)


def test_ids_with_leading_zeros_are_text(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("user,item,rating\n7,10,3\n007,10,4\n")
    assert content(read_ratings(path)) == [("007", 10, 4.0, None), ("7", 10, 3.0, None)]
    path = tmp_path / "ratings.dat"
    path.write_text("7::10::3\n7::+10::4\n0::-0::4\n")
    assert content(read_ratings(path)) == [(0, "-0", 4.0, None), (7, "+10", 4.0, None), (7, "10", 3.0, None)]


@pytest.mark.parametrize("padded", ["007", "+7", "-0", "-07", '"007"', " 007", '"-0"'])
@pytest.mark.parametrize("place", [0, 5000, 149_990, None])
def test_ids_with_leading_zeros_anywhere_are_text(tmp_path, padded, place):
    lines = [f"{user},7,3\n" for user in range(150_000)]
    lines.insert(len(lines) if place is None else place, f"{padded},7,3\n")
    (tmp_path / "x.csv").write_text("user,item,rating\n" + "".join(lines))
    table = read_ratings(tmp_path / "x.csv")
    assert set(table.user_ids.values) == {*map(str, range(150_000)), padded.strip('" ')}
    assert table.item_ids.values.tolist() == [7]


@pytest.mark.parametrize("line", ["7,8,03,0,-0", "7,8,3,+7,007", "7,8,3,2020-01-02 00:00:01,a 007", "7,8,-0.5,1,-0"])
def test_other_fields_may_have_leading_zeros(tmp_path, line):
    (tmp_path / "x.csv").write_text(f"user,item,rating,when,title\n{line}\n8,7,3,0,a\n")
    table = read_ratings(tmp_path / "x.csv")
    assert (table.user_ids.values.tolist(), table.item_ids.values.tolist()) == ([7, 8], [7, 8])


def test_ids_of_users_may_be_integers_if_those_of_items_are_text(tmp_path):
    (tmp_path / "x.csv").write_text("user,item,rating\n1,a,3\n2,7,4\n")
    assert content(read_ratings(tmp_path / "x.csv")) == [(1, "a", 3.0, None), (2, "7", 4.0, None)]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 2**20])
@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("u,i\n10,20\n", (2, False, False, False)),
        ("u,i\r\n10,20\r\n", (2, False, False, False)),
        ("u,i\n10,20\r", (2, False, True, False)),
        ("u,i\r10,20", (1, False, True, False)),
        ('u,i\n10,"2\\"0"', (2, True, False, False)),
        ("u,i\n10,020", (2, False, False, True)),
        ("u,i\n-0,0\n", (2, False, False, True)),
        ('u,i\n"-01",0\n', (2, False, False, True)),
        ("u,i\n10, +2", (2, False, False, True)),
        ("u,i\n2020-01-02,a0+1\n", (2, False, False, False)),
        ("u,i\n0,0.5\n100,-1\n0.25,0\n", (4, False, False, False)),
        ("", (0, False, False, False)),
    ],
)
def test_a_survey_does_not_depend_on_its_chunks(monkeypatch, chunk, written, found):
    monkeypatch.setattr(text_reader, "CHUNK", chunk)
    assert astuple(survey(written.encode(), COMMA)) == found


@pytest.mark.parametrize(
    ("name", "written", "line"),
    [
        ("x.csv", "user,item,rating\ru1,i1,3\ru2,i2,4\nu3,i3,5\nu4,i4,1\n", 1),
        ("x.csv", "user,item,rating\r1,1,3\r2,2,4\r", 1),
        ("x.csv", "user,item,rating\nu1,i1,3\ru2,i2,4\nu3,i3,5\n", 2),
        ("x.csv", 'user,item,rating\n1,"a\rb",3\n2,b,4\r3,c,4\n', 3),
        ("x.csv", "user,item,rating\r\n1,1,3\r\n\n2,2,4\r3,3,4\r\n", 4),
        ("x.csv", 'user,item,rating\n1,12" pipe,3\n2,a\rb,4\n', 3),
        ("x.dat", "1::2::3\r2::3::4\r", 1),
        ("x.data", "1\t2\t3\n3\t3\t3\r2\t3\t4\r", 2),
    ],
)
def test_a_carriage_return_that_ends_a_line_is_named(tmp_path, name, written, line):
    (tmp_path / name).write_bytes(written.encode())
    problem = f"{name}, line {line} has a carriage return that is not followed by a line feed"
    with pytest.raises(DataError, match=problem):
        read_ratings(tmp_path / name)


def test_a_carriage_return_in_quotes_is_part_of_an_id(tmp_path):
    (tmp_path / "x.csv").write_bytes(b'user,item,rating\n1,"a\rb",3\n2,b,4\n')
    assert content(read_ratings(tmp_path / "x.csv")) == [(1, "a\rb", 3.0, None), (2, "b", 4.0, None)]


@pytest.mark.parametrize(
    ("name", "bad", "line", "problem"),
    [
        ("ratings.dat", "1::20::five::3", 3, "the rating is not a finite number: '1::20::five::3'"),
        ("ratings.dat", "1::20::5", 3, "3 fields instead of at least 4"),
        ("u.data", "\t20\t5\t3", 3, "the user is empty"),
        ("u.data", "2\t20\tnan\t3", 3, "the rating is not a finite number"),
        ("u.data", "2\t20\t3\t3\t3\t3", 3, "6 fields, but the first line has 4"),
        ("ratings.csv", "2,20,inf,3", 4, "the rating is not a finite number"),
        ("ratings.csv", "2,20,1e39,3", 4, r"the rating is beyond the 3.4e\+38 that float32 holds"),
        ("ratings.csv", "2,20,,3", 4, "the rating is empty"),
        ("ratings.csv", "garbage", 4, "1 fields instead of at least 4"),
        ("ratings.csv", "2,20,1_0,3", 4, "the rating is not a finite number"),
        ("ratings.csv", "2,20,\u0663,3", 4, "the rating is not a finite number"),
        ("ratings.csv", "2,20,4 ,3", 4, "the rating is not a finite number"),
        ("u.data", "2\t20\t3\t1_0", 3, "the time is not a finite number"),
        ("ratings.dat", "5:6::1::3::4", 3, "a field contains ':', and '::' separates fields: '5:6::1::3::4'"),
    ],
)
def test_the_first_bad_line_is_named(tmp_path, name, bad, line, problem):
    separator = {"ratings.dat": "::", "u.data": "\t", "ratings.csv": ","}[name]
    header = "userId,movieId,rating,timestamp" if name.endswith("csv") else None
    lines = text(separator, header).splitlines()
    lines.insert(line - 1, bad)
    (tmp_path / name).write_text("\n".join([*lines, bad]) + "\n")
    with pytest.raises(DataError, match=f"{name}, line {line}: {problem}"):
        read_ratings(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "written"),
    [("ratings.dat", "\n1::2::3\n \n1::3\n"), ("x.csv", "\nuser,item,rating\n1,2,3\n1,3\n"), ("x.csv", TWO_LINES)],
)
def test_blank_lines_count_in_the_number_of_a_bad_one(tmp_path, name, written):
    (tmp_path / name).write_text(written)
    with pytest.raises(DataError, match=f"{name}, line 4: 2 fields instead of at least 3"):
        read_ratings(tmp_path / name)


def test_arrays_parquet_and_folders(tmp_path):
    import polars

    users, items, ratings, times = zip(*ROWS, strict=True)
    frame = polars.DataFrame({"user_id": users, "movie_id": items, "score": ratings, "time": times})
    frame.write_parquet(tmp_path / "x.parquet")
    assert content(read_ratings(tmp_path / "x.parquet")) == sorted(ROWS)
    np.savez(tmp_path / "x.npz", user=users, item=items, rating=ratings, timestamp=times)
    assert content(read_ratings(tmp_path / "x.npz")) == sorted(ROWS)
    sparse.save_npz(tmp_path / "matrix.npz", sparse.coo_array((ratings, (users, items))))
    assert content(read_ratings(tmp_path / "matrix.npz")) == sorted((*row[:3], None) for row in ROWS)
    folder = tmp_path / "ml"
    folder.mkdir()
    (folder / "ratings.csv").write_text(text(",", "userId,movieId,rating,timestamp"))
    assert content(read_ratings(folder)) == sorted(ROWS)
    holes = frame.with_columns(score=polars.Series([1.0, None, 2.0, 3.0]))
    holes.write_parquet(tmp_path / "holes.parquet")
    with pytest.raises(DataError, match="row 1: column score has no value"):
        read_ratings(tmp_path / "holes.parquet")


def test_ids_of_parquet_files_that_are_lists_are_refused(tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"user": [[1], [2]], "item": [1, 2], "rating": [1, 2]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet: id number 0 is '\[1\]' of type ndarray: ids must be hashable"):
        read_ratings(tmp_path / "x.parquet")


def test_roles_of_files_without_a_header_are_checked(tmp_path):
    (tmp_path / "x.dat").write_text("1::2::3\n")
    with pytest.raises(ParameterError, match="got 'usr'"):
        read_ratings(tmp_path / "x.dat", columns={"usr": "user"})


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.csv does not exist"):
        read_ratings(tmp_path / "nothing.csv")
    (tmp_path / "x.pdf").write_text("")
    with pytest.raises(DataError, match=r"x\.pdf is not a rating file: the suffix must be \.dat, \.data, \.csv"):
        read_ratings(tmp_path / "x.pdf")
    (tmp_path / "x.npz").write_text("not a zip")
    with pytest.raises(DataError, match="cannot be read as arrays"):
        read_ratings(tmp_path / "x.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has none of"):
        read_ratings(tmp_path / "empty")
    (tmp_path / "x.csv").write_text("")
    with pytest.raises(DataError, match=r"x\.csv is empty"):
        read_ratings(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column is recognized as user among a, b"):
        read_ratings(tmp_path / "x.csv")


def test_ratings_given_twice(tmp_path):
    path = tmp_path / "u.data"
    path.write_text(text("\t", rows=[*ROWS, (1, 20, 1.5, 300)]))
    with pytest.raises(DataError, match="user 1 rates item 20 more than once"):
        read_ratings(path)
    assert (1, 20, 1.5, 300) in content(read_ratings(path, duplicates="last"))
    assert 2.5 in [row[2] for row in content(read_ratings(path, duplicates="mean"))]


NETFLIX = {"combined_data_1.txt": "1:\n30,3,2005-09-06\n7,5,2005-05-13\n2:\n30,4,2005-12-26\n",
           "combined_data_2.txt": "9:\n8,1,1970-01-03\n"}  # fmt: skip


def test_the_netflix_prize(tmp_path):
    for name, written in NETFLIX.items():
        (tmp_path / name).write_text(written)
    table = read_netflix(tmp_path)
    assert content(table) == [(7, 1, 5.0, 12916), (8, 9, 1.0, 2), (30, 1, 3.0, 13032), (30, 2, 4.0, 13143)]
    assert content(read_ratings(tmp_path)) == content(table)
    with pytest.raises(DataError, match=r"has no probe\.txt"):
        split_probe(table, tmp_path)
    (tmp_path / "probe.txt").write_text("1:\n7\n9:\n8\n")
    known, probe = split_probe(table, tmp_path)
    assert [row[:2] for row in content(probe)] == [(7, 1), (8, 9)]
    assert [row[:2] for row in content(known)] == [(30, 1), (30, 2)]
    (tmp_path / "probe.txt").write_text("1:\n99\n")
    with pytest.raises(DataError, match="lists customers or movies without a rating"):
        split_probe(table, tmp_path)


@pytest.mark.parametrize("blank", ["", " "], ids=repr)
def test_blank_lines_of_the_netflix_prize_are_skipped(tmp_path, blank):
    for name, written in NETFLIX.items():
        (tmp_path / name).write_text(f"{blank}\n" + written.replace("2:\n", f"2:\n{blank}\n") + f"{blank}\n{blank}")
    table = read_netflix(tmp_path)
    assert content(table) == [(7, 1, 5.0, 12916), (8, 9, 1.0, 2), (30, 1, 3.0, 13032), (30, 2, 4.0, 13143)]
    (tmp_path / "probe.txt").write_text(f"1:\n{blank}\n7\n{blank}\n")
    assert [row[:2] for row in content(split_probe(table, tmp_path)[1])] == [(7, 1)]


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("30,3,2005-09-06\n", 1),
        ("1:\n30,3,2005-09-06\n30,x,2005-09-06\n", 3),
        ("1:\n30\n", 2),
        ("1:\n\n \n30\n", 4),
    ],
)
def test_a_bad_line_of_the_netflix_prize_is_named(tmp_path, written, line):
    folder = tmp_path / "training_set"
    folder.mkdir()
    (folder / "mv_0000001.txt").write_text(written)
    with pytest.raises(DataError, match=rf"mv_0000001\.txt, line {line} is neither"):
        read_netflix(tmp_path)


def test_titles(tmp_path):
    (tmp_path / "movies.csv").write_text('movieId,title,genres\n1,"Dune, part two",Sci-Fi\n')
    assert read_titles(tmp_path / "movies.csv")["1"] == "Dune, part two"
    (tmp_path / "movies.dat").write_bytes("1::Amélie::Comedy\n".encode("latin-1"))
    assert read_titles(tmp_path / "movies.dat") == {"1": "Amélie"}
    for name, separator in (("x.csv", ","), ("x.dat", "::")):
        (tmp_path / name).write_text(f"\n1{separator}Dune\n \n2{separator}Heat\n\n")
        assert read_titles(tmp_path / name) == {"1": "Dune", "2": "Heat"}
    (tmp_path / "items.tsv").write_text("\n1\n")
    with pytest.raises(DataError, match="line 2: an id and a title are needed"):
        read_titles(tmp_path / "items.tsv")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("links.csv", "tmdbId,movieId,title\n8,1,Dune\n1,2,Heat\n"),
        ("years.csv", "\ufeff\nmovieId,year,title\n1,1999,Dune\n2,1999,Heat\n"),
        ("turned.csv", "title,movieId\nDune,1\nHeat,2\n"),
        ("other.csv", "Name;ID\nDune;1\nHeat;2\n"),
        ("ml.item", "item_id:token\tmovie_title:token_seq\n1\tDune\n2\tHeat\n"),
        ("u.item", "1|Dune|01-Jan-1995||\n2|Heat|01-Jan-1995||\n"),
        ("movies.dat", "1::Dune::Drama\n2::Heat::Drama\n"),
    ],
)
def test_titles_are_found_by_the_names_of_columns(tmp_path, name, written):
    (tmp_path / name).write_text(written)
    assert read_titles(tmp_path / name) == {"1": "Dune", "2": "Heat"}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("movieId,year\n1,1999\n", "no column is recognized as title among movieId, year: rename it to title"),
        (
            "1,2003,Dune\n",
            "no column is recognized as item among 1, 2003, Dune: rename it to item. A file without a header",
        ),
        ("movieId,title\n", "has no titles"),
        ("", "has no titles"),
    ],
)
def test_a_file_without_titles_is_refused(tmp_path, written, problem):
    (tmp_path / "movies.csv").write_text(written)
    with pytest.raises(DataError, match=problem):
        read_titles(tmp_path / "movies.csv")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_name_with_brackets_is_not_a_pattern(tmp_path, suffix):
    polars = pytest.importorskip("polars")
    for name, rating in (("t1", 1.0), ("t[1]", 5.0)):
        frame = polars.DataFrame({"user": [1, 2], "item": [3, 4], "rating": [rating, rating]})
        getattr(frame, f"write_{suffix}")(tmp_path / f"{name}.{suffix}")
    assert set(read_ratings(tmp_path / f"t[1].{suffix}").values.tolist()) == {5.0}
    other = polars.DataFrame({"a": [1, 2]})
    getattr(other, f"write_{suffix}")(tmp_path / f"t1.{suffix}")
    assert set(read_ratings(tmp_path / f"t[1].{suffix}").values.tolist()) == {5.0}
    (tmp_path / f"t1.{suffix}").unlink()
    assert set(read_ratings(tmp_path / f"t[1].{suffix}").values.tolist()) == {5.0}


MATRIX = sparse.csr_array(([1.0, 2.0, 3.0, 4.0], ([0, 0, 1, 2], [0, 1, 1, 0])), shape=(3, 2))
STORED = {
    "indices": MATRIX.indices, "indptr": MATRIX.indptr, "data": MATRIX.data, "format": b"csr", "shape": (3, 2)
}  # fmt: skip
ENTRIES = {"row": [0, 1], "col": [0, 1], "data": [1.0, 2.0], "format": b"coo", "shape": (3, 2)}
ARRAYS = {"user": [1, 2], "item": [1, 2], "rating": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("stored", "changes", "problem"),
    [
        (STORED, {"indices": [0, 1, -1, 0]}, "index -1 at position 2"),
        (STORED, {"indices": [0, 1, 10**9, 0]}, "index 1000000000 at position 2"),
        (STORED, {"indices": [0, 1.5, 1, 0]}, "indices.npy holds float64"),
        (STORED, {"indptr": [0, 2, 1, 4]}, "indptr must ascend"),
        (STORED, {"indptr": [0, 2, 10**6, 4]}, "indptr must ascend"),
        (STORED, {"indptr": [0, -2, 3, 4]}, "indptr must ascend"),
        (STORED, {"indptr": [1, 2, 3, 4]}, "index pointer should start with 0"),
        (STORED, {"indptr": [0, 2, 4]}, "index pointer size 3 should be 4"),
        (STORED, {"indptr": [0, 2, 3, 90]}, "should be less than"),
        (STORED, {"data": [1.0]}, "should have the same size"),
        (STORED, {"shape": None}, "shape is not a file in the archive"),
        (STORED, {"shape": (2**45, 2)}, "index pointer size 4"),
        (STORED, {"format": 3}, "cannot be read as arrays"),
        (STORED, {"format": b"xyz"}, "Unknown format"),
        (ENTRIES, {"row": [0, -1]}, "negative axis 0 index"),
        (ENTRIES, {"col": [0, 7]}, "exceeds matrix dimension 2"),
        (ENTRIES, {"shape": (2**45, 2)}, "at most 2,147,483,647 users and items"),
        (ARRAYS, {"user": [1]}, "must have the same length"),
        (ARRAYS, {"user": [[1, 2]]}, "ids must be a sequence"),
        (ARRAYS, {"user": np.array([1, None], object)}, "holds Python objects, which are never unpickled"),
        (ARRAYS, {"rating": [1.0, np.nan]}, "rating number 1 is nan"),
        (ARRAYS, {"rating": None}, "no column is recognized as rating"),
        ({}, {}, "the table has no columns"),
    ],
)
def test_damaged_arrays_are_refused_by_name(tmp_path, stored, changes, problem):
    np.savez(tmp_path / "x.npz", **{name: value for name, value in (stored | changes).items() if value is not None})
    with pytest.raises(DataError, match=rf"x\.npz.*{re.escape(problem)}"):
        read_ratings(tmp_path / "x.npz")


def test_archives_that_are_damaged_or_claim_too_much_are_refused_by_name(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **ARRAYS)
    content = bytearray(path.read_bytes())
    for damaged in (content[:-40], content[:200] + b"\0\0\0" + content[203:], b""):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"x\.npz cannot be read as arrays"):
            read_ratings(path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (3 * 10**12,)})
    with zipfile.ZipFile(path, "w") as archive:
        for name in ARRAYS:
            archive.writestr(f"{name}.npy", header.getvalue())
    with pytest.raises(DataError, match=r"user.npy in .*x\.npz claims 24000000000000 bytes of numbers, but has 0"):
        read_ratings(path)


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_files_that_expand_beyond_the_limit_are_refused(tmp_path, monkeypatch, suffix):
    path, n_ratings = tmp_path / f"x.{suffix}", 10**6
    zeros = {"user": np.zeros(n_ratings, int), "item": np.arange(n_ratings) // 2**10, "rating": np.ones(n_ratings)}
    if suffix == "npz":
        np.savez_compressed(path, **zeros)
    else:
        polars = pytest.importorskip("polars")
        polars.DataFrame(zeros).write_parquet(path)
    assert path.stat().st_size < 10**6
    monkeypatch.setenv("TERAFACTOR_MAX_BYTES", str(10**7))
    with pytest.raises(DataError, match=rf"x\.{suffix} would take at least 24,\d{{3}},\d{{3}} bytes of memory"):
        read_ratings(path)


@pytest.mark.parametrize("name", ["x.csv", "x.dat", "x.tsv", "x.inter", "x.parquet", "x.npz", "combined_data_1.txt"])
def test_a_named_pipe_is_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=f"{name} is not a regular file, but a pipe"):
        read_ratings(tmp_path if name.startswith("combined") else tmp_path / name)
    with pytest.raises(DataError, match=f"{name} is not a regular file, but a pipe"):
        read_titles(tmp_path / name)


def test_a_title_without_end_is_refused(tmp_path):
    (tmp_path / "titles.csv").write_text('item,title\n1,"' + "x" * 200_000)
    with pytest.raises(DataError, match=r"titles\.csv is not a table of ids and titles .*a quote that is not closed"):
        read_titles(tmp_path / "titles.csv")


@pytest.mark.parametrize("text", ["1" * 300_000 + "x", "1" * 300_000 + "." + "1" * 300_000 + "x"])
def test_long_text_that_begins_as_a_number_is_refused_at_once(tmp_path, text):
    (tmp_path / "ratings.dat").write_text(f"1::2::3::5\n1::3::{text}::5\n")
    with pytest.raises(DataError, match="line 2: the rating is not a finite number"):
        read_ratings(tmp_path / "ratings.dat")
