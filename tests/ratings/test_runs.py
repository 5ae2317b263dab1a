"""Ratings in run directories, and the commands."""

import errno
import json
import logging
import signal
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from terafactor import CheckpointPolicy, MatrixCompletion, RatingTable, load_model, train
from terafactor.cli import main
from terafactor.cli.app import app
from terafactor.errors import DataError, RunInterruptedError
from terafactor.ratings.evaluation.evaluate import evaluate_model
from terafactor.ratings.methods.prior import Prior
from terafactor.ratings.table.holdout import hold_out_ratings
from terafactor.runs import RunDirectory
from terafactor.solver.state_dict import StateDict
from terafactor.training.model_file import restore_estimator

METHODS = [
    {},
    {"alpha": 0.1, "stream": "items"},
    {"statistics": "masked", "codes": "last"},
    {"statistics": "masked", "projection": "exact"},
]


def test_an_amount_to_hold_out_may_be_a_number_of_numpy(X, tmp_path):
    train(MatrixCompletion(3, n_epochs=1), X, tmp_path / "run", holdout=np.int64(20))
    assert RunDirectory(tmp_path / "run").config()["holdout"]["ratings"] == 20


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_held_out_ratings_are_not_recommended(X, tmp_path, parameters):
    train(MatrixCompletion(3, random_state=0, n_epochs=1, **parameters), X, tmp_path / "run", holdout=0.2)
    model = load_model(tmp_path / "run")
    for users, rated in ((model.users_, X.toarray() != 0), ([7, 3], X[[7, 3]].toarray() != 0)):
        for user, items in enumerate(model.recommend(users, n=60)[0]):
            assert set(items[items >= 0]) == set(np.flatnonzero(~rated[user]))
    model.partial_fit(([200], [3], [4.0]))
    assert set(np.flatnonzero(X[[7]].toarray()[0] == 0)) == set(model.recommend([7], n=60)[0][0]) - {-1}


def test_held_out_ratings_can_be_evaluated_and_learned_later(table, tmp_path):
    def model():
        return MatrixCompletion(4, random_state=0)

    held_out = hold_out_ratings(table, 0.2, seed=0)[1]
    run, plain = train(model(), table, tmp_path / "run", holdout=0.2), model().fit(held_out.train)
    assert evaluate_model(run, held_out.test) == evaluate_model(plain, held_out.test)
    assert evaluate_model(run, held_out.train)["recall@10"] is None
    for one in (run, plain):
        one.partial_fit(held_out.test)
    np.testing.assert_array_equal(run.components_, plain.components_)
    np.testing.assert_array_equal(run.user_factors_, plain.user_factors_)
    assert evaluate_model(run, held_out.test)["recall@10"] is None


@pytest.mark.parametrize("parameters", METHODS, ids=str)
def test_a_resumed_run_ends_with_the_same_bits(X, tmp_path, parameters):
    def estimator():
        return MatrixCompletion(3, random_state=0, n_epochs=3, **parameters)

    def interrupt(snapshot):
        if snapshot.step == 17:
            signal.raise_signal(signal.SIGTERM)

    whole = train(estimator(), X, tmp_path / "whole", holdout=0.1)
    policy = CheckpointPolicy(steps=5)
    with pytest.raises(RunInterruptedError):
        train(estimator(), X, tmp_path / "run", holdout=0.1, checkpoints=policy, callbacks=[interrupt])
    resumed = train(estimator(), X, tmp_path / "run", resume=True, holdout=0.1)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.user_factors_, whole.user_factors_)
    assert [line.objective for line in resumed.history_][-1] == whole.history_[-1].objective
    loaded = load_model(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict(X.nonzero()), whole.predict(X.nonzero()))


