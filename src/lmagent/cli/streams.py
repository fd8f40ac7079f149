"""The standard streams, made safe before anything is read or written.

A stream that the caller closed becomes /dev/null and keeps its descriptor, so that no file of ours takes its place.
Characters that cannot be encoded become question marks. An output that cannot be written (a full disk, a reader that
went away) falls silent instead of ending the work half way: the log has everything, and the exit code reports the loss.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO, cast

LOST = "lmagent: standard output could not be written: {reason} (the work is kept: lmagent sessions list)\n"

CLOSED_PIPE = 141
"""Exit code when the reader of standard output went away, as of a program that SIGPIPE ended."""


class Outlet(io.FileIO):
    """A descriptor for writing that falls silent at the first failure, and remembers it."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: Any, /) -> int | None:
        """Write, or pretend to: a buffer whose rest cannot be written would fail again at every line."""
        size = memoryview(data).nbytes
        if self.failure is not None:
            return size
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            return size


def prepare() -> Outlet | None:
    """Make the standard streams safe; returns the outlet that remembers whether standard output could be written."""
    _take_descriptors()
    sys.stdin = cast("TextIO | None", sys.stdin) or _nothing("r")
    if reconfigure := getattr(sys.stdin, "reconfigure", None):
        reconfigure(errors="replace")
    sys.stderr, _ = _silenced(sys.stderr, sys.__stderr__)
    sys.stdout, outlet = _silenced(sys.stdout, sys.__stdout__)
    return outlet


def settle(outlet: Outlet | None, code: int) -> int:
    """Flush the rest and return the exit code: a lost answer is an error, whatever the outcome of the work.

    A reader that went away (`| head`) wanted no more, and causes no message.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if outlet is None or outlet.failure is None:
        return code
    if isinstance(outlet.failure, BrokenPipeError):
        return code or CLOSED_PIPE
    sys.stderr.write(LOST.format(reason=outlet.failure.strerror))
    sys.stderr.flush()
    return code or 1


def _take_descriptors() -> None:
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            free = os.open(os.devnull, os.O_RDWR)
            if free != descriptor:
                os.dup2(free, descriptor)
                os.close(free)
            os.set_inheritable(descriptor, True)


def _nothing(mode: str) -> TextIO:
    return cast("TextIO", open(os.devnull, mode, encoding="utf-8", errors="replace"))


def _silenced(stream: TextIO | None, original: TextIO | None) -> tuple[TextIO, Outlet | None]:
    """Return the stream on an outlet; a stream that is not the process's own, or no plain file (a console), is
    unchanged."""
    if stream is None:
        return _nothing("w"), None
    binary = getattr(stream, "buffer", None)
    if stream is not original or type(getattr(binary, "raw", binary)) is not io.FileIO:
        return stream, None
    stream.flush()
    outlet = Outlet(stream.fileno())
    replaced = io.TextIOWrapper(
        io.BufferedWriter(outlet),
        encoding=stream.encoding,
        errors="replace" if stream.errors in ("strict", "surrogateescape") else stream.errors,
        line_buffering=bool(stream.line_buffering),
        write_through=bool(getattr(stream, "write_through", False)),
    )
    return replaced, outlet
