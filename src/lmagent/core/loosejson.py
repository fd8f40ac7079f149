"""Values: JSON in the forms that models write.

The strict parser (the standard library's, in C) goes first; a text that it refuses is read again by one that tolerates
single and typographic quotes, Python's words, trailing and missing commas, bare keys, line breaks, quotes and unknown
escapes inside strings, and, if the call's wrapper is closed, missing brackets at the end. It never closes a string
and never invents a value: a value that is not plainly complete is `Cut` (the text ends inside it) or `Broken`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from lmagent.core.decoding import mend
from lmagent.core.patterns import late

_DEPTH = 80
_DEEP = 10_000
_WINDOW = 4096
_SPLIT = 16
_BLANK = r"\s*(?:(?://[^\n]*\n|/\*(?:[^*]|\*(?!/)){0,300}\*/)\s*)*"
_SPACE = late(_BLANK)
_WORD = late(r"[-+.\w]+")
_KEY = late(r"[A-Za-z_$][\w$.-]*(?=\s*:)")
_NEXT_KEY = late(
    _BLANK + r"""(?:["'“‘][^"'“”‘’\n]{0,100}["'”’“]\s*:|[A-Za-z_$][\w$-]*\s*:|[}\]]|["'“‘][^"'“”‘’\n]{0,100}\Z)"""
)
_NEXT_ITEM = late(r"""\s*(?:["'“‘\[{\d\]-]|true\b|false\b|null\b|None\b|True\b|False\b)""")
_CLOSING = {'"': '"', "'": "'", "“": '”"“', "”": '”"', "‘": "’'‘", "’": "’'", "`": "`"}
_PIECE = {mark: late(f"[{re.escape(ends)}\\\\]") for mark, ends in _CLOSING.items()}
_CLOSES = late(r"/|end|END|suffix")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_HOLDERS = ("arguments", "parameters", "args", "params", "input")
_UNESCAPED = late(r"""["']\{\s*["']\w""")
_RAW = late(
    r"""(?P<marks>\"{3}|'{3})(?P<long>(?:[^\\]|\\.)*?)(?P=marks)|(?P<mark>["'])(?P<short>(?:(?!(?P=mark))[^\\\n]|\\.)*)(?P=mark)""",
    re.DOTALL,
)
_HEX = late(r"u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_strict: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(strict=False).raw_decode


class Cut(Exception):
    """The text ends inside the value; `at` is where the unfinished string begins, or the end."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Broken(Exception):
    """The value is damaged at `at`, in a string at its beginning."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.at = at


def strict(text: str, at: int) -> tuple[Any, int] | int:
    """Return the value at `at` and its end, by the rules of JSON (control characters in strings are allowed).

    Without a value, return how far the parser got, as a measure of its work.
    """
    size = _WINDOW
    while True:
        # A slice, since the parser's errors count the lines before them: on a long text that would be quadratic.
        part = text[at : at + size]
        whole = at + size >= len(text)
        try:
            value, end = _strict(part, 0)
        except json.JSONDecodeError as error:
            unclosed = error.msg.startswith("Unterminated")
            if whole or not (unclosed or error.pos >= size - _SPLIT):
                return len(part) if unclosed else max(error.pos, 1)
        except (ValueError, RecursionError):
            return _DEEP
        else:
            return value, at + end
        size *= 4


def completed(text: str, at: int, stops: tuple[str, ...] = ()) -> tuple[Any, int, bool]:
    """Return the value at `at` by the tolerant rules, its end, and whether it ends in a string that markup may have cut
    short.

    Args:
        text: the whole text.
        at: where the value begins.
        stops: markup that ends the call: in place of a bracket it closes everything that is open.

    Raises:
        Cut: the text ends first.
        Broken: it cannot be read.
    """
    reader = Loose(text, stops)
    value, end = reader.value(at)
    if not reader.stopped or text[:end].rstrip()[-1:] in "}]":
        return value, end, False
    word = next((word for word in stops if text.startswith(word, end)), "")
    if word[:1] in ("<", "[") and not _CLOSES.search(word):
        raise Broken("a closing brace is missing, and another call begins", end)
    return value, end, True


_FENCE = late(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)
_LEFT_OVER = late(r"[\s\]});,]*")


def read_whole(text: str) -> tuple[bool, Any]:
    """Return (True, the value) if the text is one JSON value with nothing but extra brackets after it, or a fence with
    one; else (False, None).
    """
    text = text.strip()
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1]
    try:
        found = strict(text, 0)
        value, end = completed(text, 0)[:2] if isinstance(found, int) else found
    except (Cut, Broken):
        return False, None
    return (True, value) if _LEFT_OVER.fullmatch(text, end) and is_json(value) else (False, None)


