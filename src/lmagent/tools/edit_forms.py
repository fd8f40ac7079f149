"""What a search may have been before a model copied or quoted it: without line numbers, without doubled escapes.

Search and replacement are always put right alike. The forms of the numbered lines are those of common reading tools:
`12<tab>code`, `12→code`, `12: code`, `12| code`, the number right-aligned or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from lmagent.tools.edit_strings import unclosed
from lmagent.tools.edit_text import block_lines, to_lf

_NUMBERED = re.compile(r"[ \t]*(\d+)(\t|→|:|[ ]?[|│])(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\([\\ntr\"'])")
_PLAIN = {"n": "\n", "t": "\t", "r": "\r"}
_KINDS = ("nqb", "q", "n", "b", "nq", "qb", "nb")
_DOTS = ("...", "…")


class Form(Struct, frozen=True):
    """One reading of what the model asked for.

    Attributes:
        search: the search, put right.
        replace: the replacement, put right alike.
        mark: what followed the line numbers that were taken off; '' if there were none.
    """

    search: str
    replace: str
    mark: str = ""


class Chunks(Struct, frozen=True):
    """Search and replacement as lines, divided where both say `...`."""

    search: list[list[str]]
    replace: list[list[str]]


def forms(search: str, replace: str) -> Iterator[Form]:
    """All readings of a search and its replacement, the literal one first."""
    literal = Form(search, replace)
    numbered = _without_numbers(literal)
    seen: set[tuple[str, str]] = set()
    plain = [form for form in (literal, numbered) if form is not None]
    unescaped = [each for form in plain for each in _unescaped(form)]
    bare = [_without_numbers(form) for form in unescaped if not form.mark]
    for form in (*plain, *unescaped, *bare):
        if form is not None and form.search and (form.search, form.mark) not in seen:
            seen.add((form.search, form.mark))
            yield form


def divided(form: Form, *, old_mac: bool) -> Chunks | None:
    """The chunks between paired `...` lines; None where there are none, or they are not paired."""
    search, _ = block_lines(form.search, old_mac=old_mac)
    replace, _ = block_lines(form.replace, old_mac=old_mac)
    chunks, new = _split(search), _split(replace)
    if len(chunks) < 2 or len(chunks) != len(new):
        return None
    for edge in (0, -1):
        if len(chunks) > 1 and not _filled(chunks[edge]):
            if _filled(new[edge]):
                return None
            del chunks[edge], new[edge]
    return Chunks(chunks, new) if all(_filled(chunk) for chunk in chunks) else None


def looks_numbered(lines: Sequence[str], form: Form) -> bool:
    """Whether the file itself has such numbers before what the search says: then they are text, not a tool's."""
    said = {line.strip() for line in to_lf(form.search).split("\n") if line.strip()}
    found = (_NUMBERED.match(line) for line in lines)
    return any(each is not None and each[2].strip(" ") == form.mark and each[3].strip() in said for each in found)


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
    search = "\n".join(_bare(line, mark, blank=blank) for line in lines)
    replace = "\n".join(_bare(line, mark, blank=blank) for line in form.replace.split("\n"))
    return Form(search, replace, mark.strip(" "))


def _bare(line: str, mark: str, *, blank: bool) -> str:
    found = _NUMBERED.match(line)
    if found is None or found[2] != mark:
        return line
    return found[3].removeprefix(" ") if blank else found[3]


def _unescaped(form: Form) -> Iterator[Form]:
    """The form with escapes undone: all kinds, then some only; of those that agree on the search, a sane replacement.

    Where only the replacement tells two readings apart, one that breaks a string over two lines is not taken.
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
