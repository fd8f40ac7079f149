"""The parent process of one command, and the walk over /proc that finds all processes of the command.

A keeper is a forked subreaper: orphans of the command become its children, also those in sessions of their own, so that
the tree below the keeper is exactly the command's. It kills the rest of the tree when the command ends.

This file is sent into containers as text, and run beside them without our packages: standard library only (3.8).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import struct
import subprocess
from collections.abc import Collection
from typing import Any

PIECE = 65536
SUBREAPER, DUMPABLE, NO_NEW_PRIVS, SECCOMP = 36, 4, 38, 22

NOT_RUN = (errno.E2BIG, errno.ENOEXEC, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors of a program that exists and cannot be run."""

Request = dict[str, Any]
"""`argv`, `cwd`, `env`, `merge` and `channel`, the name of the variable for its number, or an empty text."""


def processes() -> dict[int, tuple[int, str]]:
    """Return parent and state of every process."""
    found: dict[int, tuple[int, str]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                found[int(name)] = (int(parent), state.decode())
    return found


def below(root: int, without: Collection[int] = ()) -> dict[int, str]:
    """Return the states of the living processes below `root`, without the processes `without` and those below them."""
    everything = processes()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in everything.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, str] = {}
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        if pid in without:
            continue
        if everything[pid][1] not in "ZX":
            found[pid] = everything[pid][1]
        waiting += children.get(pid, ())
    return found


def kill(pid: int, number: int) -> None:
    """Signal a process that may be gone."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def kill_below(root: int, without: Collection[int] = ()) -> bool:
    """Kill all processes below `root`, except `without` and those below them; return whether there were any.

    First all are stopped, again until no new one appears: a stopped process cannot fork, and a fork bomb that is
    stopped at its limit keeps the limit full.
    """
    for _ in range(50):
        moving = [pid for pid, state in below(root, without).items() if state not in "Tt"]
        if not moving:
            break
        for pid in moving:
            kill(pid, signal.SIGSTOP)
    left = below(root, without)
    for pid in left:
        kill(pid, signal.SIGKILL)
    return bool(left)


def control(option: int, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, *arguments, *([0] * (4 - len(arguments)))):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def install_filter(program: bytes) -> None:
    """Install a system call filter for this process and all its children."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    control(NO_NEW_PRIVS, 1)
    control(SECCOMP, 2, ctypes.c_char_p(header))


def keep(request: Request, ends: dict[str, int], report: int) -> None:
    """Run a command; when it has ended and no process of it is left, report its end to the descriptor `report`.

    `ends` has `stdout`, `stderr` and `channel`, if the request has them; they are closed.
    """
    try:
        process = subprocess.Popen(
            request["argv"],
            stdin=subprocess.DEVNULL,
            stdout=ends["stdout"],
            stderr=ends.get("stderr", subprocess.STDOUT),
            cwd=request["cwd"],
            env={**request["env"], **({request["channel"]: str(ends["channel"])} if "channel" in ends else {})},
            pass_fds=[ends["channel"]] if "channel" in ends else [],
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        said = _not_started(error, request, ends)
    else:
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/oom_score_adj", "w") as file:
            file.write("500")  # so that the OOM killer does not choose the supervisor
        for end in ends.values():
            os.close(end)
        pid = status = 0
        while pid != process.pid:
            pid, status = os.waitpid(-1, 0)
        bury()
        said = {"code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)}
    os.write(report, json.dumps(said).encode())


def _not_started(error: Exception, request: Request, ends: dict[str, int]) -> dict[str, object]:
    """Return the exit status that a shell would report, or the error if the command is not to blame."""
    missing = isinstance(error, (FileNotFoundError, NotADirectoryError)) and os.path.isdir(request["cwd"])
    if missing or isinstance(error, PermissionError) or getattr(error, "errno", 0) in NOT_RUN:
        text = f"{request['argv'][0]}: {getattr(error, 'strerror', error)}\n"
        os.write(ends.get("stderr", ends["stdout"]), text.encode("utf-8", "replace")[:4096])
        return {"code": 127 if missing else 126}
    return {"error": str(error)[:4096]}


def warm_up() -> None:
    """Run the code of `keep` without effect: a fork copies each page at its first use, which takes a millisecond."""
    with contextlib.suppress(OSError):
        subprocess.Popen(
            ["/nonexistent"], stdin=subprocess.DEVNULL, cwd="/", env=dict(os.environ), start_new_session=True
        )
    json.loads(json.dumps({"code": 0}))
    bury()


def bury() -> None:
    """Kill all processes below this one, and wait until they are gone."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        kill_below(os.getpid())
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
