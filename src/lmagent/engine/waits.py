"""Waits: the moment that a model means by `WAIT: <time>: <reason>`.

    WAIT: 2026-03-01T09:00:00Z: the market opens            UTC; an offset (+02:00) likewise
    WAIT: 2026-03-01T09:00: the market opens                this machine's time zone
    WAIT: 2026-03-01T09:00[Europe/Berlin]: …                that time zone
    WAIT: +30m: …     WAIT: in 2 hours: …                   from now

A time that the clocks skip (the jump to summer time) moves forward by the jump; a time that comes twice is the first of
the two (PEP 495, fold 0).
"""

from __future__ import annotations

import re
from datetime import datetime

from msgspec import Struct

FARTHEST = 366 * 86400
"""Cap on a session's wait, in seconds."""

FORMS = "write WAIT: 2026-03-01T09:00:00Z: reason, or WAIT: +30m: reason"

_MOMENT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)"
    r"\s*(?P<offset>[Zz]\b|UTC\b|[+-]\d\d(?::?\d\d)?\b)?\s*(?:\[(?P<zone>[^\]\n]*)\]|(?P<name>[A-Z]\w+/[\w/+-]+))?"
)
_FROM_NOW = re.compile(
    r"(?:\+|in\s|for\s)?\s*(?P<count>\d{1,9})\s*(?P<unit>s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)\b",
    re.IGNORECASE,
)
_LEAD = re.compile(r"(?:until|till|at|on)\s+", re.IGNORECASE)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_EDGES = " \t*_`"
_BREAKS = ":,;.-–—("
"""A time and its reason are separated by one of these. Other text there may belong to the time, so it is refused."""


class Moment(Struct, frozen=True):
    """When a session continues, in Unix seconds, and why it waits."""

    until: float
    reason: str


INSIDE = f"WAIT: has to begin its line; {FORMS}."


def read_wait(text: str, now: float) -> Moment | str:
    """Parse the text after `WAIT:`; return why it is refused, for the model. `now` is in Unix seconds."""
    stripped = _LEAD.sub("", text.strip(_EDGES), count=1)
    if found := _FROM_NOW.match(stripped):
        moment: float | str = now + int(found["count"]) * _UNITS[found["unit"][0].lower()]
    elif found := _MOMENT.match(stripped):
        moment = _moment(found)
    else:
        return f"{_first_words(stripped)!r} is no time; {FORMS}."
    if isinstance(moment, str):
        return moment
    if moment > now + FARTHEST:
        return f"{found[0].strip()!r} is more than a year from now, and nothing here waits that long."
    rest = stripped[found.end() :].lstrip(_EDGES)
    if rest and rest[0] not in _BREAKS:
        return f"it is not clear what {_first_words(rest)!r} behind the time means; {FORMS}."
    reason = rest.lstrip(_EDGES + _BREAKS).rstrip(_EDGES)
    return Moment(moment, reason or "no reason given")


def local(moment: float) -> str:
    """Return a moment in this machine's time zone, to the second, as ISO 8601."""
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")


def _moment(found: re.Match[str]) -> float | str:
    offset, zone = (found["offset"] or "").upper().replace("UTC", "Z"), found["zone"] or found["name"]
    try:
        time = datetime.fromisoformat(f"{found['day']}T{found['time'].replace(',', '.')}{offset}")
        if not offset and (zone is not None or found["zone"] is not None):
            from zoneinfo import ZoneInfo  # takes 3 ms: only for a wait with a zone

            time = time.replace(tzinfo=ZoneInfo((zone or "").strip()))
        return time.timestamp()
    except (KeyError, ValueError, OSError, OverflowError):  # OSError: a path that is no file of the time zones
        return f"{found[0].strip()!r} is no time that is known here; {FORMS}."


def _first_words(text: str) -> str:
    return text.split("\n", 1)[0][:60]