def test_a_converged_run_that_was_killed_stays_converged(X, tmp_path):
    def converging(name, callbacks=(), **how):
        model = MatrixCompletion(3, random_state=0, n_epochs=50, tol=0.05, callbacks=callbacks)
        return train(model, X, tmp_path / name, checkpoints=CheckpointPolicy(steps=1), **how)

    def die(snapshot):
        if snapshot.step == whole.n_steps_:
            raise KeyboardInterrupt

    whole = converging("whole")
    assert whole.stopped_by_ == "tol"
    with pytest.raises(KeyboardInterrupt):
        converging("run", [die])
    resumed = converging("run", resume=True)
    assert (resumed.n_steps_, resumed.stopped_by_) == (whole.n_steps_, "tol")
    np.testing.assert_array_equal(resumed.components_, whole.components_)


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run a command in an empty folder; return what it leaves with and what it prints."""
    monkeypatch.chdir(tmp_path)

    def run_command(*arguments):
        monkeypatch.setattr("sys.argv", ["terafactor", "ratings", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return run_command


@pytest.fixture
def files(ratings, tmp_path):
    """Write ratings.csv and test.csv, with ids from 1 and 1001 on, and movies.csv."""
    users, items, values = ratings
    is_test = np.random.default_rng(0).random(len(users)) < 0.2
    for name, rows in (("ratings.csv", ~is_test), ("test.csv", is_test)):
        lines = zip(users[rows] + 1, items[rows] + 1001, values[rows], strict=True)
        (tmp_path / name).write_text("userId,movieId,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in lines))
    (tmp_path / "movies.csv").write_text("movieId,title\n" + "".join(f"{i + 1001},Film {i}\n" for i in range(60)))


@pytest.mark.usefixtures("files")
def test_commands_from_ratings_to_recommendations(run, tmp_path):
    import polars

    code, out, err = run("fit", "ratings.csv", "-k", "4", "--out", "run", "--seed", "0", "--holdout", "5%", "--json")
    assert code == 0, err
    assert json.loads(out)["objective"] < 0.8
    code, out, _ = run("evaluate", "run", "test.csv", "-n", "5", "--json")
    facts = json.loads(out)
    assert facts["rmse"] == pytest.approx(-load_model("run").score("test.csv"))
    assert set(facts) == {"ratings", "unknown_users", "unknown_items", "rmse", "mae", "ndcg@5", "recall@5"}
    shown = run("evaluate", "run/model", "test.csv")[1]
    assert "rmse" in shown
    assert "unknown" not in shown
    (tmp_path / "unknown.csv").write_text("user,item,rating\n1,1001,5\nx,1002,4\n")
    shown = run("evaluate", "run/model", "unknown.csv")[1]
    assert "unknown users  1\n" in shown
    assert "unknown items" not in shown

    assert run("predict", "run", "test.csv", "--out", "predicted.csv")[0] == 0
    predicted = polars.read_csv("predicted.csv")
    errors = predicted["prediction"].to_numpy() - predicted["rating"].to_numpy()
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(facts["rmse"])

    (tmp_path / "blank.csv").write_text("\n" + (tmp_path / "test.csv").read_text().replace("\n", "\n\n"))
    assert run("predict", "run", "blank.csv", "--out", "blank-predicted.csv")[0] == 0
    (tmp_path / "utf16.csv").write_text((tmp_path / "test.csv").read_text(), encoding="utf-16")
    assert "seems to be UTF-16" in run("predict", "run", "utf16.csv", "--out", "utf16-predicted.csv")[2]
    assert polars.read_csv("blank-predicted.csv").equals(predicted)

    code, out, _ = run("recommend", "run", "--user", "42", "-n", "3", "--titles", "movies.csv")
    items, _ = load_model("run").recommend([42], n=3)
    assert code == 0
    assert "user 42" in out
    assert all(f"Film {item - 1001}" in out for item in items[0])
    lines = run("recommend", "run", "--user", "stranger")[1].splitlines()
    assert lines[0] == "user stranger (unknown: items for the average user)"
    code, out, _ = run("recommend", "run", "--user", "42", "--user", "stranger", "-n", "2", "--json")
    assert [record["known"] for record in json.loads(out)] == [True, False]
    assert run("recommend", "run", "-n", "3", "--out", "all.parquet", "--titles", "movies.csv")[0] == 0
    table = polars.read_parquet("all.parquet")
    assert table.columns == ["user", "rank", "item", "rating", "title"]
    assert table.filter(polars.col("user") == 42)["item"].to_list() == items[0].tolist()
    assert len(table) == 3 * 120


@pytest.mark.usefixtures("files")
def test_the_number_of_held_out_ratings_is_shown_everywhere(run, tmp_path):
    fit = ("fit", "ratings.csv", "-k", "2", "--epochs", "1", "--seed", "0")
    n_ratings = len((tmp_path / "ratings.csv").read_text().splitlines()) - 1
    expected = f"held out {n_ratings // 20} of {n_ratings:,} ratings for evaluation: --holdout 0 learns from all"
    _, _, err = run(*fit, "--out", "run")
    assert expected in " ".join(err.split())
    assert (
        f"held out {n_ratings // 20} of {n_ratings:,} ratings for evaluation" in (tmp_path / "run/log.txt").read_text()
    )
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "ratings held out" in page
    assert "held out" not in run(*fit, "--out", "all", "--holdout", "0")[2]
    assert run("recommend", "run", "-n", "60", "--out", "all.csv")[0] == 0
    pairs = [line.split(",")[:2] for line in (tmp_path / "ratings.csv").read_text().splitlines()[1:]]
    offered = [line.split(",") for line in (tmp_path / "all.csv").read_text().splitlines()[1:]]
    assert not {(user, item) for user, item in pairs} & {(user, item) for user, _, item, *_ in offered}
    text = " ".join(run("fit", "--help")[1].replace("│", " ").split())
    assert "0 for none; default: 5%, at most 100,000 ratings." in text


@pytest.mark.usefixtures("files")
def test_titles_of_other_items_are_reported(run, tmp_path, caplog):
    assert run("fit", "ratings.csv", "-k", "2", "--epochs", "1", "--seed", "0", "--out", "run")[0] == 0
    assert run("recommend", "run", "--user", "42", "--titles", "movies.csv")[0] == 0
    assert "has a title" not in caplog.text
    (tmp_path / "others.csv").write_text("imdbId,movieId,title\n1001,tt7,Dune\n")
    assert run("recommend", "run", "--user", "42", "--titles", "others.csv")[0] == 0
    assert "no item of the model has a title: its ids look like 1001, those of the titles like tt7" in caplog.text


@pytest.mark.usefixtures("files")
def test_columns_and_duplicates_of_a_command_are_named_as_its_options(run, tmp_path):
    good = (tmp_path / "ratings.csv").read_text()
    (tmp_path / "other.csv").write_text(good.replace("userId", "who"))
    (tmp_path / "twice.csv").write_text(good + good.splitlines()[1] + "\n")
    fit = ("-k", "2", "--epochs", "1", "--seed", "0", "--out")
    code, _, err = run("fit", "other.csv", *fit, "bad")
    assert code == 3
    assert "--column user=who" in " ".join(err.split())
    assert "--duplicates last" in " ".join(run("fit", "twice.csv", *fit, "bad")[2].split())
    assert run("fit", "ratings.csv", *fit, "run")[0] == 0
    plain = run("evaluate", "run", "ratings.csv", "--json")[1]
    shown = run("evaluate", "run", "ratings.csv", "--relevant", "100")[1]
    assert "ndcg@10  undefined: no known user" in shown
    assert "recall@10  undefined: no known user" in shown
    assert run("evaluate", "run", "other.csv", "--json")[0] == 3
    assert run("evaluate", "run", "other.csv", "--column", "user=who", "--json")[1] == plain
    assert run("evaluate", "run", "twice.csv", "--json")[0] == 3
    assert run("evaluate", "run", "twice.csv", "--duplicates", "last", "--json")[1] == plain


@pytest.mark.usefixtures("files")
def test_commands_ignore_times_on_request(run, tmp_path):
    header, *lines = (tmp_path / "ratings.csv").read_text().splitlines()
    (tmp_path / "dated.csv").write_text("\n".join([f"{header},date", *(f"{line},31/01/2020" for line in lines)]))
    fit = ("fit", "dated.csv", "-k", "2", "--epochs", "1", "--seed", "0", "--out", "run")
    assert "--column time=" in " ".join(run(*fit)[2].split())
    assert run(*fit, "--column", "user=")[0] == 2
    assert run(*fit, "--column", "time=")[0] == 0
    assert run("evaluate", "run", "dated.csv")[0] == 0
    assert run("predict", "run", "dated.csv", "--out", "predicted.csv", "--column", "time=")[0] == 0


def test_warnings_of_a_run_are_shown_as_well_as_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a terminal
    lines = [f"{user},{item},1\n" for user in range(12) for item in range(9)]
    (tmp_path / "ones.csv").write_text("user,item,rating\n" + "".join(lines))
    code, _, err = run("fit", "ones.csv", "-k", "2", "--epochs", "1", "--seed", "0", "--out", "run")
    assert code == 0
    assert err.count("all ratings are 1") == 1
    assert "WARNING all ratings are 1" in (tmp_path / "run" / "log.txt").read_text()
    assert not logging.getLogger("terafactor").handlers


def test_commands_keep_ids_with_leading_zeros_apart(run, tmp_path):
    import polars

    lines = [f"{user},{item},{rating}\n" for user, rating in (("007", 5), ("7", 1)) for item in range(30)]
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "".join(lines))
    assert run("fit", "ratings.csv", "-k", "2", "--out", "run", "--seed", "0", "--holdout", "0")[0] == 0
    (tmp_path / "pairs.csv").write_text("user,item\n007,3\n7,3\n")
    assert run("predict", "run", "pairs.csv", "--out", "predicted.csv")[0] == 0
    predicted = polars.read_csv("predicted.csv", infer_schema=False)
    assert predicted["user"].to_list() == ["007", "7"]
    high, low = predicted["prediction"].cast(float)
    assert high > 4 > 2 > low
    (tmp_path / "others.csv").write_text("user;item\n007;3\n7;3\n")
    assert run("predict", "run", "others.csv", "--out", "others-predicted.csv")[0] == 0
    assert polars.read_csv("others-predicted.csv", infer_schema=False).equals(predicted)
    (tmp_path / "test.csv").write_text("user,item,rating\n7,3,1\n7,4,1\n")
    facts = json.loads(run("evaluate", "run", "test.csv", "--json")[1])
    assert facts["rmse"] == pytest.approx(low - 1, abs=0.3)


@pytest.mark.usefixtures("files")
def test_commands_leave_with_what_went_wrong(run, tmp_path):
    assert run("fit", "nothing.csv", "--out", "run")[0] == 3
    code, _, err = run("fit", "ratings.csv", "--out", "run", "--alpha", "-1")
    assert code == 2
    assert "alpha must be a number > 0" in err
    code, _, err = run("fit", "ratings.csv", "--out", "other", "--column", "who=userId")
    assert code == 2
    assert "--column needs ROLE=NAME" in err
    assert run("fit", "ratings.csv", "-k", "2", "--epochs", "1", "--out", "good", "--seed", "0")[0] == 0
    code, _, err = run("recommend", "good")
    assert code == 2
    assert "pass --user for one user, or --out" in err
    (tmp_path / "taken.csv").write_text("")
    code, _, err = run("recommend", "good", "--out", "taken.csv")
    assert code == 2
    assert "exists" in err
    code, _, err = run("recommend", "good", "--out", "absent/all.csv")
    assert code == 3
    assert "cannot write absent/all.csv" in err


@pytest.mark.usefixtures("files")
def test_predictions_find_the_columns_that_the_model_was_learned_with(run, tmp_path):
    for name in ("ratings", "test"):
        written = (tmp_path / f"{name}.csv").read_text()
        (tmp_path / f"{name}-who.csv").write_text(written.replace("userId", "who"))
    fit = ("--column", "user=who", "-k", "2", "--epochs", "1", "--seed", "0", "--out", "run")
    assert run("fit", "ratings-who.csv", *fit)[0] == 0
    assert run("predict", "run", "test-who.csv", "--out", "who.csv")[0] == 0
    assert run("predict", "run", "test.csv", "--out", "usual.csv")[0] == 0
    assert (tmp_path / "who.csv").read_text().replace("who", "userId") == (tmp_path / "usual.csv").read_text()


def test_predictions_take_the_same_quotes_and_white_space_as_ratings(run, tmp_path):
    pairs = [(user, item) for user in ("ann", "bob", "cid") for item in ('12" pipe', "beer", "cup")]
    lines = [f"{user}, {item}, {1 + number % 5}" for number, (user, item) in enumerate(pairs)]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item,rating", *lines]))
    assert run("fit", "ratings.csv", "-k", "2", "--epochs", "1", "--seed", "0", "--out", "run")[0] == 0
    (tmp_path / "bare.csv").write_text('user,item\nann, 12" pipe\n')
    (tmp_path / "enclosed.csv").write_text('user,item\nann,"12"" pipe"\n')
    for name in ("bare", "enclosed"):
        assert run("predict", "run", f"{name}.csv", "--out", f"{name}-predicted.csv")[0] == 0
    assert (tmp_path / "bare-predicted.csv").read_text() == (tmp_path / "enclosed-predicted.csv").read_text()
    (tmp_path / "both.csv").write_text('user,item\nann,"beer"\nbob,12" pipe\n')
    code, _, err = run("predict", "run", "both.csv", "--out", "both-predicted.csv")
    assert code == 3
    assert "line 3 has a quote that is not closed" in err


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), "ComputeError"], ids=str)
def test_an_output_that_fails_leaves_nothing(run, tmp_path, monkeypatch, suffix, error):
    import polars

    if error == "ComputeError":  # what polars makes of a disk that is full
        error = polars.exceptions.ComputeError("No space left on device (os error 28)")

    assert run("fit", "ratings.csv", "-k", "2", "--epochs", "1", "--seed", "0", "--out", "run")[0] == 0
    before = set(tmp_path.iterdir())
    write = getattr(polars.DataFrame, f"write_{suffix}")

    def fail(frame, file, *arguments, **options):
        write(frame, file, *arguments, **options)
        raise error

    monkeypatch.setattr(polars.DataFrame, f"write_{suffix}", fail)
    for command in (("predict", "run", "test.csv"), ("recommend", "run")):
        code, _, err = run(*command, "--out", f"out.{suffix}")
        assert code == 3
        assert f"cannot write out.{suffix}: No space left" in err
        assert set(tmp_path.iterdir()) == before
    monkeypatch.setattr(polars.DataFrame, f"write_{suffix}", write)
    assert run("recommend", "run", "--out", f"out.{suffix}")[0] == 0
    assert set(tmp_path.iterdir()) == before | {tmp_path / f"out.{suffix}"}


@pytest.mark.usefixtures("files")
def test_tables_of_pairs_that_are_not_clear_are_refused(run, tmp_path):
    assert run("fit", "ratings.csv", "-k", "2", "--epochs", "1", "--seed", "0", "--out", "run")[0] == 0
    (tmp_path / "x.csv").write_bytes(b"user,item\r1,2\r3,4\n5,6\n")
    code, _, err = run("predict", "run", "x.csv", "--out", "out.csv")
    assert (code, "x.csv, line 1 has a carriage return" in err) == (3, True)
    (tmp_path / "x.csv").write_bytes(b"user,item,user\n1,2,3\n")
    code, _, err = run("predict", "run", "x.csv", "--out", "out.csv")
    assert (code, "several columns are recognized as user: user, user" in err) == (3, True)


@pytest.mark.usefixtures("files")
def test_names_of_output_files_are_escaped(run):
    assert run("fit", "ratings.csv", "-k", "2", "--epochs", "1", "--seed", "0", "--out", "run")[0] == 0
    for command in (("predict", "run", "test.csv"), ("recommend", "run")):
        code, _, err = run(*command, "--out", f"\x1b[31m{command[0]}.csv")
        assert (code, f"\\x1b[31m{command[0]}.csv" in err, "\x1b[31m" in err) == (0, True, False)


def test_predictions_of_pairs_never_lose_a_line(run, tmp_path):
    lines = [f'{user},"{user % 9}\\" disc",{user % 5}\n' for user in range(90)]
    for name in ("ratings.csv", "pairs[1].csv"):
        (tmp_path / name).write_text("user,item,rating\n" + "".join(lines))
    (tmp_path / "pairs1.csv").write_text("user,item\n1,2\n")
    assert run("fit", "ratings.csv", "-k", "2", "--epochs", "1", "--seed", "0", "--out", "run")[0] == 0
    assert run("predict", "run", "pairs[1].csv", "--out", "predicted.csv")[2].endswith(
        "wrote 90 predictions to predicted.csv\n"
    )
    (tmp_path / "bad.csv").write_text("user,item\n" + "".join(f'{user},"a" b"\n' for user in range(90)))
    code, _, err = run("predict", "run", "bad.csv", "--out", "bad-predicted.csv")
    assert code == 3
    assert "bad.csv, line 2: a quote inside a quoted field is not doubled" in " ".join(err.split())


def test_a_run_has_a_report_and_its_checkpoints_can_be_loaded(X, tmp_path):
    from terafactor import report_runs
    from terafactor.ratings.panel import directions

    policy = CheckpointPolicy(steps=5)
    model = train(MatrixCompletion(3, random_state=0, n_epochs=2), X, tmp_path / "run", checkpoints=policy)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "How items differ" in page
    assert "RMSE on held-out ratings" in page
    assert report_runs(tmp_path / "run", path=tmp_path / "again.html").is_file()

    strongest = directions(model.components_, [str(item) for item in range(60)])[0]
    axis = np.linalg.svd(model.components_ - model.components_.mean(axis=1, keepdims=True), full_matrices=False)[2][0]
    assert {int(item) for item in strongest.low + strongest.high} == set(np.argsort(axis)[[*range(5), *range(-5, 0)]])


CHECKPOINTS = [
    {},
    {"statistics": "masked"},
    {"statistics": "masked", "projection": "exact"},
    {"stream": "items"},
    {"stream": "items", "alpha": 0.1},
    {"stream": "items", "statistics": "masked"},
]


@pytest.mark.parametrize("parameters", CHECKPOINTS, ids=str)
def test_the_checkpoints_of_a_run_are_models(X, tmp_path, parameters):
    estimator = MatrixCompletion(3, random_state=0, n_epochs=4, batch_size=12, **parameters)
    model = train(estimator, X, tmp_path / "run", holdout=0, checkpoints=CheckpointPolicy(steps=1, keep=100))
    first, *_, last = (load_model(path) for path in sorted((tmp_path / "run" / "checkpoints").iterdir()))
    for checkpoint in (first, last):
        assert np.isfinite(checkpoint.recommend(histories=X[:2], n=3)[1]).all()
        assert np.isfinite(checkpoint.predict(([5, 999], [5, 999]))).all()
    if model.stream == "users":
        np.testing.assert_array_equal(last.transform(X), model.transform(X))
    if parameters:
        assert -last.score(X) == pytest.approx(-model.score(X), rel=0.1)
        assert -last.score(X) < 0.9 * -first.score(X)
        assert set(last.recommend([7], n=60)[0][0]) == set(range(60))  # it holds no ratings
    else:
        assert len(last.users_) == 0
    more = RatingTable.of([7, 500], [3, 3], [4.0, 5.0])
    assert -last.partial_fit(more).score(more) < 1
    assert 500 in last.users_


@pytest.mark.parametrize("statistics", ["per_feature", "masked"])
def test_codes_of_items_outlive_an_interruption(X, tmp_path, statistics):
    def run(name, **options):
        estimator = MatrixCompletion(
            3, random_state=0, n_epochs=1, batch_size=12, stream="items", statistics=statistics
        )
        train(estimator, X, tmp_path / name, holdout=0, **options)

    run("whole")
    with pytest.raises(RunInterruptedError):
        run("run", callbacks=[lambda snapshot: signal.raise_signal(signal.SIGTERM) if snapshot.step == 3 else None])
    run("run", resume=True)
    whole, resumed = (load_model(max((tmp_path / name / "checkpoints").iterdir())) for name in ("whole", "run"))
    np.testing.assert_array_equal(resumed.components_, whole.components_)


def test_the_configuration_of_a_run_with_named_columns_starts_another(tmp_path):
    lines = [f"{user},{item},{(user * item) % 5 + 1}" for user in range(12) for item in range(9)]
    (tmp_path / "r.csv").write_text("who,what,stars\n" + "\n".join(lines) + "\n")
    columns = ["--column", "user=who", "--column", "item=what", "--column", "rating=stars"]
    first = [
        "ratings",
        "fit",
        str(tmp_path / "r.csv"),
        *columns,
        "-k",
        "2",
        "--seed",
        "0",
        "--out",
        str(tmp_path / "one"),
    ]
    again = ["ratings", "fit", "--config", str(tmp_path / "one" / "config.toml"), "--out", str(tmp_path / "two")]
    for words in (first, again):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (result.output, result.exception)
    manifests = [(tmp_path / name / "model" / "manifest.json").read_bytes() for name in ("one", "two")]
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("precision", lambda array: -array - np.eye(len(array)), "a precision that is not positive semidefinite"),
        ("precision", lambda array: array + np.triu(np.ones_like(array), 1), "a precision that is not symmetric"),
        ("precision", lambda array: array * np.nan, "NaN or infinity"),
        ("precision", lambda array: array[:2, :2], "must have shape"),
        ("square", lambda array: -array - 30 * np.eye(len(array)), "a covariance that is not positive semidefinite"),
        ("square", lambda array: array + 1e300, "sums, or a number of rows"),
        ("total", lambda array: array + 1e9, "a covariance that is not positive semidefinite"),
        ("n_rows", lambda array: -1 - array, "a number of rows of -"),
        ("mean", lambda array: array + 1e300, "sums, or a number of rows"),
    ],
)
@pytest.mark.parametrize("owner", ["model.user_prior", "state.user_prior", "state.item_prior"])
def test_a_prior_that_is_not_a_distribution_is_refused(X, owner, part, change, message):
    artifact = MatrixCompletion(3, n_epochs=1, random_state=0, stream="items").fit(X)._task().artifact()
    arrays = dict(artifact.state_dict.arrays)
    arrays[f"{owner}.{part}"] = np.ascontiguousarray(change(arrays[f"{owner}.{part}"]))
    hostile = replace(artifact, state_dict=StateDict(artifact.state_dict.numbers, arrays))
    with pytest.raises(DataError, match=message):
        restore_estimator(hostile)


def test_a_prior_with_an_extreme_direction_is_refused():
    """Rounding makes its covariance singular, though no single entry is impossible."""
    prior = Prior.initial(np.zeros(3), learned=True, fixed=None)
    prior.n_rows[:], prior.square = 1e3, 1e99 * np.ones((3, 3))
    prior.check("user_prior")
    with pytest.raises(DataError, match="a prior in the file has sums that no ratings give"):
        prior.update(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), 1.0, learned=True, fixed=None)
