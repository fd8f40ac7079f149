"""The readings of a search: as given, without line numbers that a reading tool printed, without doubled escapes.

Search and replacement are always changed alike. Line numbers have the forms of common reading tools: `12<tab>code`,
`12→code`, `12: code`, `12| code`, right-aligned or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from lmagent.tools.edit.bridges import unclosed

_NUMBERED = re.compile(r"[ \t]*(\d{1,9})(\t|→|:|[ ]?[|│])(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(r\\n|[\\ntr\"'])")
_PLAIN = {"r\\n": "\n", "n": "\n", "t": "\t", "r": "\r"}
_KINDS = ("nqb", "q", "n", "b", "nq", "qb", "nb")
_DOTS = ("...", "…")


class Form(Struct, frozen=True):
    """One reading of search and replacement; `mark` followed the line numbers that were taken off ('': no numbers)."""

    search: str
    replace: str
    mark: str = ""


class DottedChunks(Struct, frozen=True):
    """Search and replacement as lines, divided where both have a `...` line."""

    search: list[list[str]]
    replace: list[list[str]]


def forms(search: str, replace: str) -> Iterator[Form]:
    """Yield all readings of a search and its replacement, the literal one first."""
    literal = Form(search, replace)
    plain = [form for form in (literal, _without_numbers(literal)) if form is not None]
    unescaped = [each for form in plain for each in _unescaped(form)]
    bare = [_without_numbers(form) for form in unescaped if not form.mark]
    seen: set[tuple[str, str]] = set()
    for form in (*plain, *unescaped, *bare):
        if form is not None and form.search and (form.search, form.mark) not in seen:
            seen.add((form.search, form.mark))
            yield form


def block_lines(text: str) -> tuple[list[str], bool]:
    """Return the lines of a search or a replacement, and whether a line end closes the last one.

    A last piece of nothing but blanks is the start of the following line, copied along: it is left out.
    """
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1].strip():
        return lines[:-1], True
    return ([], True) if lines == [""] else (lines, False)


def one_chunk(form: Form) -> DottedChunks:
    lines, closed = block_lines(form.search)
    fresh, _ = block_lines(form.replace)
    return DottedChunks([lines], [fresh if fresh or closed else [""]])  # a line without its end leaves an empty line


def divided(form: Form) -> DottedChunks | None:
    """Return the chunks between `...` lines; None without such lines, or where they are not paired."""
    chunks, new = _split(block_lines(form.search)[0]), _split(block_lines(form.replace)[0])
    if len(chunks) < 2 or len(chunks) != len(new):
        return None
    for edge in (0, -1):
        if len(chunks) > 1 and not _filled(chunks[edge]):
            if _filled(new[edge]):
                return None
            del chunks[edge], new[edge]
    return DottedChunks(chunks, new) if all(_filled(chunk) for chunk in chunks) else None


def looks_numbered(lines: Sequence[str], form: Form) -> bool:
    """Return whether the file itself has such numbers before the search's lines: then they are text, not a tool's."""
    sought = {line.strip() for line in form.search.split("\n") if line.strip()}
    found = (_NUMBERED.match(line) for line in lines)
    return any(each is not None and each[2].strip(" ") == form.mark and each[3].strip() in sought for each in found)


def _without_numbers(form: Form) -> Form | None:
    lines = form.search.split("\n")
    found = [_NUMBERED.match(line) for line in lines if line.strip()]
    marks = {each[2] if each is not None else "" for each in found}
    if len(marks) != 1 or "" in marks:
        return None
    mark = marks.pop()
    numbers = [int(each[1]) for each in found if each is not None]
    if any(after <= before for before, after in pairwise(numbers)):
        return None
    bodies = [each[3] for each in found if each is not None]
    blank = mark in {":", "|", " |", "│", " │"} and all(body[:1] == " " for body in bodies if body.strip())

    def bare(text: str) -> str:
        matches = ((line, _NUMBERED.match(line)) for line in text.split("\n"))
        return "\n".join(
            line if match is None or match[2] != mark else match[3].removeprefix(" ") if blank else match[3]
            for line, match in matches
        )

    return Form(bare(form.search), bare(form.replace), mark.strip(" "))


def _unescaped(form: Form) -> Iterator[Form]:
    """Yield the form with escapes undone: all kinds, then some only.

    Where two readings differ only in the replacement, one that breaks a string over two lines is not taken.
    """
    if "\\" not in form.search:
        return
    readings: dict[str, list[str]] = {}
    for kinds in _KINDS:
        search = _unescape(form.search, kinds)
        if search != form.search:
            readings.setdefault(search, []).append(_unescape(form.replace, kinds))
    for search, replaces in readings.items():
        yield Form(search, next((each for each in replaces if not unclosed(each)), replaces[0]), form.mark)


def _unescape(text: str, kinds: str) -> str:
    def plain(found: re.Match[str]) -> str:
        letter = found[1]
        kind = "b" if letter == "\\" else "q" if letter in "\"'" else "n"
        return _PLAIN.get(letter, letter) if kind in kinds else found[0]

    return _ESCAPE.sub(plain, text)


def _split(lines: Sequence[str]) -> list[list[str]]:
    chunks: list[list[str]] = [[]]
    for line in lines:
        if line.strip() in _DOTS:
            chunks.append([])
        else:
            chunks[-1].append(line)
    return chunks


def _filled(chunk: Sequence[str]) -> bool:
    return any(line.strip() for line in chunk)
