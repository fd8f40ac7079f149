"""`lmagent` as a process of its own that need not import its modules first, which is most of what a start costs.

A process that has imported them forks one for each start. The child has the environment, the folder, the standard
streams and the arguments that it is given, and ends as any program; it is killed and waited for as a `Popen`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TextIO

MODULES = (
    *("anyio._backends._asyncio", "click", "h11", "starlette.responses"),
    *("uvicorn", "uvicorn.protocols.http.h11_impl", "uvicorn.protocols.websockets.websockets_sansio_impl"),
    *("lmagent.cli.root", "lmagent.cli.web", "lmagent.app.wiring", "lmagent.app.runner", "lmagent.schedule.scheduler"),
    *("lmagent.app.servers.downloads", "lmagent.memory.memory", "lmagent.store.index", "lmagent.tools.python"),
)
"""Not all of `lmagent.gateway`: two of its modules take the time of their import for the program's start."""


class Started:
    """A program that was started; its standard error goes where its output does."""

    def __init__(self, pid: int, stdout: TextIO, report: int) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._report = report
        self._lock = threading.Lock()
        weakref.finalize(self, os.close, report)

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code; that of a program that a signal ended is negative."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("lmagent", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it with no chance to do anything more."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            with self._lock:  # several threads may wait
                if self.returncode is None:
                    status = os.read(self._report, 100)
                    assert status, "the process that starts the others has died"
                    self.returncode = os.waitstatus_to_exitcode(int(status))
        return self.returncode


class _Starter:
    """The process that has the modules."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            nothing = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=nothing, stdout=nothing, pass_fds=[theirs.fileno()])
        atexit.register(self.end)

    def start(self, arguments: Sequence[str], env: dict[str, str], cwd: Path) -> Started:
        out, report = os.pipe(), os.pipe()
        given = json.dumps({"arguments": list(arguments), "env": env, "cwd": str(cwd)}).encode()
        socket.send_fds(self._socket, [given], [out[1], report[1]])
        os.close(out[1])
        os.close(report[1])
        pid = int(self._socket.recv(100))
        return Started(pid, os.fdopen(out[0]), report[0])

    def end(self) -> None:
        """End the process, once all that it started has ended or been left."""
        self._socket.close()
        self._process.wait(30)


_starter: _Starter | None = None


def start(arguments: Sequence[str], *, env: dict[str, str], cwd: Path) -> Started:
    """Start `lmagent` with these arguments."""
    global _starter
    if _starter is None:
        _starter = _Starter()
    return _starter.start(arguments, env, cwd)


def _serve(descriptor: int) -> None:
    """Fork a program for each request and report how it ended, until nobody can ask any more."""
    sys.path.pop(0)  # this folder
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes)
    asked = socket.socket(fileno=descriptor)
    reports: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asked, woken], [], [])
        if woken in ready:
            os.read(woken, 1000)
            _tell_ends(reports)
        if asked not in ready:
            continue
        given, descriptors, _, _ = socket.recv_fds(asked, 1 << 20, 2)
        if not given:
            return
        out, report = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for left in (woken, wakes, report, *reports.values()):
                os.close(left)
            asked.close()
            _become(out, **json.loads(given))
        reports[pid] = report
        os.close(out)
        asked.send(str(pid).encode())


def _tell_ends(reports: dict[int, int]) -> None:
    for pid in list(reports):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            report = reports.pop(pid)
            os.write(report, str(status).encode())
            os.close(report)


def _become(out: int, arguments: list[str], env: dict[str, str], cwd: str) -> NoReturn:
    """Be the program, and end as it."""
    from lmagent.cli.main import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["lmagent", *arguments]
    main()
    raise AssertionError("the program exits by itself")


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
