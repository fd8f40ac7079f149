"""Finds the matches in a text: of a literal, here; of a regular expression, in a process that can be killed."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Protocol, Self

from msgspec import Struct

from lmagent.core.errors import ToolError

KEPT = 500
"""Matching lines of one text that are returned; further ones are only counted."""

_PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # without them some interpreters do not find their own library


class LineHit(Struct, frozen=True):
    """A line with a match: its number from 1, and the start and end of its first match, in characters."""

    line: int
    start: int
    end: int


class Hits(Struct, frozen=True):
    """The first hits of a text, and the number of all lines with a match."""

    hits: list[LineHit]
    total: int


class Late(Exception):
    """The time is over."""


class Matcher(Protocol):
    def find(self, text: str) -> Hits:
        """Return the lines with a match; raises Late."""
        ...

    def close(self) -> None: ...


class Literal:
    def __init__(self, wanted: str) -> None:
        self._wanted = wanted

    def find(self, text: str) -> Hits:
        hits, total, number, begin = list[LineHit](), 0, 1, 0
        at = text.find(self._wanted)
        while at >= 0:
            number += text.count("\n", begin, at)
            begin = text.rfind("\n", 0, at) + 1
            total += 1
            if total <= KEPT:
                hits.append(LineHit(number, at - begin, at - begin + len(self._wanted)))
            end = text.find("\n", at)
            if end < 0:
                break
            number, begin = number + 1, end + 1
            at = text.find(self._wanted, begin)
        return Hits(hits, total)

    def close(self) -> None:
        """Do nothing: a literal has no process."""


class Expression:
    """Matches a regular expression of Python, line by line; its process ends itself after `seconds`.

    Raises ToolError.
    """

    def __init__(self, pattern: str, seconds: float) -> None:
        import subprocess  # only a regular expression pays for it

        worker = Path(__file__).with_name("grep_worker.py")
        try:
            self._process = subprocess.Popen(
                [sys.executable or "python3", "-I", "-S", str(worker), f"{seconds:.3f}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            )
        except OSError as error:
            raise ToolError(
                f"Regular expressions cannot be run here ({error.strerror}). Use plain text instead.",
                data={"code": "failed"},
            ) from error
        try:
            answer = self._ask(pattern)
        except Late:
            answer = "error it took too long, or its process could not run"
        except BaseException:
            self.close()
            raise
        if answer != "ok":
            self.close()
            raise ToolError(
                f"The regular expression cannot be read: {answer.removeprefix('error ')}. "
                "Correct it, or use plain text instead.",
                data={"code": "pattern"},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def find(self, text: str) -> Hits:
        *hits, total = self._ask(text).split(" ")
        return Hits([LineHit(*map(int, hit.split(","))) for hit in hits], int(total[1:]))

    def close(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:  # it died with unsent data
                continue
        self._process.wait()

    def _ask(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        request, reply = self._process.stdin, self._process.stdout
        assert request is not None
        assert reply is not None
        try:
            request.write(struct.pack(">I", len(data)) + data)
            request.flush()
        except BrokenPipeError:
            raise Late from None
        answer = reply.readline()
        if not answer:
            raise Late
        return answer.decode("utf-8").rstrip("\n")
