"""Dotenv: a small, tolerant reader of `.env` files, and a writer that keeps every other line.

Accepted: `NAME=value`, `export NAME=value`, blanks around `=`, comments, single quotes (as it stands, may span
lines), double quotes (\\n, \\r, \\t, \\\\, \\", \\$, may span lines). Nothing is interpolated and nothing is run.
A line that is none of it is skipped and reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from lmagent.config.files import read_small, write_private

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
_ENTRY = re.compile(
    rf"""[ \t]*(?P<export>export[ \t]+)?(?P<name>{_NAME})[ \t]*=[ \t]*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<bare>(?!['"])[^\r\n]*))
    (?P<rest>[^\r\n]*)""",
    re.VERBOSE | re.DOTALL,
)
_BROKEN = re.compile(rf"[ \t]*(?:export[ \t]+)?(?P<name>{_NAME})?[^\r\n]*")
_BLANK = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?=\r|\n|\Z)")
_COMMENT = re.compile(r"[ \t]#.*", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_DRIVE = re.compile(r'[A-Za-z]:\\(?![\\"])')
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")
_UNESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$"}


class Entry(Struct, frozen=True):
    """One assignment: its value, its line (from 1), and where its value stands in the text."""

    name: str
    value: str
    line: int
    start: int
    end: int


class Problem(Struct, frozen=True):
    """A line that was not understood; `name` is the variable it seems to be about, if any."""

    line: int
    reason: str
    name: str = ""


class EnvFile(Struct, frozen=True):
    """What a `.env` file says. The last assignment of a name counts."""

    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def values(self) -> dict[str, str]:
        """Value by name."""
        return {entry.name: entry.value for entry in self.entries}

    @property
    def lines(self) -> dict[str, int]:
        """Line by name."""
        return {entry.name: entry.line for entry in self.entries}


def decode_env(content: bytes) -> str:
    """The text of a file: UTF-16 by its byte order mark (PowerShell writes it), else UTF-8 with odd bytes kept."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8-sig", "surrogateescape")


def parse_env(text: str) -> EnvFile:
    """Read the text of a `.env` file; no text raises."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    position, line = 0, 1
    while position < len(text):
        if blank := _BLANK.match(text, position):
            end = blank.end()
        elif found := _ENTRY.match(text, position):
            end = found.end()
            entries.append(_entry(found, line))
            if found["bare"] is None and not _BLANK.fullmatch(found["rest"]):
                problems.append(Problem(line, "what follows the closing quote was left out", found["name"]))
        else:
            end, problem = _skipped(text, position, line)
            problems.append(problem)
        step = 2 if text.startswith("\r\n", end) else 1
        line += len(re.findall(r"\r\n|\r|\n", text[position : end + step]))
        position = end + step
    return EnvFile(tuple(entries), tuple(problems))


def read_env(path: Path) -> EnvFile | None:
    """The file's assignments, or None where there is no such file.

    Raises:
        ConfigError: there is one, and it cannot be read.
    """
    content = read_small(path)
    return None if content is None else parse_env(decode_env(content))


def save_env(path: Path, values: Mapping[str, str]) -> None:
    """Set variables in a `.env` file, made if need be; other lines stay as they are. Only the owner can read it after.

    Raises:
        ConfigError: it cannot be written; it is as it was before.
        ValueError: a name is none.
    """
    content = read_small(path)
    text = "" if content is None else decode_env(content)
    newline = "\r\n" if "\r\n" in text else "\n"
    for name, value in values.items():
        if re.fullmatch(_NAME, name) is None:
            raise ValueError(f"{name!r} is no name of a variable")
        known = [entry for entry in parse_env(text).entries if entry.name == name]
        if known:
            text = f"{text[: known[-1].start]}{quoted(value)}{text[known[-1].end :]}"
            continue
        gap = "" if not text or text.endswith(("\n", "\r")) else newline
        text = f"{text}{gap}{name}={quoted(value)}{newline}"
    write_private(path, text)


def quoted(value: str) -> str:
    """The value as it has to stand behind `NAME=`, so that it is read back unchanged."""
    if _PLAIN.fullmatch(value):
        return value
    if "'" not in value and value.isprintable():
        return f"'{value}'"
    body = value.replace("\\", "\\\\").replace('"', '\\"')
    escaped = body.replace("\n", "\\n").replace("\r", "\\r")
    return f'"{body if _DRIVE.match(escaped) else escaped}"'


def _entry(found: re.Match[str], line: int) -> Entry:
    if found["single"] is not None:
        value, start, end = found["single"], found.start("single") - 1, found.end("single") + 1
    elif found["double"] is not None:
        value, start, end = _unescape(found["double"]), found.start("double") - 1, found.end("double") + 1
    else:
        start, end = found.span("bare")
        # With the blank before it, so that `NAME= # note` is empty and `NAME=#5` is not.
        value = _COMMENT.sub("", found.string[start - 1 : end])[1 if found.string[start - 1] == "=" else 0 :].strip()
    return Entry(found["name"], value, line, start, end)


def _unescape(body: str) -> str:
    """A Windows path in double quotes keeps its backslashes: `C:\\new` is a folder, not a line break."""
    if _DRIVE.match(body):
        return body
    return _ESCAPE.sub(lambda found: _UNESCAPED.get(found[1], found[0]), body)


def _skipped(text: str, position: int, line: int) -> tuple[int, Problem]:
    broken = _BROKEN.match(text, position)
    assert broken is not None  # every part of the pattern is optional
    return broken.end(), Problem(line, "it is not NAME=value, or its quote is not closed", broken["name"] or "")
