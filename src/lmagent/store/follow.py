"""Following a log that any process writes: history, then the tail, without gaps or repetitions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import anyio

from lmagent.core.events import DurableEvent
from lmagent.store.log import log_facts
from lmagent.store.port import NOWHERE, POLL, LogMark
from lmagent.store.scan import LogLine, in_order, lines

BATCH = 256
"""Events read at a time, so that a slow watcher does not keep the file open."""


Facts = tuple[int, int, int]
"""The file's number, its size, and when it was written last."""

NOTHING: Facts = (0, 0, 0)


class LogTail:
    """Continues to read a log after the event `after`, each time from the line `mark`, where it stopped."""

    def __init__(self, path: Path, after: int = 0, mark: LogMark = NOWHERE) -> None:
        self.path = path
        self.after = after
        self.mark: LogMark = mark
        self._seen: Facts = NOTHING

    @property
    def has_news(self) -> bool:
        """Whether the log has changed since all of it was read."""
        return _facts(self.path) != self._seen

    @property
    def is_gone(self) -> bool:
        """Whether the log does not exist; a link or a pipe in its place is no log."""
        return self.path.parent.is_symlink() or log_facts(self.path.parent) is None

    async def wait(self, seconds: float) -> None:
        """Wait before the next look: the system does not notify of changes."""
        await anyio.sleep(seconds)

    def read(self) -> list[DurableEvent]:
        """Return the next events, at most `BATCH` lines of the log; empty at its end."""
        found: list[DurableEvent] = []
        while not found:
            facts = _facts(self.path)
            file, size, _ = facts
            # The writer took back an event that it could not make durable, or the file is another one.
            if size < self.mark.end or file != self.mark.file:
                self._start_again(file)
            batch = _read(self.path, self.mark) if facts != self._seen else []
            if batch is None:
                self._start_again(file)
                continue
            for line in batch:
                self.mark = LogMark(line.seq, line.end, file, len(line.raw), crc32(line.raw))
                if line.event is not None and line.seq > self.after:
                    self.after = line.seq
                    found.append(line.event)
            if len(batch) < BATCH:
                self._seen = facts
                break
        return found

    def _start_again(self, file: int) -> None:
        self.mark, self._seen = LogMark(file=file), NOTHING


def last_seq(path: Path) -> int:
    """Return the `seq` of a log's last event; 0 for an empty or missing log."""
    last = 0
    with suppress(FileNotFoundError), path.open("rb") as stream:
        for line in lines(stream):
            last = line.seq if line.event is not None and line.whole else last
    return last


async def follow_log(path: Path, after: int = 0) -> AsyncIterator[DurableEvent]:
    """Yield the events of a log with `seq` > `after`, then those that are appended, until the consumer stops."""
    tail = LogTail(path, after)
    while True:
        for event in tail.read():
            yield event
        if not tail.has_news:
            await anyio.sleep(POLL)


def _read(path: Path, mark: LogMark) -> list[LogLine] | None:
    """Return the next events after a mark; empty if the file was replaced, None if only its content was.

    A line without its end is still being written, and is left for later.
    """
    batch: list[LogLine] = []
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return batch
    with stream:
        if os.fstat(stream.fileno()).st_ino != mark.file:
            return batch
        stream.seek(mark.end - mark.size)
        if crc32(stream.read(mark.size)) != mark.crc:
            return None
        for line in in_order(lines(stream, start=mark.end), after=mark.seq):
            if line.event is not None and line.whole:
                batch.append(line)
                if len(batch) == BATCH:
                    break
    return batch


def _facts(path: Path) -> Facts:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return NOTHING
    return found.st_ino, found.st_size, found.st_mtime_ns
