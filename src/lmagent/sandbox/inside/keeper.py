"""The parent process of one command, and the walk over /proc that finds all processes of the command.

A keeper is a forked subreaper: orphans of the command become its children, also those in sessions of their own, so that
the tree below the keeper is exactly the command's. It kills the rest of the tree when the command ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Callable, Mapping

DUMPABLE, SECCOMP, SUBREAPER, NO_NEW_PRIVS = 4, 22, 36, 38

FAILED = 125
"""Exit status if the command could not be prepared, and was not run."""


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


def below(root: int) -> dict[int, str]:
    """Return the states of the living processes below `root`."""
    everything = processes()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in everything.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, str] = {}
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        if everything[pid][1] not in "ZX":
            found[pid] = everything[pid][1]
        waiting += children.get(pid, ())
    return found


def kill(pid: int, number: int) -> None:
    """Signal a process that may be gone."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def kill_below(root: int) -> None:
    """Kill all processes below `root`.

    First all are stopped, again until no new one appears: a stopped process cannot fork, and a fork bomb that is
    stopped at its limit keeps the limit full.
    """
    for _ in range(50):
        moving = [pid for pid, state in below(root).items() if state not in "Tt"]
        if not moving:
            break
        for pid in moving:
            kill(pid, signal.SIGSTOP)
    for pid in below(root):
        kill(pid, signal.SIGKILL)


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


def keep(argv: list[str], cwd: str, env: Mapping[str, str], prepare: Callable[[], None], sign: str = "") -> int:
    """Run a command; when it has ended and no process of it is left, return its exit status.

    Args:
        prepare: called in the process that becomes the command, before that.
        sign: begins the line that says why a command could not be prepared.
    """
    child = os.fork()
    if child == 0:
        _become(argv, cwd, env, prepare, sign)
    os.closerange(0, 4096)
    pid = status = 0
    while pid != child:
        pid, status = os.waitpid(-1, 0)
    bury()
    return exit_status(status)


def exit_status(status: int) -> int:
    """Return the exit status that a shell would report."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _become(argv: list[str], cwd: str, env: Mapping[str, str], prepare: Callable[[], None], sign: str) -> None:
    code, what = FAILED, sign
    try:
        os.setsid()
        os.chdir(cwd)
        prepare()
        code, what = 126, argv[0]
        os.execvpe(argv[0], argv, env)
    except BaseException as error:  # noqa: BLE001 - a fork must never return
        if code == 126 and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            code = 127
        with contextlib.suppress(OSError):
            os.write(2, f"{what}: {getattr(error, 'strerror', error)}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


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
