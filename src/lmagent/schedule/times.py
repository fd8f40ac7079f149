"""Times: the meaning of a schedule's text, and when it is due.

every 30s   every 5m   every 2h   every 1d     counted from 1970-01-01T00:00Z, so that every process agrees
daily 09:00   hourly :15                       in the job's time zone
0 3 * * MON-FRI                                five fields: minute hour day month weekday, in the job's time zone
startup                                        once when a scheduler starts and no other one runs

Where the clocks jump, Debian's cron is followed (cron(8)): a job at a fixed time that does not exist runs at the next
time that does, and one whose time comes twice runs once. Anything else is an error: nothing is guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

FORMS = "every 30s|5m|2h|1d, daily HH:MM, hourly :MM, startup, or five cron fields such as 0 3 * * MON-FRI"

Kind = Literal["every", "calendar", "startup"]

_EVERY = re.compile(r"every\s+(\d{1,9})\s*([smhd])", re.IGNORECASE)
_DAILY = re.compile(r"daily\s+([01]?\d|2[0-3]):([0-5]\d)", re.IGNORECASE)
_HOURLY = re.compile(r"hourly\s+:([0-5]\d)", re.IGNORECASE)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

# An iteration starts this much earlier, before any jump of the clocks that could matter: so due times do not depend on
# the start.
_RUN_UP = timedelta(hours=4)

# Seconds in which the latest due time is looked for; the first window that contains one contains few.
_WINDOWS = (3600, 86400, 32 * 86400, 400 * 86400)


class Schedule(Struct, frozen=True):
    """When a job is due."""

    text: str
    zone: str = "UTC"
    kind: Kind = "startup"  # `every` so many seconds, `calendar` by the fields of a cron line, `startup`
    seconds: int = 0
    line: str = ""

    def times(self, after: float) -> Iterator[int]:
        """Yield the due times after `after` (Unix seconds, exclusive), in order."""
        match self.kind:
            case "every":
                first = int(after // self.seconds + 1) * self.seconds
                yield from range(first, 1 << 40, self.seconds)
            case "calendar":
                yield from self._calendar(after)
            case "startup":
                return

    def next(self, after: float) -> int | None:
        """Return the first due time after `after`; None for never."""
        return next(self.times(after), None)

    def between(self, after: float, until: float, most: int) -> list[int]:
        """Return the first `most` due times in (after, until]."""
        return list(takewhile(lambda time: time <= until, islice(self.times(after), most)))

    def latest(self, after: float, until: float, most: int) -> list[int]:
        """Return the last `most` due times in (after, until], in order."""
        if self.kind == "every":
            after = max(after, until - most * self.seconds)
            return self.between(after, until, most + 1)[-most:]
        found: list[int] = []
        for window in (*_WINDOWS, until - after):
            begin = max(after, until - window)
            found = self.between(begin, until, int(until - begin) // 60 + 2)
            if len(found) >= most or begin == after:
                break
        return found[-most:]

    def _calendar(self, after: float) -> Iterator[int]:
        begin = datetime.fromtimestamp(after, UTC) - _RUN_UP
        last = int(after)
        for time in HourSteps(self.line, begin.astimezone(zone_of(self.zone))):
            moment = int(time.timestamp())
            if moment > last and moment > after:
                last = moment
                yield moment


class HourSteps(CronSim):
    """Goes from hour to hour by the clock on the wall.

    cronsim 2.8 goes by 3,600 seconds. Where the clocks went back by half an hour in between (Lord Howe Island), that
    is half past, and the next full hour that fits is passed over.
    """

    def advance_hour(self) -> bool:
        if self.dt.hour in self.hours:
            return False
        self.dt = self.dt.replace(minute=0, second=0)
        while self.dt.hour not in self.hours:
            self.tick(seconds=3600 - 60 * self.dt.minute)
            if self.dt.hour == 0:
                break
        return True


def parse_schedule(text: str, zone: str = "UTC") -> Schedule:
    """Read the text of a schedule, whose times are meant in the time zone of an IANA name.

    Raises ValueError: its form or time zone is unknown, or it is never due; with the reason.
    """
    zone_of(zone)
    plain = text.strip()
    if found := _EVERY.fullmatch(plain):
        seconds = int(found[1]) * _UNITS[found[2].lower()]
        if not 1 <= seconds <= 366 * 86400:
            raise ValueError(f"{text!r}: the time between must be from 1 second to a year")
        return Schedule(text, zone, "every", seconds)
    if plain.lower() == "startup":
        return Schedule(text, zone)
    if found := _DAILY.fullmatch(plain):
        line = f"{int(found[2])} {int(found[1])} * * *"
    elif found := _HOURLY.fullmatch(plain):
        line = f"{int(found[1])} * * * *"
    else:
        line = _checked(plain, text)
    schedule = Schedule(text, zone, "calendar", line=line)
    if schedule.next(946684800.0) is None:  # 2000-01-01: a fixed day, so that the answer is always the same
        raise ValueError(f"{text!r} is never due")
    return schedule


def local_zone() -> str:
    with suppress(OSError):
        named = os.environ.get("TZ", "").removeprefix(":") or str(Path("/etc/localtime").resolve())
        name = named.partition("zoneinfo/")[2] or named
        with suppress(ValueError):
            zone_of(name)
            return name.removeprefix("Etc/")
    return "UTC"


def zone_of(name: str) -> tzinfo:
    """Return the time zone of an IANA name. Raises ValueError if it is not known here."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: a path that is no file of the time zone database
        raise ValueError(f"the time zone {name!r} is not known; names are like UTC or Europe/Berlin") from None


def _checked(line: str, text: str) -> str:
    """Return a cron line that cronsim understands. Raises ValueError if it is invalid."""
    if len(line.split()) != 5:
        raise ValueError(f"{text!r} is not a valid schedule; known are: {FORMS}")
    try:
        CronSim(line, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        reason = str(error)
        raise ValueError(f"{text!r} is no cron line: {reason[:1].lower()}{reason[1:]}; known are: {FORMS}") from None
    return line
