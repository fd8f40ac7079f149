"""Refusals of an edit, worded so that a model can correct its search at the next try."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
from lmagent.tools.edit.bridges import loose_keys

if TYPE_CHECKING:
    from lmagent.tools.edit.places import EditText

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
    """The edit was not made; `lines` are the places that fit, or the first and the last line of the closest region."""

    def __init__(self, message: str, *, reason: Reason, lines: Sequence[int] = ()) -> None:
        super().__init__(message, data={"code": reason, "lines": list(lines)})
        self.reason = reason
        self.lines = tuple(lines)


def empty() -> EditRefused:
    return EditRefused(
        "The search is empty, so it is not known where to edit. Give the text that is to be replaced.", reason="empty"
    )


def unchanged() -> EditRefused:
    return EditRefused("Nothing would change: the replacement is what the file already has there.", reason="unchanged")


def unshiftable(line: str) -> EditRefused:
    """Refuse a replacement with a line that cannot be moved to the left as far as the search."""
    return EditRefused(
        "The search is indented more than the file's text, and the replacement cannot be moved to the left as far: "
        f"{_short(line)}\nCopy the indentation from the file, in both.",
        reason="unshiftable",
    )


def doubtful(first: int, last: int) -> EditRefused:
    """Refuse a replacement that may be indented like the search or like the file; rows are from 0."""
    span = f"line {first + 1}" if first == last else f"lines {first + 1}-{last + 1}"
    return EditRefused(
        f"The search was found at {span}, but with other indentation, and it is not plain whether the replacement has "
        "the file's already. Nothing was changed. Copy the indentation from the file, in both.",
        reason="unshiftable",
        lines=(first + 1, last + 1),
    )


def ambiguous(lines: Sequence[str], rows: Sequence[int], *, more: bool = False) -> EditRefused:
    """Refuse a search that fits several places of `lines`, which start at these rows (from 0)."""
    listed = [row + 1 for row in dict.fromkeys(rows[:LISTED])]
    more = more or len(rows) > LISTED
    where = ", ".join(map(str, listed)) + (" and more" if more else "")
    count = f"more than {len(rows[:LISTED])}" if more else str(len(rows))
    shown = "\n".join(_numbered(lines, line - 1) for line in listed[:5])
    return EditRefused(
        f"The search is found {count} times, at lines {where}:\n{shown}\n"
        "Add lines from before or after the one you mean until only it fits, or set replace_all.",
        reason="ambiguous",
        lines=listed,
    )


def missing(text: EditText, search: str, replace: str) -> EditRefused:
    """Refuse a search that is not in the file; show the region that comes closest and how it differs."""
    wanted = [line for line in search.split("\n") if line.strip()]
    start = _closest(text.keys, [key for key in loose_keys("\n".join(wanted)) if key])
    if start is None:
        size = len(text.lines)
        about = "the file is empty" if not size else f"nothing in the file ({plural(size, 'line')}) is like it"
        return EditRefused(f"The search was not found: {about}. Read the file again.", reason="missing")
    rows = text.rows[start : start + max(len(wanted), 1)]
    first, last = rows[0], rows[-1]
    stop = min(last, first + _SHOWN - 1)
    numbered = range(max(first - _AROUND, 0), min(stop + _AROUND + 1, len(text.lines)))
    shown = "\n".join(_numbered(text.lines, each) for each in numbered)
    span = f"line {first + 1}" if first == last else f"lines {first + 1}-{last + 1}"
    parts = [f"The search was not found. The closest region is {span}:\n{shown}"]
    parts += _differences(text.lines, wanted[:_SHOWN], rows[:_SHOWN])
    new = replace.strip("\n")
    at = text.lf.find(new) if len(new.strip()) > 3 else -1
    if at >= 0:
        parts.append(f"The replacement is already in the file, at line {text.lf.count(chr(10), 0, at) + 1}.")
    parts.append("Copy the search exactly from the file.")
    return EditRefused("\n".join(parts), reason="missing", lines=(first + 1, last + 1))


def _closest(keys: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return the index in `keys` at which the region begins that shares most lines, or else words, with the search."""
    sought = set(wanted)
    hits: dict[str, list[int]] = {}
    for at, key in enumerate(keys):
        if key in sought and len(found := hits.setdefault(key, [])) < _HITS:
            found.append(at)
    votes: Counter[int] = Counter()
    for offset, key in enumerate(wanted):
        for at in hits.get(key, ()):
            votes[max(at - offset, 0)] += min(len(key), 40) + 1
    if votes:
        return max(votes, key=lambda start: (votes[start], -start))
    best = (0.0, 0)
    for offset, key in sorted(enumerate(wanted), key=lambda each: -len(each[1]))[:2]:
        words = set(_WORD.findall(key))
        for at, line in enumerate(keys[:_SCANNED]):
            found = set(_WORD.findall(line))
            score = 2 * len(words & found) / (len(words) + len(found) or 1)
            if score > best[0]:
                best = (score, max(at - offset, 0))
    return best[1] if best[0] > 0 else None


def _differences(lines: Sequence[str], wanted: Sequence[str], rows: Sequence[int]) -> list[str]:
    """Name the lines in which search and region differ, without indentation, since that is bridged."""
    from difflib import SequenceMatcher  # most edits match at once

    have = [lines[row].strip() for row in rows]
    want = [line.strip() for line in wanted]
    listed: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, want, have, autojunk=False).get_opcodes():
        for count in range(max(b - a, d - c) if kind != "equal" else 0):
            sought = f"you gave {_short(want[a + count])}" if a + count < b else ""
            there = f"the file has {_short(have[c + count])}" if c + count < d else ""
            where = f"line {rows[c + count] + 1}" if there else "not in the file"
            listed.append(f"  {where}: " + "; ".join(filter(None, (there, sought))))
    if not listed:
        return ["What differs is white space: indentation, or blanks inside of a string."]
    more = len(listed) - _DIFFERENCES
    return ["What differs:", *listed[:_DIFFERENCES], *([f"  … {more} more"] if more > 0 else [])]


def _numbered(lines: Sequence[str], row: int) -> str:
    line = lines[row] if row < len(lines) else ""
    return f"{row + 1:6d}\t{line if len(line) <= _WIDE else line[:_WIDE] + '…'}"


def _short(line: str) -> str:
    line = line.rstrip()
    return f"`{line if len(line) <= _WIDE else line[:_WIDE] + '…'}`"
