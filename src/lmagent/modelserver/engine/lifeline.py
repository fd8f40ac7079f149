"""Lifeline: what a worker's process and the one that started it hold on to each other by.

A worker reads one line from its standard input, says one line on its standard output, and ends when the input does.
The engine keeps Python's lock while it loads, which takes minutes: no thread of Python could see the end then. So a
second, tiny process watches the input, and kills the worker's group when it ends. Linux also sends a signal when the
parent dies.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

import msgspec

from lmagent.core.decoding import decode_json
from lmagent.modelserver.spec import Hello, WorkerSpec

GRACE = 1.0
"""Seconds that a worker has to end by itself before its group is killed."""

_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def read_spec() -> WorkerSpec:
    """The line that says what to load."""
    line = sys.stdin.buffer.readline()
    try:
        return decode_json(line, WorkerSpec)
    except msgspec.DecodeError as error:
        raise ValueError(f"standard input has no description of a model as its first line: {error}") from error


def hold() -> None:
    """From now on the process ends when its standard input does, whatever it is doing. Call before any thread runs."""
    if not hasattr(os, "fork"):
        _hold_by_thread()
        return
    with suppress(PermissionError):  # it leads a session, and so a group, already
        os.setpgid(0, 0)
    parent = os.getppid()
    _die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    if os.fork() == 0:
        _guard()


def say(hello: Hello) -> None:
    """Print the one line."""
    sys.stdout.buffer.write(msgspec.json.encode(hello) + b"\n")
    sys.stdout.buffer.flush()


def fail(reason: str) -> NoReturn:
    """Say why there is no model, and end with status 1."""
    with suppress(OSError):
        say(Hello(pid=os.getpid(), error=reason))
    os._exit(1)


def wait() -> NoReturn:
    """Wait for the end of standard input, and end."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(0)  # the engine's threads need no goodbye


def _guard() -> NoReturn:
    """The watching process: holds nothing but the input open."""
    try:
        worker = os.getppid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.closerange(3, 64)
        while os.read(0, 4096):
            pass
        until = time.monotonic() + GRACE
        while time.monotonic() < until and os.getppid() == worker:
            time.sleep(0.02)
        os.killpg(0, signal.SIGKILL)  # also what the worker started and left behind, and this process
    finally:
        os._exit(0)


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _hold_by_thread() -> None:
    """Where there is no fork (Windows): it ends as soon as the engine lets Python run."""
    import threading

    threading.Thread(target=wait, daemon=True).start()
