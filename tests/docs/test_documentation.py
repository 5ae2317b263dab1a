"""The documentation is correct: its examples run, its links resolve, its tables are complete."""

from __future__ import annotations

import inspect
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from packaging.requirements import Requirement
from sklearn.decomposition import MiniBatchDictionaryLearning
from typer.testing import CliRunner

import terafactor
from terafactor import MaskedDictionaryLearning
from terafactor.cli.app import app
from terafactor.datasets import make_planted, make_ratings

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<body>.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """Return the first line number and the text of each Python block of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("body")) + 1, match["body"])
        for match in FENCE.finditer(text)
        if match["language"].strip() == "python"
    ]


def run_block(page: Path, line: int, code: str) -> None:
    """Run a block as a separate script. Tracebacks show the lines of the page."""
    exec(compile("\n" * (line - 1) + code, str(page), "exec"), {"__name__": "__main__"})


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page whose file or heading does not exist."""
    broken = []
    for match in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(match["target"])
    return broken


def section(page: Path, heading: str) -> str:
    """Return the text under a heading of level two."""
    parts = re.split(r"^## +(.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of the rows of the Markdown tables of a text, without headers."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = [number for number, line in enumerate(lines) if set(line) <= set("|-: ")]
    left_out = {*rules, *(number - 1 for number in rules)}
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for number, line in enumerate(lines)
        if number not in left_out
    ]


def code_words(text: str) -> set[str]:
    """Return the identifiers at the start of code spans."""
    return set(re.findall(r"`(\w+)[^`]*`", text))


def parameters_of(estimator: type) -> set[str]:
    return set(inspect.signature(estimator).parameters)


BLOCKS = [
    pytest.param(page, line, code, id=f"{name_of(page)}:{line}") for page in PAGES for line, code in python_blocks(page)
]
GUIDE = ROOT / "docs" / "from-scikit-learn.md"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder with the matrix and the ratings that examples load."""
    X, _ = make_planted(n_samples=400, n_features=240, n_atoms=8, noise=0.5)
    np.save(tmp_path / "my_matrix.npy", X)
    ratings = pd.DataFrame(dict(zip(("userId", "movieId", "rating"), make_ratings(), strict=True)))
    ratings[::5].to_csv(tmp_path / "test.csv", index=False)
    ratings[::5].to_csv(tmp_path / "pairs.csv", index=False, columns=["userId", "movieId"])
    ratings.drop(ratings.index[::5]).to_csv(tmp_path / "ratings.csv", index=False)
    (tmp_path / "movies.csv").write_text("movieId,title\n" + "".join(f"{film},Film {film}\n" for film in range(60)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("page", "line", "code"), BLOCKS)
def test_example_runs(page: Path, line: int, code: str, scratch: Path) -> None:
    run_block(page, line, code)


def commands(page: Path) -> list[list[str]]:
    """Return the terafactor commands in the blocks of a page, split into words."""
    bodies = [match["body"] for match in FENCE.finditer(page.read_text(encoding="utf-8")) if not match["language"]]
    lines = [line for body in bodies for line in body.splitlines() if line.startswith("terafactor ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.parametrize("name", ["README.md", "docs/runs.md", "docs/ratings.md"])
def test_commands_run_one_after_the_other(name: str, scratch: Path) -> None:
    found = commands(ROOT / name)
    assert found
    for words in found:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (words, result.output, result.exception)


@pytest.mark.parametrize("name", ["README.md", "docs/from-scikit-learn.md", "docs/sources.md", "docs/ratings.md"])
def test_page_has_examples(name: str) -> None:
    """Guard against examples that the search above no longer finds."""
    assert python_blocks(ROOT / name)


def test_readme_begins_with_an_example_then_installation() -> None:
    """The first example needs no file; then come the commands that install, demonstrate and test the package."""
    example, *commands = list(FENCE.finditer((ROOT / "README.md").read_text(encoding="utf-8")))[:3]
    assert example["language"] == "python"
    assert len(example["body"].splitlines()) <= 10
    assert "my_matrix" not in example["body"]
    lines = [line.split("#")[0].strip() for block in commands for line in block["body"].splitlines()]
    assert lines == ["pip install .", "make demo", "make test"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_resolve(page: Path) -> None:
    assert broken_links(page) == []


def test_commands_of_make_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"`make ([\w-]+)`", text) + re.findall(r"^make ([\w-]+)", text, re.MULTILINE)
        assert set(named) <= targets, name_of(page)


def test_guide_has_a_row_for_every_parameter_of_scikit_learn() -> None:
    rows = [row for row in table_rows(section(GUIDE, "Parameters")) if len(row) == 3]
    named = [row[0].strip("`") for row in rows]
    assert len(named) == len(set(named))
    assert set(named) == parameters_of(MiniBatchDictionaryLearning)


def test_guide_names_every_parameter_of_terafactor_and_no_other() -> None:
    rows = table_rows(section(GUIDE, "Parameters"))
    ours = [row[1] if len(row) == 3 else row[0] for row in rows]
    named = [cell.strip("`") for cell in ours if cell != "none"]
    assert len(named) == len(set(named))
    assert set(named) == parameters_of(MaskedDictionaryLearning)


def test_guide_names_every_method_of_both() -> None:
    text = section(GUIDE, "Methods")
    for estimator in (MiniBatchDictionaryLearning, MaskedDictionaryLearning):
        public = {name for name, _ in inspect.getmembers(estimator, callable) if not name.startswith("_")}
        routing = {name for name in public if re.fullmatch(r"set_\w+_request", name)}
        assert public - routing <= code_words(text)


def test_guide_names_every_learned_attribute_of_both() -> None:
    named = code_words(section(GUIDE, "Attributes"))
    X, _ = make_planted(n_samples=60, n_features=20, n_atoms=3)
    frame = pd.DataFrame(X.astype(np.float64), columns=[f"feature {number}" for number in range(20)])
    for estimator in (MiniBatchDictionaryLearning(3, max_iter=1), MaskedDictionaryLearning(3)):
        learned = {name for name in vars(estimator.fit(frame)) if name.endswith("_") and not name.startswith("_")}
        assert {"components_", "feature_names_in_"} <= learned <= named


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")], ids=name_of)
def test_page_names_files_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    is_about_code = page.stem in ("architecture", "CONTRIBUTING")  # on other pages, folders are those of users
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`" if is_about_code else r"`((?:\w+/)+\w+\.py)`", text)
    package = ROOT / "src" / "terafactor"
    homes = [package, ROOT / "src", ROOT, package / "ratings", package / "data"]
    assert len(named) > 10 or not is_about_code
    assert [path for path in named if not any((home / path).exists() for home in homes)] == []


def test_architecture_gives_every_package_a_place() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "src" / "terafactor").glob("*/__init__.py")]
    assert [package for package in packages if f"`{package}/" not in text] == []


def test_architecture_has_a_row_for_every_folder() -> None:
    rows = re.findall(
        r"^\| `([\w/]+/)` \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    home = ROOT / "src" / "terafactor"
    folders = {path.parent.relative_to(home).as_posix() + "/" for path in home.glob("*/__init__.py")}
    assert folders <= set(rows)
    assert len(rows) == len(set(rows))


def test_glossary_is_short_and_sorted() -> None:
    words = [row[0] for row in table_rows(section(ROOT / "CONTRIBUTING.md", "Glossary"))]
    assert len(words) <= 30
    assert words == sorted(words)


def test_version_is_the_same_everywhere() -> None:
    version = terafactor.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_package_metadata_names_tested_versions_and_all_licenses() -> None:
    """The tests run on Python 3.11 only. Every third-party file has its license in the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [name for name in project["classifiers"] if re.search(r"Python :: 3\.\d+$", name)]
    assert versions == ["Programming Language :: Python :: 3.11"]
    assert project["requires-python"] == ">=3.11"
    licenses = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*LICENSE*")]
    assert sorted(project["license-files"]) == sorted(["LICENSE", *licenses])
    assert all((ROOT / path).is_file() for path in project["license-files"])


