"""Cheap starts of the program: `python -m lmagent …` comes from a process that has loaded the libraries.

So do the victims of the crash tests (`*victim.py`), which kill themselves hundreds of times.

Tests start the program thousands of times, with `subprocess`, `asyncio` or the SDK of a protocol, and all of them with
`subprocess.Popen`. `install` has its starts of the program made by `testkit.preloaded`. What would differ there is
started as usual: a start with options of Python, with an environment that Python reads at its start, or with anything
else that a request cannot express. `LMAGENT_STARTS=real` has all starts made as usual, as those of `make explore` are.
"""

from __future__ import annotations

import atexit
import fcntl
import inspect
import os
import pickle
import socket
import subprocess
import sys
import termios
import threading
from typing import Any

from testkit.preloaded import CLONE, MOST

_usual: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_NAMES = tuple(inspect.signature(_usual).parameters)[1:]

READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""How variables begin that Python or the system's loader reads at the start of a process."""

WITH_PROTOCOLS = ("acp", "mcp")
"""Commands that load the SDK of a protocol."""

_lock = threading.Lock()
_connections: dict[bool, socket.socket] = {}
"""To the processes with the libraries: one without the SDKs of protocols, and one with them."""
_given: dict[str, str] = {}
"""The environment that they were started with."""


def take_terminal() -> None:
    """Make standard input the controlling terminal, as a terminal's window does: a `preexec_fn`."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def install() -> None:
    """Have all starts of the program in this process made cheaply, where that is possible."""
    if sys.platform == "linux" and CLONE and os.environ.get("LMAGENT_STARTS") != "real":
        subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


def _execute_child(self: Any, *given: Any) -> None:
    """Start a process, in place of the method of `subprocess.Popen`."""
    options = dict(zip(_NAMES, given, strict=True))
    process = _cheaply(options)
    if not process:
        _usual(self, *given)
        return
    self.pid = process
    self._child_created = True
    self._close_pipe_fds(*(options[name] for name in _NAMES if name[:3] in ("p2c", "c2p", "err")))


def _cheaply(options: dict[str, Any]) -> int:
    """Start the program for the options of a `Popen`; returns its process id, or 0 if that is not possible."""
    command = options["args"]
    if not isinstance(command, list | tuple) or command[0] != sys.executable:
        return 0
    victim = str(command[1]).endswith("victim.py")
    if not victim and list(command[1:3]) != ["-m", "lmagent"]:
        return 0
    request = _request(options, victim)
    if not request or len(request) > MOST:
        return 0
    streams = [options[name] for name in ("p2cread", "c2pwrite", "errwrite")]
    with _lock:
        protocols = len(command) > 3 and command[3] in WITH_PROTOCOLS
        connection = _connections.get(protocols) or _begin(protocols)
        try:
            socket.send_fds(connection, [request], [n if given == -1 else given for n, given in enumerate(streams)])
        except OSError:
            return 0  # more than a message can have, or nothing is there to take it
        return int(connection.recv(64) or 0)


def _request(options: dict[str, Any], victim: bool) -> bytes:
    """Return what the start needs, or nothing if a request cannot express it."""
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in (options["env"] or os.environ).items()}
    folder = os.fspath(options["cwd"] or os.getcwd())
    preparing = options["preexec_fn"]
    path = environment.get("PYTHONPATH", "").split(os.pathsep) if victim else []
    if (
        any(options.get(name) for name in ("executable", "pass_fds", "shell", "gid", "gids", "uid"))
        or options["umask"] != -1
        or options["process_group"] != -1
        or not options["close_fds"]
        or preparing not in (None, take_terminal)
        or not os.path.isdir(folder)
        or _at_start(environment, victim) != _at_start(_given or dict(os.environ), victim)
    ):
        return b""
    return pickle.dumps(
        {
            "arguments": [os.fsdecode(argument) for argument in options["args"][1:]],
            "path": [os.path.join(folder, name) for name in path if name],
            "folder": folder,
            "environment": environment,
            "session": bool(options["start_new_session"]),
            "terminal": preparing is take_terminal,
        }
    )


def _at_start(environment: dict[str, str], victim: bool) -> dict[str, str]:
    read = {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
    if victim:
        read.pop("PYTHONPATH", None)
    return read


def _begin(protocols: bool) -> socket.socket:
    _given.update(_given or os.environ)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        file = os.path.join(os.path.dirname(__file__), "preloaded.py")
        command = [sys.executable, file, str(number), "protocols" if protocols else ""]
        process = subprocess.Popen(
            command, env=_given, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[number]
        )
    _connections[protocols] = ours
    atexit.register(_end, ours, process)
    return ours


def _end(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    connection.close()
    process.wait()
