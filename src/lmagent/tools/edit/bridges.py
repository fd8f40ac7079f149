"""The differences between a search and a file that an edit may bridge, and how much each of them counts.

Folded text serves comparison only and is never written to a file. Blanks inside a string literal are not bridged; where
it is unclear whether text is inside a string, it counts as inside, since that mistake only costs a refusal.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

TRAIL, SHIFT, TABS, RUNS, BLANKS, TYPO, FIRST, INSIDE = 1, 2, 4, 8, 16, 32, 64, 128
"""One bit for each bridge. A bit counts more than all lower bits together, so the least sum is the least bridging."""

BRIDGES = (
    (SHIFT | TABS | FIRST, "indentation"),
    (TRAIL, "white space at line ends"),
    (RUNS, "runs of blanks"),
    (BLANKS, "blank lines"),
    (TYPO, "quotes, dashes or other typography"),
)
"""The text about each bridge for the model."""

_QUOTES = dict.fromkeys("‘’‚‛‹›", "'") | dict.fromkeys("“”„‟«»", '"')
_DASHES = dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
_BLANKS = dict.fromkeys(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
)
_TABLE = str.maketrans(_QUOTES | _DASHES | _BLANKS | {"…": "..."})
_LONG_TABLE = _TABLE | str.maketrans({"\u2014": "--"})
_DASH = "-" + "".join(_DASHES)
_DASH_RUN = re.compile(f"[{_DASH}]+")
_BLANK = " \t" + "".join(_BLANKS)
_UNIT = re.compile(r"(?P<blank>[ \t]+)|(?P<dash>-+)|(?P<dots>\.\.\.)|(?P<quote>['\"])|.[\u0300-\u036f]*", re.DOTALL)
_RUN = re.compile("([ \t]+)")


# Typography


def fold(text: str, *, long_dash: bool = False) -> str:
    """Compose `text` (NFC) and make its quotes, dashes, dots and blanks plain; an em dash is `--` if `long_dash`."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text).translate(_LONG_TABLE if long_dash else _TABLE)


def loose_keys(text: str) -> list[str]:
    """Return a key for each line of `text`; two lines that some bridge could join have equal keys.

    A run of hyphens counts as one, since it may be written for one long dash.
    """
    return [" ".join(line.split()) for line in _DASH_RUN.sub("-", fold(text)).split("\n")]


def loose_pattern(line: str) -> str:
    """Return a regular expression for all text that some bridge could make `line`, with single blanks for runs."""
    pieces = list[str]()
    for unit in _UNIT.finditer(fold(line)):
        if unit["blank"]:
            pieces.append(f"[{_BLANK}]+")
        elif unit["dash"]:
            pieces.append(f"[{_DASH}]+")
        elif unit["quote"]:
            pieces.append(f"[{''.join(char for char, plain in _QUOTES.items() if plain == unit[0])}{unit[0]}]")
        elif unit["dots"]:
            pieces.append(r"(?:\.\.\.|…)")
        else:
            composed = {re.escape(unicodedata.normalize(form, unit[0])) for form in ("NFC", "NFD")}
            pieces.append(f"(?:{'|'.join(composed)})" if len(composed) > 1 else re.escape(unit[0]))
    return "".join(pieces)


# String literals

_ALL = "all"  # state of a line that lies inside a string as a whole
_TOKEN = re.compile(r"\\.|\"\"\"|'''|`{3,}|[\"'`]")
_LASTING = ('"""', "'''", "`")
_PREFIX = re.compile(r"(?:^|[^\w])[rbfuRBFU]{1,2}$")


