"""Journal: the events of the server and the ends of log files, for clients that follow them."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path

import anyio

LOOK = 0.3  # seconds between two looks at a file that is followed
_TAIL = 64 * 1024


class Journal:
    """The file with the server's loads, unloads and crashes since its start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path != Path(os.devnull):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.unlink(missing_ok=True)

    def say(self, now: float, text: str) -> None:
        """Note a text with the Unix time `now`."""
        with suppress(OSError), self.path.open("a", encoding="utf-8") as file:
            file.write(time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime(now)) + text + "\n")


def last_lines(path: Path, start: int = 0) -> list[str]:
    """Return the lines at the end of a file, none of them from before `start`."""
    size = _size(path)
    start = start if start <= size else 0  # it was begun anew
    begin = max(start, size - _TAIL)
    lines = _read(path, begin).decode("utf-8", "replace").removesuffix("\n").split("\n")
    return [line for line in lines[begin > start :] if line or len(lines) > 1]


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