def test_zarr_has_both_bounds() -> None:
    """Before 3.1, zarr runs pickle codecs that a file names as it opens it; 3.1.3 is the oldest that was tried.

    ``sources/zarr.py`` checks the codecs of an array that is open already, as it must know how versions list them.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (zarr,) = (needed for needed in map(Requirement, project["dependencies"]) if needed.name == "zarr")
    assert [version for version in ("3.0.10", "3.1.2", "4.0.0", "4.1") if version in zarr.specifier] == []


class TestTheTests:
    """The functions above detect the errors that they are written for."""

    def write(self, folder: Path, text: str) -> Path:
        page = folder / "page.md"
        page.write_text(text, encoding="utf-8")
        return page

    def test_a_failing_example_fails_at_its_line(self, tmp_path: Path) -> None:
        page = self.write(tmp_path, "# A\n\n```python\nx = 1\nassert x == 2\n```\n\n```\nnot python\n```\n")
        ((line, code),) = python_blocks(page)
        with pytest.raises(AssertionError) as failure:
            run_block(page, line, code)
        assert failure.traceback[-1].lineno == 4  # counted from zero

    def test_examples_do_not_see_each_other(self, tmp_path: Path) -> None:
        page = self.write(tmp_path, "```python\nx = 1\n```\n```python\nx\n```\n")
        first, second = python_blocks(page)
        run_block(page, *first)
        with pytest.raises(NameError):
            run_block(page, *second)

    def test_broken_links_are_found(self, tmp_path: Path) -> None:
        (tmp_path / "other.md").write_text("# There it is\n", encoding="utf-8")
        page = self.write(
            tmp_path,
            "# Here\n[a](missing.md) [b](other.md) [c](other.md#there-it-is) [d](other.md#gone) [e](#here)\n"
            "[f](https://example.org/x) ![g](no.png)\n```\n[h](code.md)\n```\n",
        )
        assert broken_links(page) == ["missing.md", "other.md#gone", "no.png"]

    def test_tables_are_read_without_their_headers(self) -> None:
        text = "| a | b |\n|---|:-:|\n| `x` | 1 |\n\nwords\n\n| c |\n|---|\n| `y` |\n"
        assert table_rows(text) == [["`x`", "1"], ["`y`"]]
