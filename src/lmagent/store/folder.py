"""The folders of the sessions, as the index reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from lmagent.core.events import DurableEvent, decode
from lmagent.core.ids import is_session_id
from lmagent.store.lock import is_held
from lmagent.store.log import EVENTS, LOCK, log_facts
from lmagent.store.port import EventPlace, Facts, LogPosition
from lmagent.store.scan import LogLine, ends_with, in_order, lines


class FolderSource:
    """The sessions in the folder `root`; the index is beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root.parent / "state.db"

    def logs(self) -> dict[str, Facts]:
        found: dict[str, Facts] = {}
        try:
            with os.scandir(self.root) as entries:
                for entry in entries:
                    named = is_session_id(entry.name) and entry.is_dir(follow_symlinks=False)
                    if named and (facts := log_facts(entry.path)) is not None:
                        found[entry.name] = facts.st_size, facts.st_mtime_ns, facts.st_ino
        except OSError:
            pass  # no sessions yet, or none that may be read
        return found

    def new_lines(self, session: str, facts: Facts, read: LogPosition) -> tuple[bool, Iterator[LogLine]]:
        stream = (self.root / session / EVENTS).open("rb")
        continues = _continues(facts, read, stream)
        return continues, _lines(stream, read if continues else LogPosition(0, 0, 0))

    def is_held(self, session: str) -> bool:
        return is_held(self.root / session / LOCK)

    def events(self, places: Sequence[EventPlace]) -> list[tuple[EventPlace, DurableEvent]]:
        found: list[tuple[EventPlace, DurableEvent]] = []
        for place in places:
            with suppress(OSError, ValueError), open(self.root / place.session / EVENTS, "rb") as log:
                found.append((place, decode(os.pread(log.fileno(), place.size, place.start))))
        return found


def _continues(facts: Facts, read: LogPosition, stream: BinaryIO) -> bool:
    """Whether this is still the log that was read up to a position."""
    size, _, log = facts
    if read.end == 0:
        return True
    return log == read.log and size >= read.end and ends_with(stream.fileno(), read.end, read.seq)


def _lines(stream: BinaryIO, read: LogPosition) -> Iterator[LogLine]:
    with stream:
        stream.seek(read.end)
        for line in in_order(lines(stream, start=read.end), after=read.seq):
            if line.event is not None and line.whole:
                yield line
