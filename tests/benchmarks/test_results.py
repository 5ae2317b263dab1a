"""Records of benchmarks belong to the code that they were measured with."""

import json
import subprocess

import pytest
from benchmarks import pages, results


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Return a package of one file in a repository with one commit, as the package that is measured."""
    folder = tmp_path / "repository" / "package"
    folder.mkdir(parents=True)
    (folder / "module.py").write_text("one = 1\n")
    git(folder.parent, "init", "--quiet")
    git(folder.parent, "add", ".")
    commit(folder.parent)
    monkeypatch.setattr(results, "SOURCES", folder)
    results.code.cache_clear()
    yield folder
    results.code.cache_clear()


def git(folder, *arguments):
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    return subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True)


def commit(folder):
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "change")


def measure(tmp_path, value, **settings):
    results.code.cache_clear()
    return results.measured("some", settings, lambda: [value], tmp_path / "output")


def test_a_record_is_measured_again_when_code_or_settings_change(sources, tmp_path):
    assert measure(tmp_path, 1, size=3)["result"] == [1]
    assert measure(tmp_path, 2, size=3)["result"] == [1]
    commit(sources.parent)  # changes no source
    assert measure(tmp_path, 3, size=3)["result"] == [1]
    assert measure(tmp_path, 4, size=5)["result"] == [4]
    (sources / "module.py").write_text("one = 2\n")
    assert measure(tmp_path, 5, size=5)["result"] == [5]
    (sources / "another.py").write_text("")
    assert measure(tmp_path, 6, size=5)["result"] == [6]


def test_a_record_names_its_commit(sources, tmp_path, monkeypatch):
    head = git(sources, "rev-parse", "--short", "HEAD").stdout.strip()
    assert measure(tmp_path, 1)["commit"] == head
    (sources / "module.py").write_text("one = 2\n")
    record = measure(tmp_path, 1)
    assert record["commit"] == f"{head}+{record['sources']}"
    monkeypatch.setattr(results, "_git", lambda *arguments: "")  # outside a repository
    (sources / "module.py").write_text("one = 3\n")
    record = measure(tmp_path, 1)
    assert record["commit"].endswith(f"+{record['sources']}")
    assert not record["commit"].startswith(head)


def test_pages_mark_records_of_older_code(sources, tmp_path):
    record = measure(tmp_path, 1)
    assert f"at commit {record['commit']}, on" in pages.origin(record)[0]
    (sources / "module.py").write_text("one = 2\n")
    results.code.cache_clear()
    assert f"at commit {record['commit']} (older code), on" in pages.origin(record)[0]


def test_records_are_written_with_lists_of_numbers_on_one_line(tmp_path):
    record = {"name": "[1, 2]", "curve": [1.5, None, 2], "nested": [[1, 2], [3]], "words": ["a, b", "c"], "empty": []}
    results.write(record, tmp_path / "some.json")
    text = (tmp_path / "some.json").read_text()
    assert json.loads(text) == record
    assert '"curve": [ 1.5, null, 2 ]' in text