@lru_cache(maxsize=16)
def _strings(line: str, state: str) -> tuple[tuple[tuple[int, int], ...], str]:
    """Return the spans of `line` inside strings, and the quote that is still open at its end ('' if none).

    `state` is the quote that is open where the line starts, or `_ALL`.
    """
    if state == _ALL:
        return ((0, len(line)),), ""
    spans: list[tuple[int, int]] = []
    quote, start = state, 0
    for token in _TOKEN.finditer(line):
        mark = token[0]
        if quote:
            if mark == quote:
                spans.append((start, token.end()))
                quote = ""
        elif mark[0] != "\\" and not mark.startswith("```") and not _apostrophe(line, token.start(), mark):
            quote, start = mark, token.start()
    if quote:
        spans.append((start, len(line)))
    return tuple(spans), quote


def line_states(lines: Sequence[str]) -> list[str]:
    """Return for each line the string that it starts in, as `agree` needs it."""
    states: list[str] = []
    halves: list[int] = []
    state = ""
    for row, line in enumerate(lines):
        states.append(state)
        if not state and '"' not in line and "'" not in line and "`" not in line:
            continue
        _, left = _strings(line, state)
        state = left if left in _LASTING else ""
        if left == '"':
            halves.append(row)
    # A lone double quote may open a string that another lone one closes lines below (shell, SQL, Rust, YAML).
    for opening, closing in zip(halves[::2], halves[1::2], strict=False):
        states[opening + 1 : closing + 1] = [_ALL] * (closing - opening)
    return states


def unclosed(text: str) -> bool:
    """Return whether a line of `text` ends inside a string that cannot continue in the next line."""
    return any(_strings(line, "")[1] in ('"', "'") for line in text.split("\n"))


def _apostrophe(line: str, position: int, mark: str) -> bool:
    if mark != "'" or position == 0 or position + 1 >= len(line):
        return False
    between = line[position - 1].isalnum() and line[position + 1].isalnum()
    return between and not _PREFIX.search(line[:position][-4:])


# Lines


def agree(line: str, start: int, stop: int, want: str, state: str) -> int | None:
    """Return the bridges (RUNS, TYPO) that make `line[start:stop]` the text `want`; None if they do not suffice.

    `state` is the string literal that the line starts in, see `line_states`.
    """
    have = line[start:stop]
    if have == want:
        return 0
    if _same_words(have, want) and _free_runs(line, start, have, want, state):
        return RUNS
    if have.isascii() and want.isascii():
        return None
    for long_dash in (False, True):
        folded, sought = fold(have, long_dash=long_dash), fold(want, long_dash=long_dash)
        if folded == sought:
            return TYPO
        if _same_words(folded, sought):
            whole, margin = fold(line, long_dash=long_dash), len(fold(line[:start], long_dash=long_dash))
            if _free_runs(whole, margin, folded, sought, state):
                return TYPO | RUNS
    return None


def compare(line: str, want: str, state: str) -> tuple[int, str, str] | None:
    """Return the bridges that make two lines equal, and the indentation of both; None if no bridges do.

    The indentations are not compared: how they relate is a question about all lines of a place (`relate`).
    """
    have, sought = line.rstrip(), want.rstrip()
    bits = TRAIL if line[len(have) :] != want[len(sought) :] else 0
    plain, plain_sought = _plain_lead(have), _plain_lead(sought)
    bits |= TYPO if (plain, plain_sought) != (have, sought) else 0
    body = plain_sought.lstrip(" \t")
    margin = len(plain) - len(plain.lstrip(" \t"))
    agreed = agree(plain, margin, len(plain), body, state)
    return None if agreed is None else (bits | agreed, plain[:margin], indent_of(plain_sought))


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _plain_lead(line: str) -> str:
    body = line.lstrip()
    return fold(line[: len(line) - len(body)]) + body


def _same_words(have: str, want: str) -> bool:
    return _RUN.split(have)[::2] == _RUN.split(want)[::2]


def _free_runs(line: str, start: int, have: str, want: str, state: str) -> bool:
    """Return whether every run of blanks that differs is outside of string literals."""
    inside = _strings(line, state)[0]
    for run, sought in zip(_RUN.finditer(have), _RUN.findall(want), strict=True):
        if run[0] != sought:
            after = bisect_left(inside, (start + run.end(), 0))  # strings before this one begin before the run ends
            if after and inside[after - 1][1] > start + run.start():
                return False
    return True


