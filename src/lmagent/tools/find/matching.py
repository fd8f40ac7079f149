"""Finds the matches in a text: of a literal, here; of a regular expression, in a process that can be killed."""

from __future__ import annotations

import marshal
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from lmagent.core.errors import ToolError
from lmagent.tools.find.grep_worker import matching_lines
from lmagent.tools.sanitize import one_line

_PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # without them some interpreters do not find their own library


class LineHit(NamedTuple):
    """A line with a match: its number from 1, and the start and end of its first match, in characters."""

    line: int
    start: int
    end: int


class Hits(NamedTuple):
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
        self._search = re.compile(re.escape(wanted)).search

    def find(self, text: str) -> Hits:
        hits, total = matching_lines(self._search, text)
        return Hits([LineHit(*hit) for hit in hits], total)

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
            fault = self._ask(pattern)
        except Late:
            fault = "it took too long, or its process could not run"
        if fault:
            self.close()
            raise ToolError(
                f"The regular expression cannot be read: {one_line(fault)}. Correct it, or use plain text instead.",
                data={"code": "pattern"},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def find(self, text: str) -> Hits:
        hits, total = self._ask(text)
        return Hits([LineHit(*hit) for hit in hits], total)

    def close(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):  # it died with unsent data
                if pipe is not None:
                    pipe.close()
        self._process.wait()

    def _ask(self, text: str) -> Any:
        request, reply = self._process.stdin, self._process.stdout
        assert request is not None
        assert reply is not None
        try:
            request.write(marshal.dumps(text))
            request.flush()
            return marshal.load(reply)
        except (BrokenPipeError, EOFError):
            raise Late from None
