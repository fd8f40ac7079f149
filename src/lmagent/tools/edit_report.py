"""Refusals, in words that let a model put its search right at the next try."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
from lmagent.tools.edit_match import Target
from lmagent.tools.edit_text import block_lines, to_lf

Reason = Literal["empty", "unchanged", "missing", "ambiguous", "unshiftable"]

LISTED = 20
"""Places whose line numbers are listed."""

_SHOWN = 24  # lines of the closest region that are shown
_AROUND = 2  # lines of context around them
_WIDE = 200  # characters of a line that are shown
_DIFFERENCES = 5
_HITS = 50  # places of one line that are counted when the closest region is looked for
_SCANNED = 20_000  # lines that are compared word by word
_WORD = re.compile(r"\w+")


class EditRefused(ToolError):
    """The edit was not made; the message is for the model.

    Args:
        message: why, and what the file has instead.
        reason: `empty` search, `unchanged` text, `missing`, `ambiguous`, `unshiftable` replacement.
        lines: line numbers from 1: the places that fit, or the first and the last line of the closest region.
    """

    def __init__(self, message: str, *, reason: Reason, lines: Sequence[int] = ()) -> None:
        super().__init__(message, data={"code": reason, "lines": list(lines)})
        self.reason = reason
        self.lines = tuple(lines)


def empty() -> EditRefused:
    """The search is empty."""
    return EditRefused(
        "The search is empty, so it is not known where to edit. Give the text that is to be replaced.", reason="empty"
    )


def unchanged() -> EditRefused:
    """The edit would change nothing."""
    return EditRefused("Nothing would change: the replacement is what the file already has there.", reason="unchanged")


def unshiftable(line: str) -> EditRefused:
    """The replacement has a line that cannot be moved to the left as far as the search."""
    return EditRefused(
        "The search is indented more than the file's text, and the replacement cannot be moved to the left as far: "
        f"{_short(line)}\nCopy the indentation from the file, in both.",
        reason="unshiftable",
    )


def doubtful(first: int, last: int) -> EditRefused:
    """The replacement may be indented like the search, or like the file."""
    span = f"line {first}" if first == last else f"lines {first}-{last}"
    return EditRefused(
        f"The search was found at {span}, but with other indentation, and it is not plain whether the replacement has "
        "the file's already. Nothing was changed. Copy the indentation from the file, in both.",
        reason="unshiftable",
        lines=(first, last),
    )


def ambiguous(target: Target, lines: Sequence[int], *, more: bool = False) -> EditRefused:
    """The search fits several places, which start at these lines."""
    listed = list(dict.fromkeys(lines[:LISTED]))
    more = more or len(lines) > LISTED
    where = ", ".join(map(str, listed)) + (" and more" if more else "")
    count = f"more than {len(lines[:LISTED])}" if more else str(len(lines))
    shown = "\n".join(_numbered(target, line - 1) for line in listed[:5])
    return EditRefused(
        f"The search is found {count} times, at lines {where}:\n{shown}\n"
        "Add lines from before or after the one you mean until only it fits, or set replace_all.",
        reason="ambiguous",
        lines=listed,
    )


def missing(target: Target, search: str, replace: str) -> EditRefused:
    """The search is nowhere; shows the region that comes closest and in what it differs."""
    lines, _ = block_lines(search, old_mac=target.document.old_mac)
    lines = [line for line in lines if line.strip()]
    row = _closest(target, lines)
    if row is None:
        size = len(target.document.lines)
        about = "the file is empty" if not size else f"nothing in the file ({plural(size, 'line')}) is like it"
        return EditRefused(f"The search was not found: {about}. Read the file again.", reason="missing")
    last = min(row + max(len(lines), 1), len(target.rows)) - 1
    first_line, last_line = target.rows[row], target.rows[last]
    stop = min(last_line, first_line + _SHOWN - 1)
    numbered = range(max(first_line - _AROUND, 0), min(stop + _AROUND + 1, len(target.document.lines)))
    shown = "\n".join(_numbered(target, each) for each in numbered)
    span = f"line {first_line + 1}" if first_line == last_line else f"lines {first_line + 1}-{last_line + 1}"
    parts = [f"The search was not found. The closest region is {span}:\n{shown}"]
    parts += _differences(target, lines, row, last + 1)
    if (there := _already(target, replace)) is not None:
        parts.append(f"The replacement is already in the file, at line {there}.")
    parts.append("Copy the search exactly from the file.")
    return EditRefused("\n".join(parts), reason="missing", lines=(first_line + 1, last_line + 1))


def _closest(target: Target, lines: Sequence[str]) -> int | None:
    """The ordinal (of the file's non-blank lines) where the region begins that shares most with the search."""
    keys = target.keys_of(lines)
    wanted = set(keys)
    hits: dict[str, list[int]] = {}
    for at, key in enumerate(target.keys):
        if key in wanted and len(found := hits.setdefault(key, [])) < _HITS:
            found.append(at)
    votes: Counter[int] = Counter()
    for offset, key in enumerate(keys):
        for at in hits.get(key, ()):
            votes[max(at - offset, 0)] += min(len(key), 40) + 1
    if votes:
        return max(votes, key=lambda start: (votes[start], -start))
    return _closest_by_words(target, keys)


def _closest_by_words(target: Target, keys: Sequence[str]) -> int | None:
    best: tuple[float, int] = (0.0, 0)
    for offset, key in sorted(enumerate(keys), key=lambda each: -len(each[1]))[:2]:
        words = set(_WORD.findall(key))
        for at, line in enumerate(target.keys[:_SCANNED]):
            found = set(_WORD.findall(line))
            score = 2 * len(words & found) / (len(words) + len(found) or 1)
            if score > best[0]:
                best = (score, max(at - offset, 0))
    return best[1] if best[0] > 0 else None


def _differences(target: Target, lines: Sequence[str], first: int, stop: int) -> list[str]:
    """In words, where the search and the closest region part; indentation is no part of it, since that is bridged."""
    from difflib import SequenceMatcher

    lines, rows = lines[:_SHOWN], target.rows[first : min(stop, first + _SHOWN)]
    have = [target.document.lines[row].strip() for row in rows]
    want = [line.strip() for line in lines]
    said: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, want, have, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for count in range(max(b - a, d - c)):
            sought = _short(want[a + count]) if a + count < b else ""
            there = _short(have[c + count]) if c + count < d else ""
            where = f"line {rows[c + count] + 1}" if there else "not in the file"
            text = f"  {where}: " + "; ".join(
                part
                for part in (f"the file has {there}" if there else "", f"you gave {sought}" if sought else "")
                if part
            )
            said.append(text)
    if not said:
        return ["What differs is white space: indentation, or blanks inside of a string."]
    return ["What differs:", *said[:_DIFFERENCES]] + ([f"  … {len(said) - _DIFFERENCES} more"] if said[5:] else [])


def _already(target: Target, replace: str) -> int | None:
    text = to_lf(replace, old_mac=target.document.old_mac).strip("\n")
    at = target.lf.find(text) if len(text.strip()) > 3 else -1
    return target.lf.count("\n", 0, at) + 1 if at >= 0 else None


def _numbered(target: Target, row: int) -> str:
    line = target.document.lines[row] if row < len(target.document.lines) else ""
    return f"{row + 1:6d}\t{line if len(line) <= _WIDE else line[:_WIDE] + '…'}"


def _short(line: str) -> str:
    line = line.rstrip()
    return f"`{line if len(line) <= _WIDE else line[:_WIDE] + '…'}`"
