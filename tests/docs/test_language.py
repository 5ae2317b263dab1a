"""The words of the package: no archaic or odd ones where a plain one exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from terafactor.cli.app import app

ROOT = Path(__file__).parents[2]
SUFFIXES = (".py", ".md", ".html", ".css", ".js", ".sbatch")
WRITTEN_BY_OTHERS = re.compile(r"uPlot")
FILES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *(file for home in ("src", "docs", "examples", "tests", "benchmarks") for file in (ROOT / home).rglob("*")),
    ]
    if path.suffix in SUFFIXES
    and not WRITTEN_BY_OTHERS.match(path.name)
    and path != Path(__file__)
    and "output" not in path.parts
)

WORDS = {
    r"told|tells?(?!\()|telling": "shows, reports, notifies, names, or is passed",
    r"anew|afresh": "again, from scratch",
    r"beside": "next to, besides",
    r"aloud": "with a warning",
    r"lest": "so that ... does not",
    r"whom": "which",
    r"at\s+hand": "available",
    r"settled": "decided, fixed, converged",
    r"be it|of today(?!')|shall|thereof|wherein|whilst|amongst|upon": "the plain word",
    r"hence|thence|whence|hereby|herein|therein|hitherto|henceforth": "so, here, then",
    r"(?:that|which|who|what) (?:is|are) no": "is not a",
    r"(?:in memory|is|are) here(?!\()": "in this process",
    r"must be there": "must exist, is required",
    r"goes on": "continues",
    r"in the place of": "instead of, replaces",
    r"takes? over|took over": "replaces, copies",
    r"in order to": "to",
    r"utili[sz]\w*": "use",
    r"e\.g\.|i\.e\.|etc\.|cf\.|w\.r\.t\.": "for example, that is, and so on, see, with respect to",
    r"\w*(?:colour|behaviour|neighbour|labell|favour)\w*|centre[sd]?|towards|grey|learnt|artefacts?"
    r"|\w*(?:modell|cancell|travell)(?:ed|ing)|analysed?|analysing|\w+isation\w*"
    r"|\w*(?:minim|maxim|optim|initial|normal|standard|regular|factor|organ|summar|recogn|visual|vector|quant|random"
    r"|serial|general|parallel)is(?:e[sd]?|ing)": ("American spelling"),
}
"""Odd words as patterns, and what to write instead."""
SAY_FOR_PASS = r"\bsay (?:--|[`'\"]|\w+=)"
ODD = re.compile(rf"(?<![\w.-])(?:{'|'.join(WORDS)})(?!\w)|{SAY_FOR_PASS}", re.IGNORECASE)


def odd_words(text: str) -> list[str]:
    """Return each odd word of a text with its line number. The parts of identifiers are words."""
    text = re.sub(r"(?<=\w)_(?=\w)", " ", text)
    return [f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in ODD.finditer(text)]


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the help text of every command and option."""
    waiting = [("terafactor", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        yield name, command.help or ""
        for parameter in command.params:
            yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
        waiting += [(f"{name} {sub}", child) for sub, child in getattr(command, "commands", {}).items()]


def test_files_have_no_odd_words() -> None:
    assert len(FILES) > 150
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}
    assert {name: odd_words(text) for name, text in texts.items() if odd_words(text)} == {}


def test_help_has_no_odd_words() -> None:
    texts = dict(help_texts())
    assert {"terafactor fit", "terafactor fit alpha"} <= set(texts)
    assert {name: odd_words(text) for name, text in texts.items() if odd_words(text)} == {}


@pytest.mark.parametrize(
    "text",
    [
        "The loop is told.",
        "It tells more.",
        "starts anew",
        "Beside it",
        "aloud",
        "lest it fail",
        "to whom",
        "no rows\nat hand",
        "say missing='nan'",
        "Say `--drop`",
        'say "auto"',
        "say --drop",
        "the colour",
        "unlabelled",
        "minimises",
        "initialisation",
        "toward and towards",
        "what is no run",
        "X is in memory here",
        "e.g. a file",
        "the fit goes on",
        "def test_it_is_told_of",
    ],
)
def test_odd_words_are_found(text: str) -> None:
    assert len(odd_words(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "file.tell()",
        "besides",
        "the page says why",
        "does not say",
        "semicolon",
        "what handles",
        "analyses",
        "raised",
        "labels",
    ],
)
def test_plain_words_are_not_found(text: str) -> None:
    assert odd_words(text) == []
