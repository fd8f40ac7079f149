"""The standard streams, made safe before anything is read or written; and the piped input, added to the task.

A stream that the caller closed becomes /dev/null and keeps its descriptor, so that no file of ours takes its place.
Characters that cannot be encoded become question marks. An output that cannot be written (a full disk, a reader that
went away) falls silent instead of ending the work half way: the log has everything, and the exit code reports the loss.

Piped input is read to its end, however long its writer takes. But a parent can leave a pipe open that will never have a
writer (cron, a CI runner, a subprocess that inherits one). If the command line has a task too, a run that has seen no
byte for `PATIENCE` seconds after a notice fails: it never runs without the input, and it never hangs.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from typing import Any, TextIO, cast

from lmagent.core.errors import ConfigError
from lmagent.core.titles import ATTACHED

LOST = "lmagent: standard output could not be written: {reason} (the work is kept: lmagent sessions list)\n"

CLOSED_PIPE = 141
"""Exit code when the reader of standard output went away, as of a program that SIGPIPE ended."""


NOTICE_AFTER = 1.0
"""Seconds without a byte after which a notice explains the wait."""

PATIENCE = 10.0
"""Seconds after the notice in which a pipe beside a task must give its first byte, or end."""

WITHOUT = 'if nothing is meant to be piped in, type: lmagent "TASK" </dev/null'


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
        # PYTHONUNBUFFERED, as in containers: the lines of a stream that writes through leave our buffer at once, too.
        line_buffering=bool(stream.line_buffering or getattr(stream, "write_through", False)),
    )
    return replaced, outlet


def with_piped(task: str, *, needed: bool) -> str:
    """Add the piped input to the task. `needed`: it is the whole task, so the wait has no limit.

    Raises ConfigError if no input came in time, or it could not be read.
    """
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return task  # closed, or not a real stream
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    if not waits and not stat.S_ISREG(mode):
        return task  # a terminal or /dev/null: nothing is piped in
    try:
        if waits and sys.platform != "win32":  # Windows cannot wait for a pipe; it is read to its end all the same
            _await_first(descriptor, needed=needed)
        piped = _text(_read(descriptor)).strip()
    except OSError as error:
        raise ConfigError(f"standard input could not be read: {error.strerror}", fix=WITHOUT) from error
    return f"{task}{ATTACHED}piped input]\n{piped}" if task and piped else piped or task


def _await_first(descriptor: int, *, needed: bool) -> None:
    if _ready(descriptor, NOTICE_AFTER):
        return
    sys.stderr.write("waiting for piped input (</dev/null to skip)\n")
    sys.stderr.flush()
    if not _ready(descriptor, None if needed else PATIENCE):
        raise ConfigError(
            f"standard input is a pipe that is open and gave nothing in {NOTICE_AFTER + PATIENCE:g} seconds, "
            "so nothing was done",
            fix=f"{WITHOUT}; if something is, put it into a file first: </the/file",
        )


def _read(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(descriptor, 1 << 16)
        except BlockingIOError:  # a parent made its end and ours non-blocking
            _ready(descriptor, None)
            continue
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _ready(descriptor: int, seconds: float | None) -> bool:
    ready, _, _ = select.select([descriptor], [], [], seconds)
    return bool(ready)


def _text(data: bytes) -> str:
    """Decode input in the terminal's encoding, or UTF-8 if that is ASCII. No byte is an error."""
    encoding = sys.stdin.encoding.lower()
    text = data.decode("utf-8" if "ascii" in encoding or "646" in encoding else encoding, "replace")
    return text.replace("\r\n", "\n")
