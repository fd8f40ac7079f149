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


async def follow_log(path: Path, after: int = 0) -> AsyncIterator[DurableEvent]:
    """The events of a log with `seq` > `after`, then those that are appended, until the consumer stops.

    Args:
        path: the log; it may not exist yet.
        after: the last event that the consumer has.
    """
    offset = last = seen = 0
    while True:
        size = _size(path)
        if size < offset:  # the writer took back what it could not make durable, or the file is another one
            offset = seen = 0
            last, after = 0, max(last, after)
        batch = _read(path, offset, last) if size != seen else []
        for line in batch:
            offset, last = line.end, line.seq
            if line.event is not None and line.seq > after:
                yield line.event
        if len(batch) < BATCH:
            seen = size
            await anyio.sleep(POLL)


def _read(path: Path, offset: int, last: int) -> list[Line]:
    """The next events behind `offset`; a line without its end is still being written, and is left for later."""
    batch: list[Line] = []
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return batch
    with stream:
        stream.seek(offset)
        for line in in_order(lines(stream, start=offset), after=last):
            if line.event is not None and line.whole:
                batch.append(line)
                if len(batch) == BATCH:
                    break
    return batch


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
