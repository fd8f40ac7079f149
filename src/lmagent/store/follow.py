"""Following a log that any process writes: history, then the tail, without a gap and without a repetition."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from lmagent.core.events import DurableEvent
from lmagent.store.scan import Line, in_order, lines

POLL = 0.05
"""Seconds between two looks at the file's size: a person does not notice them, and they cost about 10 µs each."""

BATCH = 256
"""Events read at a time, so that the file is not kept open while a slow watcher takes them."""


END = 65_536
"""Bytes at the end of a log that hold its last event, mostly."""


Mark = tuple[int, int, int]
"""`seq` and end of a line that is known to be there, and the number of the file in which it is."""


class LogTail:
    """Reads on in a log, each time from where it left off.

    Args:
        path: the log; it may not exist yet.
        after: the last event that the reader has.
        mark: a line where reading may begin; not above `after`.

    Attributes:
        after: the last event that was read, or that the reader had.
        mark: where the next read begins, as above.
    """

    def __init__(self, path: Path, after: int = 0, mark: Mark = (0, 0, 0)) -> None:
        self.path = path
        self.after = after
        self.mark: Mark = mark
        self._seen = (0, 0)

    @property
    def has_news(self) -> bool:
        """Whether the log is not as it was when all of it had been read."""
        return _facts(self.path) != self._seen

    def read(self) -> list[DurableEvent]:
        """The next events, `BATCH` lines of the log at most; none where it has no more."""
        found: list[DurableEvent] = []
        while not found:
            file, size = _facts(self.path)
            # The writer took back what it could not make durable, or the file is another one.
            if size < self.mark[1] or file != self.mark[2]:
                self.mark, self._seen = (0, 0, file), (0, 0)
            batch = _read(self.path, self.mark) if (file, size) != self._seen else []
            for line in batch:
                self.mark = (line.seq, line.end, file)
                if line.event is not None and line.seq > self.after:
                    self.after = line.seq
                    found.append(line.event)
            if len(batch) < BATCH:
                self._seen = (file, size)
                break
        return found


def last_seq(path: Path) -> int:
    """The last event of a log, read from its end; 0 where it has none."""
    reach, (_, size) = END, _facts(path)
    while True:
        start = max(0, size - reach)
        try:
            with path.open("rb") as stream:
                stream.seek(start)
                if start:
                    stream.readline()  # the rest of a line
                found = [line.seq for line in lines(stream) if line.event is not None and line.whole]
        except FileNotFoundError:
            return 0
        if found or not start:
            return found[-1] if found else 0
        reach *= 16


async def follow_log(path: Path, after: int = 0) -> AsyncIterator[DurableEvent]:
    """The events of a log with `seq` > `after`, then those that are appended, until the consumer stops.

    Args:
        path: the log; it may not exist yet.
        after: the last event that the consumer has.
    """
    tail = LogTail(path, after)
    while True:
        for event in tail.read():
            yield event
        if not tail.has_news:
            await anyio.sleep(POLL)


def _read(path: Path, mark: Mark) -> list[Line]:
    """The next events behind a mark; none where the file is another one by now.

    A line without its end is still being written, and is left for later.
    """
    batch: list[Line] = []
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return batch
    with stream:
        last, offset, file = mark
        if os.fstat(stream.fileno()).st_ino != file:
            return batch
        stream.seek(offset)
        for line in in_order(lines(stream, start=offset), after=last):
            if line.event is not None and line.whole:
                batch.append(line)
                if len(batch) == BATCH:
                    break
    return batch


def _facts(path: Path) -> tuple[int, int]:
    """Which file it is, and its size; zeros where there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size
