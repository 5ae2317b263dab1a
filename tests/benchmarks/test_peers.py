"""Contests run at a tiny size and name skipped peers; their page lists losses first."""

import json

import pytest

pytest.importorskip("matplotlib")

from benchmarks.peers import page
from benchmarks.peers.contest import Contest, Contestant, hold, time_to
from benchmarks.peers.run import contests, main


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    main(["--tiny", "--output", str(folder / "numbers"), "--page", str(folder / "page" / "peers.md")])
    return folder


@pytest.mark.parametrize("name", contests(tiny=True))
def test_contest_has_numbers_picture_and_section(output, name):
    result = json.loads((output / "numbers" / f"{name}.json").read_text())["result"]
    assert any(curve["ours"] for curve in result["curves"].values())
    for curve in result["curves"].values():
        assert len(curve["seconds"]) == len(curve["score"]) == len(curve["amounts"]) > 0
        assert all(score == score for score in curve["score"])
    text = (output / "page" / "peers.md").read_text()
    assert f"## {result['title']}" in text
    assert text.index("## Where we lose") < text.index(f"## {result['title']}")
    assert (output / "page" / "figures" / f"peers_{name}.png").stat().st_size > 5000


def test_peers_of_scikit_learn_are_always_present(output):
    curves = json.loads((output / "numbers" / "sparse_codes.json").read_text())["result"]["curves"]
    assert "scikit-learn MiniBatchDictionaryLearning" in curves


def test_absent_peer_is_skipped_by_name():
    present = Contestant("here", lambda amount: amount, [1, 2])
    absent = Contestant("gone", lambda amount: amount, [1], "no_such_module", "no-such-package")
    result = hold(Contest("test", "Test", "", [present, absent], float, "score"))
    assert list(result["curves"]) == ["here"]
    assert result["skipped"] == ["no-such-package"]


def result_of(ours, theirs):
    curves = {
        "ours": {"ours": True, "seconds": [1.0, 2.0], "score": ours},
        "peer": {"ours": False, "seconds": [1.0, 1.5], "score": theirs},
    }
    return {"title": "Test", "measure": "error", "lower_is_better": True, "curves": curves}


def test_page_lists_losses():
    assert page.losses(result_of([2.0, 1.0], [2.0, 1.5])) == []
    slower = page.losses(result_of([2.0, 1.0], [2.0, 1.0]))
    assert len(slower) == 2
    assert "1.5 s, ours takes 2 s" in slower[0]
    assert "10.00 % worse" in page.losses(result_of([2.0, 1.1], [2.0, 1.0]))[0]


def test_time_to_target_is_the_shortest_that_reaches_it():
    curve = {"seconds": [3.0, 1.0, 2.0], "score": [0.1, 0.9, 0.2]}
    assert time_to(curve, 0.2, lower=True) == 2.0
    assert time_to(curve, 0.5, lower=False) == 1.0
    assert time_to(curve, 0.01, lower=True) is None
