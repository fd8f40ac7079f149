"""The output of a job, line by line, each checked once for a pattern.

The model's regular expression runs in grep's worker process: an expression that backtracks for ever can be killed
there, and would stop the whole agent here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
from pathlib import Path

import anyio
from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.tools.collect import Collector, clean

KEPT = 1 << 20
"""Bytes of the newest output that are held here; the collector has a file of a longer output."""

PIECE = 256 << 10
"""Bytes that are searched at once."""

LINE = 64 << 10
"""Bytes after which an unfinished line counts as a line."""

BUDGET = 3.0
"""Seconds that a pattern may take for one piece of output."""

START = 10.0
"""Seconds that its process may take to begin."""

_CODE: dict[str, object] = {"code": "pattern"}
_PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # without them some interpreters do not find their own library


class Place(Struct):
    """The progress of a pattern: `at` counts the bytes searched; `inside` if they end within a line that matched."""

    at: int = 0
    inside: bool = False
    last: str = ""


class JobOutput:
    """The raw output of a job; the collector must receive each piece first."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._newest = bytearray()

    @property
    def total(self) -> int:
        return self._collector.total

    def feed(self, piece: bytes) -> None:
        self._newest += piece
        if len(self._newest) > 2 * KEPT:
            del self._newest[:-KEPT]

    def read(self, place: Place) -> bytes:
        """Return the next piece; skips output that is no longer kept."""
        begin = self.total - len(self._newest)
        if place.at < begin:
            old = self._old(place.at)
            if b"\n" in old or len(old) >= LINE:
                return old
            place.at, place.inside = begin, False
        return bytes(self._newest[place.at - begin : place.at - begin + PIECE])

    def _old(self, at: int) -> bytes:
        """Read from the collector's file, which ends at its cap."""
        if self._collector.file is None:
            return b""
        with contextlib.suppress(OSError), self._collector.file.open("rb") as file:
            file.seek(at)
            return file.read(PIECE)
        return b""


class LinePattern:
    """A regular expression, in a process of its own. Use `open`, and always `close`."""

    def __init__(self, pattern: str, process: asyncio.subprocess.Process) -> None:
        self._pattern = pattern
        self._process = process

    @classmethod
    async def open(cls, pattern: str, seconds: float) -> LinePattern:
        """Start the process, which ends itself after some seconds whatever happens to this one.

        Raises:
            ToolError: the pattern is invalid, or no process can be started.
        """
        if "\n" in pattern:
            raise ToolError("wait looks at single lines: the regex must not have a line break.", data=_CODE)
        worker = Path(__file__).with_name("grep_worker.py")
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable or "python3", "-I", "-S", str(worker), f"{seconds:.3f}"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            )
        except OSError as error:
            raise ToolError(
                f"Regular expressions cannot be run here ({error.strerror}). Wait for exit or silence instead.",
                data={"code": "failed"},
            ) from error
        opened = cls(pattern, process)
        try:
            answer = await opened._ask(pattern, START)
            if answer != "ok":
                raise ToolError(f"{pattern!r} is no regex: {answer.removeprefix('error ')}", data=_CODE)
        except BaseException:
            await opened.close()
            raise
        return opened

    async def find(self, output: JobOutput, place: Place) -> str | None:
        """Return the next line that matches in one piece of output; moves `place` to the end of the searched bytes.

        Raises:
            ToolError: the pattern takes too long.
        """
        piece = output.read(place)
        if place.inside:
            rest, end, piece = piece.partition(b"\n")
            place.at += len(rest) + len(end)
            place.inside = not end
        whole = piece.rfind(b"\n") + 1
        if not whole and len(piece) >= LINE:
            whole = len(piece)
        if whole:
            lines = piece[:whole].removesuffix(b"\n").split(b"\n")
            number = await self._first(clean(b"\n".join(lines)))
            if number:
                place.at += min(whole, sum(len(line) + 1 for line in lines[:number]))
                place.last = clean(lines[number - 1])
                return place.last
            place.at += whole
        rest = piece[whole:]
        if rest and place.at + len(rest) == output.total and await self._first(clean(rest)):
            place.at, place.inside, place.last = place.at + len(rest), True, clean(rest)
            return place.last
        return None

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        with anyio.CancelScope(shield=True):
            await self._process.wait()

    async def _first(self, text: str) -> int:
        """Return the number of the first line that matches, from 1; 0 if none does."""
        answer = await self._ask(text, BUDGET)
        return 0 if answer.startswith("=") else int(answer.partition(",")[0])

    async def _ask(self, text: str, seconds: float) -> str:
        data = text.encode("utf-8", "surrogatepass")
        request, reply = self._process.stdin, self._process.stdout
        assert request is not None
        assert reply is not None
        answer = b""
        with contextlib.suppress(OSError), anyio.move_on_after(seconds):
            request.write(struct.pack(">I", len(data)) + data)
            await request.drain()
            answer = await reply.readline()
        if not answer:
            raise ToolError(
                f"The regex {self._pattern!r} takes too long: {seconds:.0f} s were not enough for a piece of output. "
                "Use one without nested repetitions such as (a+)+, or a plain word of the line.",
                data=_CODE,
            )
        return answer.decode("utf-8").rstrip("\n")
