"""Adds piped input to the task.

A file is read to its end. So is a pipe or a socket, however long its writer takes: piped input must not get lost
because a
build is slow. After a second of silence a notice on the terminal explains the wait.

A parent can also leave a pipe open that will never have a writer (cron, a CI runner, a subprocess that inherits one).
If the command line has a task too, a run that has seen no byte for `PATIENCE` seconds after the notice fails with an
error. It never runs without the input, which may be the point of the task; and it never hangs.
"""

from __future__ import annotations

import os
import stat
import sys

import click

from lmagent.core.errors import ConfigError

NOTICE_AFTER = 1.0
"""Seconds without a byte after which a notice explains the wait."""

PATIENCE = 10.0
"""Seconds after the notice in which a pipe beside a task must give its first byte, or end."""

WITHOUT = 'if nothing is meant to be piped in, type: lmagent "TASK" </dev/null'


def with_piped(task: str, *, needed: bool) -> str:
    """Add the piped input to the task.

    Raises ConfigError if no input came in time, or it could not be read.

    Args:
        task: the task from the command line.
        needed: the input is the whole task, so the wait has no limit.
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
    return f"{task}\n\n{piped}".strip() if piped else task


def _await_first(descriptor: int, *, needed: bool) -> None:
    if _ready(descriptor, NOTICE_AFTER):
        return
    click.echo("waiting for piped input (</dev/null to skip)", err=True)
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
    import select

    ready, _, _ = select.select([descriptor], [], [], seconds)
    return bool(ready)


def _text(data: bytes) -> str:
    """Decode input in the terminal's encoding, or UTF-8 if that is ASCII. No byte is an error."""
    encoding = sys.stdin.encoding.lower()
    text = data.decode("utf-8" if "ascii" in encoding or "646" in encoding else encoding, "replace")
    return text.replace("\r\n", "\n")