# Indentation

_UNITS = (4, 2, 8, 3)
Pairs = Sequence[tuple[str, str]]


class Unshiftable(Exception):
    """A line of the replacement is indented less than it would have to be moved to the left."""


class Indent(Struct, frozen=True):
    """The change of indentation of each new line.

    `add` is put before the line or `drop` is removed from it; or, with `unit` columns a tab, `delta` columns are added
    and the result is written in tabs (`tabs`) or spaces. `first` is the indentation of a first line that has none.
    """

    add: str = ""
    drop: str = ""
    unit: int = 0
    delta: int = 0
    tabs: bool = False
    first: str = ""

    @property
    def moves(self) -> bool:
        """Whether all lines are moved, to the left or to the right."""
        return bool(self.add or self.drop or self.delta)

    def adapt(self, line: str, *, is_first: bool) -> str:
        """Return `line` of the new text as the file would indent it; raises `Unshiftable`."""
        body = line.lstrip(" \t")
        if not body:
            return line if not self.drop and not self.unit else ""
        if is_first and self.first and body == line:
            return self.first + line
        if self.unit:
            columns = width(indent_of(line), self.unit) + self.delta
            if columns < 0:
                raise Unshiftable(line)
            tabs = columns // self.unit if self.tabs else 0
            return "\t" * tabs + " " * (columns - tabs * self.unit) + body
        if not line.startswith(self.drop):
            raise Unshiftable(line)
        return self.add + line[len(self.drop) :]


def width(indent: str, unit: int) -> int:
    """Return the columns of `indent` with `unit` columns a tab."""
    return len(indent) + indent.count("\t") * (unit - 1)


def relate(pairs: Pairs, fresh: Iterable[str]) -> tuple[int, Indent] | None:
    """Return the bridges and the one plan that makes the search's indentation the file's; None if no plan does.

    Args:
        pairs: the file's and the search's indentation, for each matched line that is not blank.
        fresh: lines of the new text, for guessing the width of a tab.
    """
    if all(have == want for have, want in pairs):
        return 0, Indent()
    have, want = pairs[0]
    if have.endswith(want) and all(h == have[: len(have) - len(want)] + w for h, w in pairs):
        return SHIFT, Indent(add=have[: len(have) - len(want)])
    if want.endswith(have) and all(w == want[: len(want) - len(have)] + h for h, w in pairs):
        return SHIFT, Indent(drop=want[: len(want) - len(have)])
    headless = len(pairs) > 1 and not want and have != ""
    if not any("\t" in h or "\t" in w for h, w in pairs):
        return None
    return _retab(pairs, fresh, headless=headless)


def _retab(pairs: Pairs, fresh: Iterable[str], *, headless: bool) -> tuple[int, Indent] | None:
    tabs = any("\t" in have for have, _ in pairs)
    spaced = [want for _, want in pairs] + [indent_of(line) for line in fresh] if tabs else [have for have, _ in pairs]
    step = math.gcd(*(len(indent) for indent in spaced if "\t" not in indent))
    units = dict.fromkeys([step, *_UNITS] if 1 < step < 9 else _UNITS)
    deltas = {unit: [width(have, unit) - width(want, unit) for have, want in pairs] for unit in units}
    for unit in units:
        if not any(deltas[unit]):
            return TABS, Indent(unit=unit, tabs=tabs)
    for unit in units:
        if len(set(deltas[unit])) == 1:
            return TABS | SHIFT, Indent(unit=unit, delta=deltas[unit][0], tabs=tabs)
    for unit in units:
        if headless and not any(deltas[unit][1:]):
            return TABS | FIRST, Indent(unit=unit, tabs=tabs, first=pairs[0][0])
    return None
