"""Journal: the latest events of the server and the ends of log files, for clients that follow them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectSendStream

KEPT = 500  # lines that are kept
LOOK = 0.3  # seconds between two looks at a file that is followed
_TAIL = 64 * 1024


class Journal:
    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._followers: set[MemoryObjectSendStream[str]] = set()

    def add(self, line: str) -> None:
        """Note a line; a follower that does not keep up misses some."""
        self._lines.append(line)
        for follower in tuple(self._followers):
            try:
                follower.send_nowait(line)
            except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
                continue

    def say(self, now: float, text: str) -> None:
        """Note a text with the Unix time `now`."""
        self.add(time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime(now)) + text)

    def lines(self) -> list[str]:
        return list(self._lines)

    def end(self) -> None:
        """End what followers read."""
        for follower in self._followers:
            follower.close()

    async def follow(self) -> AsyncGenerator[str]:
        """Yield the lines that are kept and all that come, until `end`."""
        sender, receiver = anyio.create_memory_object_stream[str](KEPT)
        kept = self.lines()
        self._followers.add(sender)
        try:
            for line in kept:
                yield line
            async for line in receiver:
                yield line
        finally:
            self._followers.discard(sender)
            sender.close()
            receiver.close()


def last_lines(path: Path) -> list[str]:
    begin = max(0, _size(path) - _TAIL)
    lines = _read(path, begin).decode("utf-8", "replace").removesuffix("\n").split("\n")
    return [line for line in lines[bool(begin) :] if line or len(lines) > 1]


async def follow_file(path: Path, is_over: Callable[[], bool]) -> AsyncGenerator[str]:
    """Yield the end of a file and all lines added to it, also after its rotation."""
    at, rest = max(0, _size(path) - _TAIL), b""
    whole = at == 0
    while not is_over():
        if _size(path) < at:
            at, rest = 0, b""
        data = _read(path, at)
        at += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines if whole else lines[1:]:
            yield line.decode("utf-8", "replace")
        whole = whole or bool(lines)
        await anyio.sleep(LOOK)


def _read(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read()
    except OSError:  # just being rotated
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
