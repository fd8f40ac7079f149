"""Reading a log: lines to events, and a reason for each line without one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Literal, get_args

from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.events import DurableEvent, decode
from lmagent.core.live import VERSION

NEWER = "written by a newer version of lmagent"

ENVELOPE = 256
"""Bytes at the end of a line that hold the fields common to all events."""

_SEQ = re.compile(rb'(?<!\\)"seq":(\d{1,18})')


class LogLine(Struct, frozen=True):
    """One line of a log.

    Attributes:
        kind: an event; one that only a newer version knows; one whose `seq` is out of order; or damaged.
        seq: the event's `seq`; 0 if it cannot be read or believed.
    """

    number: int
    start: int
    raw: bytes
    kind: Literal["event", "newer", "misplaced", "damaged"]
    seq: int = 0
    event: DurableEvent | None = None
    reason: str = ""

    @property
    def end(self) -> int:
        return self.start + len(self.raw)

    @property
    def whole(self) -> bool:
        return self.raw.endswith(b"\n")


class _Envelope(Struct, frozen=True):
    """The fields of an event that every version has."""

    type: str
    seq: int
    v: int = 1


def lines(stream: BinaryIO, *, start: int = 0, number: int = 1) -> Iterator[LogLine]:
    """Yield the lines of a log that is open at offset `start`; empty lines are skipped."""
    for raw in stream:
        if raw != b"\n":
            yield log_line(number, start, raw)
        number, start = number + 1, start + len(raw)


def log_line(number: int, start: int, raw: bytes) -> LogLine:
    """Return the line with its event, or the reason why it has none."""
    try:
        event = decode(raw)
    except (ValueError, RecursionError) as error:
        return _no_event(number, start, raw, str(error))
    if event.v > VERSION:
        return LogLine(number, start, raw, "newer", event.seq, None, f"{NEWER} (event version {event.v})")
    return LogLine(number, start, raw, "event", event.seq, event)


def _no_event(number: int, start: int, raw: bytes, reason: str) -> LogLine:
    try:
        envelope = decode_json(raw, _Envelope)
    except (ValueError, RecursionError):
        return LogLine(number, start, raw, "damaged", 0, None, reason)
    if envelope.v > VERSION:
        return LogLine(number, start, raw, "newer", envelope.seq, None, f"{NEWER} (event version {envelope.v})")
    if envelope.type not in _known_types():
        return LogLine(number, start, raw, "newer", envelope.seq, None, f"{NEWER} (event type {envelope.type!r})")
    return LogLine(number, start, raw, "damaged", 0, None, reason)


def _known_types() -> set[str]:
    return {str(kind.__struct_config__.tag) for kind in get_args(DurableEvent)}


def in_order(found: Iterable[LogLine], *, after: int = 0) -> Iterator[LogLine]:
    """Yield the lines, with events in rising order of `seq` only; an event out of order becomes a damaged line.

    One flipped digit can turn a `seq` into a far larger one, and every later event would then look old. So an
    event that leaps ahead is believed only once the next event is ahead of it, or the log ends.
    """
    last, held = after, None
    for line in found:
        if line.event is None:
            yield line
            continue
        if held is not None:
            if line.seq > held.seq:
                yield held
                last, held = held.seq, None
            elif line.seq > last:
                yield _misplaced(held, last)
                held = None
        if line.seq <= last:
            yield _misplaced(line, last)
        elif line.seq == last + 1:
            yield line
            last = line.seq
        else:
            held = line
    if held is not None:
        yield held


def _misplaced(line: LogLine, last: int) -> LogLine:
    reason = f"seq {line.seq} does not follow {last}"
    return LogLine(line.number, line.start, line.raw, "misplaced", 0, None, reason)


def ends_with(fd: int, end: int, seq: int) -> bool:
    """Whether the event `seq` ends at the offset `end` of the log `fd`, as far as its last bytes show.

    The system reuses the number of a deleted file, so the number does not prove that a log is still the same.
    Later logs of a name have higher `seq`.
    """
    start = max(0, end - ENVELOPE)
    os.lseek(fd, start, os.SEEK_SET)
    found = os.read(fd, end - start)
    told = _SEQ.findall(found)
    return found.endswith(b"\n") and (not told or int(told[-1]) == seq)
