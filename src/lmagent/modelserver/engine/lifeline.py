"""Lifeline: the pipes that tie a worker to the process that started it.

A worker reads one line from its standard input, prints one line to its standard output, and ends when the input does.
The engine keeps Python's lock while it loads, which takes minutes, so no Python thread could notice that end. A second,
tiny process watches the input and kills the worker's group when the input ends. Linux also sends a signal when the
parent dies.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

import msgspec

from lmagent.core.decoding import decode_json
from lmagent.modelserver.spec import Hello, WorkerSpec

GRACE = 1.0  # seconds that a worker has to end by itself before its group is killed
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def read_spec() -> WorkerSpec:
    """Read the line that names the model; raise ValueError if standard input has no such line."""
    line = sys.stdin.buffer.readline()
    try:
        return decode_json(line, WorkerSpec)
    except msgspec.DecodeError as error:
        raise ValueError(f"standard input has no description of a model as its first line: {error}") from error


def hold() -> None:
    """End this process when its standard input ends, even while the engine loads. Call it before any thread runs."""
    with suppress(PermissionError):  # it leads a session, and so a group, already
        os.setpgid(0, 0)
    parent = os.getppid()
    _die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    if os.fork() == 0:
        _guard()


def say(hello: Hello) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(hello) + b"\n")
    sys.stdout.buffer.flush()


def fail(reason: str) -> NoReturn:
    """Report why the model is not served, and end with status 1."""
    with suppress(OSError):
        say(Hello(pid=os.getpid(), error=reason))
    os._exit(1)


def wait() -> NoReturn:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(0)  # the engine's threads need no goodbye


def _guard() -> NoReturn:
    """Watch the input in the second process, which holds nothing else open."""
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
        os.killpg(0, signal.SIGKILL)  # also processes that the worker has left, and this one
    finally:
        os._exit(0)


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
