"""Random changes of files that know the format: text by token, JSON and TOML by field, archives from inside."""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import json
import re
import struct
import tomllib
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

import tomli_w

EDGE = 512
"""Bytes at the start and at the end of a file, where headers and footers are: half of the changes are there."""

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 2**31, 2**63, 2**70, -(2**70), 10**400, 1.5, -0.5, 1e308, float("nan"),
    float("inf"), "", "x", "auto", "1", "../x", "a\0b", "é" * 300, "float64", "|O", ">f4", [], [1], ["a"], [None],
    [[1, 2], [3]], [2**40, 2**40], {}, {"a": 1}, {"type": "array"}, {"id": "pickle"}, {"name": "zstd"},
)  # fmt: skip
"""Values of fields of documents."""

TOKENS = (
    b'"', b'""', b"'", b"\\", b"\n", b"\r", b"\r\n", b"\n\n\n", b"\0", b",", b";", b"\t", b"|", b":", b"::", b" ", b"#",
    b"-", b"+", b".", b"0", b"007", b"-1", b"1e400", b"-1e400", b"1e-400", b"9" * 400, b"9223372036854775808",
    b"18446744073709551616", b"2147483648", b"nan", b"inf", b"-inf", b"NA", b"null", b"true", b"0x10", b"1_000",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", "\u0663".encode(), "\u2028".encode(), "\U0001f600".encode(), b"x" * 5000,
    b"x" * 150_000,
    b"<", b">", b"&amp;", b"&x;", b"/>", b"1999-12-31", b"9999-99-99",
)  # fmt: skip
"""Text that parsers may misread."""

NUMBERS = tuple(
    struct.pack(order + kind, value)
    for order in "<>"
    for kind, values in {
        "h": (0, 1, -1, 2**15 - 1, -(2**15)),
        "i": (0, 1, -1, 2**31 - 1, -(2**31), 2**28),
        "q": (0, 1, -1, 2**63 - 1, -(2**63), 2**33),
        "f": (0.0, -1.0, 1e38, float("nan"), float("inf")),
        "d": (0.0, -1.0, 1e308, 1e-308, float("nan"), float("-inf")),
    }.items()
    for value in values
)
"""Numbers of all sizes, as bytes."""

DIGITS, WORDS = re.compile(rb"\d+"), re.compile(rb"[A-Za-z_]{3,}")


def mutated(content: bytes, chance: Random, other: bytes = b"") -> bytes:
    """Return changed content; ``other`` is that of another file of the sample."""
    found = next((change for recognizes, change in INSIDE if recognizes(content)), None)
    if found is not None and chance.random() < 0.75:
        with contextlib.suppress(Exception):  # the format cannot express the change
            return found(content, chance)
    if _is_text(content) and chance.random() < 0.75:
        return _change_text(content, chance)
    return _change_bytes(content, chance, other)


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _place(content: bytes | bytearray, chance: Random) -> int:
    """Return a position; headers and footers are likely."""
    last = len(content)
    return chance.choice(
        [chance.randint(0, last), chance.randint(0, last), chance.randint(0, min(EDGE, last)),
         chance.randint(max(0, last - EDGE), last)]
    )  # fmt: skip


def _change_bytes(content: bytes, chance: Random, other: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 1, 2, 5, 20])):
        start = _place(changed, chance)
        kind = chance.randrange(9)
        if kind == 0:
            del changed[start : start + chance.choice([1, 4, 64, len(changed)])]
        elif kind == 1:
            changed[start:start] = chance.randbytes(chance.choice([1, 2, 8, 100]))
        elif kind == 2:
            changed[start:start] = changed[start : start + chance.choice([1, 8, 200])]
        elif kind == 3:
            changed = bytearray(_with_number(bytes(changed), chance))
        elif kind == 4:
            changed[start:] = other[start:]
        elif start < len(changed) and kind == 5:
            changed[start] ^= 1 << chance.randrange(8)
        elif start < len(changed) and kind == 6:
            changed[start] = chance.randrange(256)
        else:
            number = chance.choice(NUMBERS)
            start -= start % chance.choice([1, 2, 4, 8])
            changed[start : start + len(number)] = number
    return bytes(changed)


def _with_number(content: bytes, chance: Random) -> bytes:
    """Return content with a run of digits or a word replaced, half the time by one of the same length."""
    runs = list(chance.choice([DIGITS, DIGITS, WORDS]).finditer(content))
    if not runs:
        return content
    run = chance.choice(runs)
    new = chance.choice([chance.choice(TOKENS), chance.choice(runs)[0]])
    if chance.random() < 0.5:
        new = chance.choice(b"0 19").to_bytes(1, "big") * len(run[0])
    return content[: run.start()] + new + content[run.end() :]


def _change_text(content: bytes, chance: Random) -> bytes:
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        kind, start = chance.randrange(6), _place(content, chance)
        if kind == 0:
            content = _with_number(content, chance)
        elif kind == 1:
            content = content[:start] + chance.choice(TOKENS) + content[start:]
        elif kind == 2:
            content = content[:start] + chance.choice(TOKENS) + content[start + chance.randint(1, 9) :]
        elif kind == 3:
            content = content.replace(chance.choice([b",", b"\n", b'"', b"\t", b":", b" "]), chance.choice(TOKENS),
                                      chance.choice([1, -1]))[: 2**22]  # fmt: skip
        else:
            lines = content.splitlines(keepends=True) or [b""]
            place = chance.randrange(len(lines))
            change = [[], [lines[place]] * chance.choice([2, 50]), [chance.choice(lines)], lines[:place]]
            lines[place : place + 1] = chance.choice(change)
            content = b"".join(lines)
    return content


