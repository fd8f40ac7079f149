"""A process that has loaded the program's libraries, and becomes the program once for each request.

Starting Python and loading the libraries is most of what a short run of the program costs; here it is done once. The
program itself is not loaded: each run loads its modules anew, as late and in the order in which a user's run does.

A request has the arguments, the folder, the environment and the three standard streams. It is answered by the process
id of the run, which is a child of the process that asked, so that its signals and its end arrive there as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import os
import pickle
import platform
import runpy
import signal
import socket
import sys
import termios
import threading
import time
from typing import Any

LIBRARIES = (
    *("argparse", "ast", "asyncio", "base64", "bisect", "calendar", "concurrent.futures", "contextvars", "copy"),
    *("dataclasses", "datetime", "difflib", "email.message", "email.parser", "email.utils", "fnmatch", "gzip"),
    *("hashlib", "hmac", "html", "http.client", "importlib.metadata", "importlib.resources", "inspect", "ipaddress"),
    *("json", "locale", "logging", "lzma", "mimetypes", "pathlib", "queue", "random", "secrets", "select", "selectors"),
    *("shlex", "shutil", "sqlite3", "ssl", "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading"),
    *("tomllib", "typing", "unicodedata", "urllib.parse", "urllib.request", "uuid", "zipfile", "zoneinfo"),
    *("anyio", "anyio.streams.stapled", "anyio.streams.tls", "certifi", "click", "cronsim", "encodings.idna"),
    *("httpcore", "msgspec.json", "msgspec.structs"),
    *("prompt_toolkit.application", "prompt_toolkit.shortcuts"),
    *("starlette.applications", "uvicorn", "uvicorn.protocols.http.h11_impl", "webbrowser", "websockets"),
    "uvicorn.protocols.websockets.websockets_sansio_impl",
)
"""The libraries of the commands that the tests start often."""

OF_PROTOCOLS = ("acp", "mcp.client", "mcp.server")
"""Those that only a few commands load, which have a process of their own: no other run has them."""

CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), 0)
"""The number of the system call `clone` on this machine; 0 where it is not known."""

CLONE_PARENT = 0x8000

MOST = 1 << 17
"""Bytes of a request; a larger one is not sent."""


def serve(requests: socket.socket) -> None:
    """Answer requests until the other end is closed; returns only in the process of a run, which is ready for it."""
    while True:
        data, streams, *_ = socket.recv_fds(requests, MOST, 3)
        if not data:
            os._exit(0)
        if not (process := _clone()):
            requests.close()
            return _become(pickle.loads(data), streams)
        for stream in streams:
            os.close(stream)
        requests.send(str(max(process, 0)).encode())  # 0: this system makes no sibling


def run() -> None:
    """Run the program or a script and end, as `python` does; only the modules are not taken apart, which takes long."""
    try:
        if sys.argv[0] == "-m":
            del sys.argv[1]  # the name of the program
            runpy._run_module_as_main("lmagent")  # type: ignore[attr-defined]
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if isinstance(end.code, int):
            os._exit(end.code & 0xFF)
        raise


def _clone() -> int:
    """Fork a sibling: a child of this process's parent. Python's own preparations are those of `os.fork`."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    process = ctypes.PyDLL(None).syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if process:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    return process


def _become(request: dict[str, Any], streams: list[int]) -> None:
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin)
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout)
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr)
    sys.argv = request["arguments"]
    sys.path[:0] = [os.getcwd() if sys.argv[0] == "-m" else os.path.dirname(sys.argv[0]), *request["path"]]
    gc.enable()


def _stream(number: int, mode: str, like: Any) -> io.TextIOWrapper:
    """Return a standard stream as Python makes it at its start."""
    unbuffered = like.write_through
    binary: Any = open(number, mode + "b", 0 if unbuffered and number else -1, closefd=False)  # noqa: SIM115
    getattr(binary, "raw", binary).name = like.name
    lines = not unbuffered and (number == 2 or binary.isatty())
    return io.TextIOWrapper(binary, like.encoding, like.errors, "\n", lines, unbuffered)


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    gc.disable()
    for name in LIBRARIES + (OF_PROTOCOLS if sys.argv[2] else ()):
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    run()
