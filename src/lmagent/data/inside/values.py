"""Values: what a cell holds, in the words of the answer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, cast

LONGEST_CELL = 200
"""Characters of a cell that are shown."""

LONGEST_NAME = 80
"""Characters of a column's name that are shown."""

_INTEGER = re.compile(r"[+-]?(?:0|[1-9]\d{0,37})")
"""A longer one is a name: no library would keep all its digits."""

_FLOAT = re.compile(r"[+-]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATETIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_NUMBERS = ("integer", "float", "decimal")


class DataError(Exception):
    """The file or the request cannot be used; its text is for the model."""


class TimeUp(Exception):
    """The time for a pass over the file is over."""


class TimeLimit:
    """The time that a pass over the file may take."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        if time.monotonic() > self._end:
            raise TimeUp


def cell(value: Any) -> str | None:
    """Return the text of a value, cut to a length; None for a null."""
    if value is None:
        return None
    text = _text(value)
    if len(text) <= LONGEST_CELL:
        return text
    return f"{text[:LONGEST_CELL]}… ({len(text):,} characters)"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format(value, ".15g")
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(cast("bytes", value))
        return f"0x{data[:16].hex()}{'…' if len(data) > 16 else ''} ({len(data):,} bytes)"
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def type_of(value: Any) -> str:
    """Return the type of a value that has one."""
    for kinds, name in _TYPES:
        if isinstance(value, kinds):
            return name
    return "other"


_TYPES: tuple[tuple[Any, str], ...] = (
    (str, "text"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "float"),
    (Decimal, "decimal"),
    (datetime, "datetime"),
    (date, "date"),
    (time_of_day, "time"),
    (timedelta, "duration"),
    ((bytes, bytearray, memoryview), "binary"),
    (dict, "object"),
    ((list, tuple), "list"),
)


def type_of_text(text: str) -> str:
    """Return the type that a text of a CSV file looks like. Numbers with leading zeros are names, and so text."""
    if _INTEGER.fullmatch(text):
        return "integer"
    if _FLOAT.fullmatch(text) and not re.match(r"[+-]?0\d", text):
        return "float"
    if text.lower() in ("true", "false"):
        return "boolean"
    if _DATE.fullmatch(text):
        return "date"
    return "datetime" if _DATETIME.fullmatch(text) else "text"


def merged(types: Iterable[str]) -> str:
    """Return the one type of a column whose values have these types."""
    found = set(types)
    if len(found) <= 1:
        return next(iter(found), "empty")
    if found <= set(_NUMBERS):
        return "float" if "float" in found else "decimal"
    if found == {"date", "datetime"}:
        return "datetime"
    return "text" if "text" in found else "mixed"


def guessed(rows: Sequence[Sequence[Any]], width: int, judge: Callable[[Any], str]) -> list[str]:
    """Return the types of the columns of some rows."""
    return [merged(judge(row[at]) for row in rows if row[at] is not None) for at in range(width)]


def is_number(name: str) -> bool:
    return name in _NUMBERS


def unique(names: Iterable[Any]) -> list[str]:
    """Return names for columns: none is empty, and none comes twice."""
    found: list[str] = []
    taken: dict[str, int] = {}  # names in lower case, and the last number that was given to each
    for at, given in enumerate(names, 1):
        name = base = " ".join(str(given if given is not None else "").split()) or f"column{at}"
        while name.lower() in taken:
            number = taken[base.lower()] = taken.get(base.lower(), 1) + 1
            name = f"{base}_{number}"
        taken.setdefault(name.lower(), 1)
        found.append(name)
    return found