def _change_gzip(content: bytes, chance: Random) -> bytes:
    return gzip.compress(mutated(gzip.decompress(content), chance), 1, mtime=0)


def _change_zip(content: bytes, chance: Random) -> bytes:
    """Change, remove, double or rename a member; checksums are those of the new content."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = chance.randrange(len(members))
    name, inner = members[place]
    kind = chance.randrange(10)
    if kind == 0:
        del members[place]
    elif kind == 1:
        members[place] = (chance.choice(members)[0] + chance.choice(["", "x", ".npy"]), inner)
    elif kind == 2:
        members[place] = (name, chance.choice(members)[1])
    else:
        members[place] = (name, mutated(inner, chance))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), inner)
    return file.getvalue()


SHAPES = ("()", "(0,)", "(3,)", "(2, 3)", "(0, 4)", "(-1, 4)", "(2**70, 4)", f"({2**40}, 8)", f"({2**62}, {2**62})",
          "(2, 3, 4)", "(1.5, 2)", "('a', 2)", "(True, 2)", "3", "None")  # fmt: skip
DESCRIPTIONS = ("'<f8'", "'<f4'", "'>f8'", "'<f2'", "'<f16'", "'<i8'", "'<u8'", "'|b1'", "'|O'", "'<U4'", "'|S0'",
                "'|V8'", "'<c16'", "'<M8[s]'", "'<U9999999999'", "[('a', '<f8')]", "'x'", "3", "None")  # fmt: skip


def _change_npy(content: bytes, chance: Random) -> bytes:
    """Change a field of the header, padded to its former length if it fits, or any byte."""
    if chance.random() < 0.4:
        return _change_bytes(content, chance, b"")
    end = 10 + struct.unpack("<H", content[8:10])[0]
    header = content[10:end].decode("latin-1")
    if chance.random() < 0.3:
        header = _change_text(header.encode("latin-1"), chance).decode("latin-1")
    else:
        pattern, values = chance.choice(
            [(r"\([^)]*\)", SHAPES), (r"'[<>|=][^']*'", DESCRIPTIONS), ("False|True", ("1", "True", "None"))]
        )
        new = chance.choice(values)
        header = re.sub(pattern, lambda found: new, header, count=1)
    header = header.rstrip().ljust(end - 11) + "\n"
    return content[:8] + struct.pack("<H", len(header) % 2**16) + header.encode("latin-1") + content[end:]


def _change_json(content: bytes, chance: Random) -> bytes:
    return json.dumps(_changed_document(json.loads(content), chance)).encode()


def _change_json_lines(content: bytes, chance: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    place = chance.randrange(len(lines))
    lines[place] = _change_json(lines[place], chance) + b"\n"
    return b"".join(lines)


def _change_toml(content: bytes, chance: Random) -> bytes:
    return tomli_w.dumps(_changed_document(tomllib.loads(content.decode()), chance)).encode()


def _change_safetensors(content: bytes, chance: Random) -> bytes:
    """Change the header, or numbers of the arrays."""
    length = struct.unpack("<Q", content[:8])[0]
    header, numbers = content[8 : 8 + length], bytearray(content[8 + length :])
    if chance.random() < 0.3:
        header = _change_json(header, chance)
        length = chance.choice([len(header)] * 8 + [0, 2**63 - 1, len(header) + 7])
        return struct.pack("<Q", length) + header + bytes(numbers)
    for _ in range(chance.choice([1, 1, 5])):
        new = chance.choice(NUMBERS) * chance.choice([1, 1, 10, 1000])
        start = chance.randrange(max(1, len(numbers))) // 8 * 8
        numbers[start : start + len(new)] = new[: len(numbers) - start]
    return content[: 8 + length] + bytes(numbers)


def _changed_document(document: Any, chance: Random) -> Any:
    """Return a nested document with some fields changed, removed, added or exchanged."""
    document = {"": copy.deepcopy(document)}
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        places = list(_places(document))
        table, key = chance.choice(places)
        kind = chance.randrange(8)
        if kind == 0 and table is not document:
            del table[key]
        elif kind == 1:
            other, other_key = chance.choice(places)
            table[key] = copy.deepcopy(other[other_key])
        elif kind == 2 and isinstance(table[key], str):
            table[key] = _change_text(table[key].encode(), chance).decode("utf-8", "replace")
        elif kind == 3 and isinstance(table[key], int | float):
            table[key] = table[key] * chance.choice([-1, 2, 0.5, 1000, 2**40]) + chance.choice([0, 1, -1])
        elif kind == 4 and isinstance(table, dict) and table is not document:
            table[chance.choice(["unknown", "", "type", str(key).upper()])] = copy.deepcopy(chance.choice(VALUES))
        else:
            table[key] = copy.deepcopy(chance.choice(VALUES))
    return document[""]


def _places(document: Any) -> Any:
    """Yield tables or lists and the keys in them, at all depths."""
    for key in list(document) if isinstance(document, dict) else range(len(document)):
        yield document, key
        if isinstance(document[key], dict | list):
            yield from _places(document[key])


INSIDE: tuple[tuple[Callable[[bytes], Any], Callable[[bytes, Random], bytes]], ...] = (
    (re.compile(rb"\x1f\x8b").match, _change_gzip),
    (re.compile(rb"PK\x03\x04").match, _change_zip),
    (re.compile(rb"\x93NUMPY").match, _change_npy),
    (re.compile(rb".{8}\{", re.DOTALL).match, _change_safetensors),
    (re.compile(rb"\{[^\n]*\}\n").match, _change_json_lines),
    (re.compile(rb"\s*[\[{]\s*[\"\[{]").match, _change_json),
    (re.compile(rb"\w+ = ").match, _change_toml),
)
"""How formats are recognized, and the function that changes each."""