def is_json(value: Any) -> bool:
    """Return whether JSON can represent a value: no infinity, no NaN."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return True


def fault_in(raw: str) -> str:
    """Describe where the strict rules of JSON are broken first, for the model."""
    try:
        json.loads(raw)
    except json.JSONDecodeError as error:
        return f"{error.msg} at line {error.lineno} column {error.colno} (character {error.pos} of {len(raw)})"
    except RecursionError:
        return "nested too deeply"
    except ValueError:
        return "a number has too many digits"
    return "not a JSON object"


class Loose:
    """The tolerant reader.

    Args:
        text: the whole text.
        stops: see `completed`.
        python: the first unescaped quote ends a string, as in Python, and `(…)` is a list.

    Attributes:
        stopped: brackets were missing at the end, and markup closed them.
    """

    def __init__(self, text: str, stops: tuple[str, ...] = (), *, python: bool = False) -> None:
        self._text = text
        self._end = len(text)
        self._stops = stops
        self._python = python
        self.stopped = False

    def space(self, at: int) -> int:
        """Return the first place from `at` that is not blank."""
        found = _SPACE.match(self._text, at)
        return found.end() if found else at

    def value(self, at: int, depth: int = 0, role: str = "") -> tuple[Any, int]:
        """Return the value at `at` and its end."""
        if at >= self._end:
            raise Cut(at)
        if depth > _DEPTH:
            raise Broken("nested too deeply", at)
        mark = self._text[at]
        if mark == "{":
            return self._object(at, depth)
        if mark == "[" or (mark == "(" and self._python):
            return self._array(at, depth, "]" if mark == "[" else ")")
        if mark in _CLOSING:
            return self.string(at, role)
        if self._python and self._text[at + 1 : at + 2] in ('"', "'") and mark in "ruRU":
            return self._raw(at + 1) if mark in "rR" else self.string(at + 1, role)
        return self._bare(at)

    def string(self, at: int, role: str = "") -> tuple[str, int]:
        """Return the string at `at` and its end. `role` is its place: "key", "member", "item" or nothing."""
        text, mark = self._text, self._text[at]
        if text.startswith(mark * 3, at) and mark in "\"'":
            return self._triple(at, mark * 3)
        piece = _PIECE[mark]
        out: list[str] = []
        start, at, inner = at, at + 1, 0
        while found := piece.search(text, at):
            out.append(text[at : found.start()])
            at = found.start()
            if text[at] == "\\":
                escaped, at = self._escape(at + 1)
                out.append(escaped)
            elif self._python or self._ends(at + 1, role):
                if inner % 2:
                    raise Broken("a quotation mark inside a string is not escaped", start)
                return mend("".join(out)), at + 1
            else:
                inner += self._inner(at, start, role, inner)
                out.append(text[at])
                at += 1
        raise Cut(start)

    def _raw(self, at: int) -> tuple[str, int]:
        """Read a string of Python without escapes, from its mark on."""
        found = _RAW.match(self._text, at)
        if found is None:
            raise Cut(at)
        return found["long"] or found["short"] or "", found.end()

    def _inner(self, at: int, start: int, role: str, inner: int) -> int:
        """Return 1 for a quotation mark that can only be text, 0 for an apostrophe: they must come in pairs.

        Raises Broken if it may as well be the end of the string.
        """
        text = self._text
        behind = self.space(at + 1)
        before, after = text[at - 1], text[at + 1 : at + 2]
        if text[at] in "'’" and before.isalnum() and after.isalnum():
            return 0
        opens = inner % 2 == 0 and at - 1 > start
        if role == "key" or text[behind : behind + 1] == ":" or (opens and before.isalnum()):
            raise Broken("a quotation mark is missing, or one too many", start)
        return 1

    def _triple(self, at: int, marks: str) -> tuple[str, int]:
        end = self._text.find(marks, at + 3)
        if end < 0:
            raise Cut(at)
        while self._text.startswith(marks[0], end + 3):
            end += 1
        return self._text[at + 3 : end], end + 3

    def _ends(self, at: int, role: str) -> bool:
        """Whether a quotation mark before `at` ends its string, judged by the text after it."""
        at = self.space(at)
        if at >= self._end:
            return True
        mark = self._text[at]
        if role == "key":
            return mark == ":"
        if role == "member":
            if mark == ",":
                return bool(_NEXT_KEY.match(self._text, at + 1)) or self.space(at + 1) >= self._end
            return mark == "}" or self._stopped(at) or (mark in _CLOSING and bool(_NEXT_KEY.match(self._text, at)))
        if role == "item":
            if mark == ",":
                return bool(_NEXT_ITEM.match(self._text, at + 1)) or self.space(at + 1) >= self._end
            return mark == "]" or self._stopped(at)
        return True

    def _stopped(self, at: int) -> bool:
        return bool(self._stops) and self._text.startswith(self._stops, at)

    def _escape(self, at: int) -> tuple[str, int]:
        """Return the character of an escape; an unknown escape is kept (a Windows path, a pattern)."""
        mark = self._text[at : at + 1]
        if not mark:
            raise Cut(at)
        if found := _HEX.match(self._text, at):
            return chr(int(found[1] or found[2], 16)), found.end()
        return _ESCAPES.get(mark, "\\" + mark), at + 1

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        out: dict[str, Any] = {}
        at = self.space(at + 1)
        while True:
            if at >= self._end:
                raise Cut(at)
            mark = self._text[at]
            if mark == "}":
                return out, at + 1
            if mark == ",":
                at = self.space(at + 1)
                continue
            if out and self._stopped(at):
                self.stopped = True
                return out, at
            key, at = self._key(at)
            at = self.space(at)
            if at >= self._end:
                raise Cut(at)
            if self._text[at] != ":":
                raise Broken("a colon is missing", at)
            at = self.space(at + 1)
            wrapped = self._wrapped(at, depth) if key in _HOLDERS else None
            out[key], at = wrapped or self.value(at, depth + 1, "member")
            at = self.space(at)
            mark = self._text[at : at + 1]
            if mark and mark not in ",}" and not self._stopped(at) and not _NEXT_KEY.match(self._text, at):
                raise Broken("a comma or a closing brace is missing", at)

    def _wrapped(self, at: int, depth: int) -> tuple[Any, int] | None:
        """Read arguments that are JSON in a string in which nothing was escaped."""
        if not _UNESCAPED.match(self._text, at):
            return None
        try:
            value, end = self._object(at + 1, depth + 1)
        except (Broken, Cut):
            return None
        return (value, end + 1) if self._text[end : end + 1] == '"' else None

    def _key(self, at: int) -> tuple[str, int]:
        if self._text[at] in _CLOSING:
            return self.string(at, "key")
        if found := _KEY.match(self._text, at):
            return found[0], found.end()
        raise Broken("a key is missing", at)

    def _array(self, at: int, depth: int, closing: str) -> tuple[list[Any], int]:
        out: list[Any] = []
        at = self.space(at + 1)
        while True:
            if at >= self._end:
                raise Cut(at)
            mark = self._text[at]
            if mark == closing:
                return out, at + 1
            if mark == ",":
                at = self.space(at + 1)
                continue
            if out and self._stopped(at):
                self.stopped = True
                return out, at
            item, at = self.value(at, depth + 1, "item")
            out.append(item)
            at = self.space(at)
            if at < self._end and self._text[at] not in (",", closing) and not self._stopped(at):
                raise Broken("a comma or a closing bracket is missing", at)

    def _bare(self, at: int) -> tuple[Any, int]:
        found = _WORD.match(self._text, at)
        if found is None:
            raise Broken("a value is missing", at)
        word = found[0]
        if word in _WORDS:
            return _WORDS[word], found.end()
        if found.end() >= self._end:
            raise Cut(at)
        for kind in (int, float):
            if len(word) <= 400 and word[-1:].isdigit():
                try:
                    return kind(word), found.end()
                except ValueError:
                    continue
        raise Broken(f"{word[:40]!r} is no value", at)
