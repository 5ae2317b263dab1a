"""The page of bars: those that fall short come first; every row has its date and commit."""

import pkgutil
import re
import sys
from pathlib import Path

from benchmarks import run as benchmarks_run
from benchmarks.harness import Bar, Skipped


def suite(quick):
    yield Bar("met", 1.0, 2.0, details={"seconds": 3.25})
    yield Bar("not met", 3.0, 2.0, unit="%")
    yield Skipped("left out", "no such peer")


def test_each_bar_is_recorded_and_on_the_page(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmarks_run, "SUITES", {"some": {"suite": suite}})
    monkeypatch.setattr(benchmarks_run, "NAMES", ["some.suite", "some.other"])
    monkeypatch.setattr(benchmarks_run, "OUTPUT", tmp_path / "output")
    monkeypatch.setattr(sys, "argv", ["run", "some.suite", "--page", str(tmp_path / "bars.md")])
    assert benchmarks_run.main() == 1
    assert (tmp_path / "output" / "bars" / "some.suite.json").is_file()
    page = (tmp_path / "bars.md").read_text()
    assert page.index("| not met | 3 % | at most 2 % |") < page.index("| met | 1 x | at most 2 x | seconds 3.25 |")
    assert "| some.suite | left out | no such peer |" in page


def test_quick_benchmarks_exist():
    assert set(benchmarks_run.QUICK) <= set(benchmarks_run.NAMES)


def test_quick_runs_list_what_they_leave_out(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmarks_run, "SUITES", {"some": {"suite": suite}})
    monkeypatch.setattr(benchmarks_run, "NAMES", ["some.suite", "some.other"])
    monkeypatch.setattr(benchmarks_run, "QUICK", ["some.suite"])
    monkeypatch.setattr(benchmarks_run, "OUTPUT", tmp_path / "output")
    monkeypatch.setattr(sys, "argv", ["run", "--quick"])
    assert benchmarks_run.main() == 1
    assert "left out: some.other" in capsys.readouterr().out
    assert (tmp_path / "output" / "quick" / "some.suite.json").is_file()


def test_every_patched_name_exists():
    names = [
        name
        for path in Path(benchmarks_run.__file__).parent.rglob("*.py")
        for name in re.findall(r'patch\(\s*"(terafactor\.[\w.]+)"', path.read_text())
    ]
    assert names
    for name in names:
        pkgutil.resolve_name(name)
