"""Compact: the page's modules without comments and needless spaces.

They make up a third of the sources, and a sixth of the compressed transfer. Statements keep their own lines, so that
the page can be read in a browser. A test compares each module with a parser's reading of its source.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+) | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*') | [\w$#]+ | .""",
    re.DOTALL | re.VERBOSE,
)
_PATTERN = re.compile(r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[\n])+/\w*")
"""A JavaScript regular expression."""

_TEXT = re.compile(r"((?:\\.|\$(?!\{)|[^\\`$])*)(`|\$\{)", re.DOTALL)
"""The text of a template up to its end, or up to the next value."""

_BEFORE_PATTERN = frozenset("(,=:[!&|?{};+-*%<>~^") | {"", "return", "typeof", "case", "in", "of", "await"}
"""Tokens after which a slash begins a regular expression and is not a division."""

_INDENT = re.compile(r"\n[ \t]+")


def compact(source: str) -> str:
    """Return the module without comments, indentation and needless spaces.

    Indentation also goes from `html` templates, where it means as much as a line break.
    """
    sent: list[str] = []
    holes: list[tuple[int, str]] = []  # open template values: open braces within, and the template's tag
    braces, before, place = 0, "", 0

    def text(place: int, tag: str) -> int:
        """Take the text of a template and return where it ends."""
        nonlocal braces, before
        found = _TEXT.match(source, place)
        if found is None:
            raise ValueError(f"a template does not end: {source[place : place + 80]!r}")
        sent.append((_INDENT.sub("\n", found[1]) if tag == "html" else found[1]) + found[2])
        before = found[2][-1]
        if before == "{":
            holes.append((braces, tag))
            braces = 0
        return found.end()

    while place < len(source):
        found = _PATTERN.match(source, place) if before in _BEFORE_PATTERN else None
        found = found or _TOKEN.match(source, place)
        if found is None:
            break  # not reached: a token is at least one character
        token, place = found[0], found.end()
        if found.lastgroup == "space":
            sent.append("\n" if "\n" in token else " " * _needs_space(before[-1:], source[place : place + 1]))
            continue
        sent.append(token)
        if token == "`":
            place = text(place, before)
        elif token == "}" and not braces and holes:
            braces, tag = holes.pop()
            place = text(place, tag)
        else:
            braces += (token == "{") - (token == "}")
            before = token if found.re is _TOKEN else "/x"
    return "".join(sent).lstrip("\n")


def _needs_space(before: str, after: str) -> bool:
    """Tell whether two tokens would merge without a space between them."""
    return (_is_word(before) and _is_word(after)) or (before == after and before in ("+", "-"))


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter in ("_", "$", "#")
