"""Seatbelt: the sandbox of macOS, by `sandbox-exec`. **Untested on a Mac**: only the profile's text is tested.

A pure function makes the profile. The rules are those that other agents are known to use (`research/sandbox.md` §9):
everything is denied, then the system's programs are readable, the workspace is writable except for the files that git
runs, and there is no network. Without a process namespace, a command's processes in another session outlive it; and the
only limits are those of a shell. The probe says so.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Limits, OnOutput, Promise, SandboxReport
from lmagent.sandbox.attack import attack
from lmagent.sandbox.environment import base_environment, inside
from lmagent.sandbox.git.guard import GitGuard, Protected
from lmagent.sandbox.process import Handlers, Process, spawn

PROGRAM = "/usr/bin/sandbox-exec"
READ = (
    *("/usr", "/bin", "/sbin", "/System", "/Library/Developer", "/Library/Frameworks", "/Library/Apple", "/opt"),
    *("/private/etc/ssl", "/private/etc/localtime", "/private/etc/passwd", "/private/etc/group", "/private/etc/hosts"),
    *("/private/var/db/timezone", "/private/var/select", "/private/var/db/dyld", "/Applications/Xcode.app"),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SERVICES = (
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
)
"""Services that may be contacted: accounts, the log, notifications. Not names (DNS), keys, or to open things."""

_LIMITED = 'ulimit -c 0; ulimit -f "$1"; shift; exec "$@"'
_FIX = "use docker: install Docker Desktop, and SANDBOX=docker"
_NOT_KEPT = (
    Promise("orphans", False, "open: processes that a command moves to another session may outlive it"),
    Promise("untested", False, "this sandbox was written without a Mac and never run by its authors"),
)


class SeatbeltOptions(Struct, frozen=True):
    """The setup of a Seatbelt sandbox.

    Attributes:
        env: environment of this process, of which little is passed on.
        limits: only the size of a file is enforced.
        protected: git's paths that commands must not change, from the guard's latest look; None looks again.
    """

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = Limits()
    read: tuple[Path, ...] = ()
    protected: Callable[[], Sequence[Protected]] | None = None


class Seatbelt:
    """See `lmagent.core.sandbox.Sandbox`. It has not run on a Mac."""

    def __init__(self, workspace: Path, options: SeatbeltOptions) -> None:
        self.workspace = workspace
        self.root = str(workspace)
        self._options = options
        self._own = Path(os.path.realpath(tempfile.gettempdir()), f"lmagent-{os.getpid()}-{secrets.token_hex(8)}")
        base = base_environment(options.env, (*options.read, workspace), home=f"{self._own}/home")
        self.environment: Mapping[str, str] = {**base, "TMPDIR": f"{self._own}/tmp"}

    async def probe(self) -> SandboxReport:
        if why := _missing():
            return SandboxReport("seatbelt", works=False, reason=why, fix=_FIX if sys.platform == "darwin" else "")
        report = await attack(self, SandboxReport("seatbelt"), self._options.limits, "")
        return msgspec.structs.replace(report, promises=(*report.promises, *_NOT_KEPT))

    async def start(self, command: Exec, output: OnOutput) -> Process:
        if why := _missing():
            raise SandboxError(f"{why}; nothing was run")
        if command.hosts:
            raise SandboxError("this sandbox has no network; nothing was run", fix=_FIX)
        folder = inside(self.workspace, command)
        real = Path(os.path.realpath(self.workspace))
        try:
            for name in ("", "home", "tmp"):
                (self._own / name).mkdir(mode=0o700, exist_ok=True)
            protected = (self._options.protected or GitGuard(real).protected)()
        except OSError as error:
            raise SandboxError(f"the sandbox cannot be set up: {error}; nothing was run") from error
        text = profile(str(real), [str(self._own)], [*map(str, self._options.read)], protected)
        blocks = str(self._options.limits.file_mb * 2048)
        argv = [PROGRAM, "-p", text, "/bin/sh", "-c", _LIMITED, "sh", blocks, *command.argv]
        handlers = Handlers(kill=_kill, gone=_kill_group)
        return spawn(argv, command, output, handlers, env={**self.environment, **command.env}, cwd=folder)

    async def aclose(self) -> None:
        shutil.rmtree(self._own, ignore_errors=True)


def profile(workspace: str, write: Sequence[str], read: Sequence[str], protected: Iterable[Protected]) -> str:
    """Return the profile; of two rules that match, the later one holds. `write` and `read` are other folders."""
    fixed = tuple(protected)
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-exec process-fork)",
        "(allow signal process-info* (target same-sandbox))",
        "(allow sysctl-read ipc-posix-sem file-read-metadata)",
        f"(allow mach-lookup {_each('global-name', SERVICES)})",
        f'(allow file-read* (literal "/") {_each("subpath", [*READ, *read, workspace, *write])})',
        f"(allow file-read* file-write-data file-ioctl {_each('literal', DEVICES)})",
        f"(allow file-write* {_each('subpath', [workspace, *write])})",
        f"(deny file-read* file-write* {_each('subpath', [f'{workspace}/.lmagent'])})",
    ]
    closed = [str(item.path) for item in fixed if not item.writable]
    if closed:
        lines.append(f"(deny file-write* {_each('subpath', closed)})")
    if fixed:
        # The folders above must not be renamed and built again beside them either.
        above = {str(folder) for item in fixed for folder in item.path.parents if folder.is_relative_to(workspace)}
        kept = sorted(above | {str(item.path) for item in fixed})
        lines.append(f"(deny file-write-unlink {_each('literal', kept)})")
    lines.append("(deny network*)")
    return "\n".join(lines)


def _each(kind: str, values: Iterable[str]) -> str:
    return " ".join(f"({kind} {_text(value)})" for value in values)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _missing() -> str:
    if sys.platform != "darwin":
        return "sandbox-exec is macOS's own, and this is another system"
    return "" if os.access(PROGRAM, os.X_OK) else f"{PROGRAM} is not there"


def _kill_group(popen: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)


def _kill(popen: subprocess.Popen[bytes]) -> None:
    """Kill the present tree, whatever sessions are in it, then the group."""
    listed = subprocess.run(["/bin/ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    for pid in descendants(popen.pid, listed):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    _kill_group(popen)


def descendants(root: int, listed: str) -> list[int]:
    """Return the processes below a process; `listed` has lines of a pid and its parent's, as `ps` prints them."""
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        pid, _, parent = line.strip().partition(" ")
        if pid.isdigit() and parent.strip().isdigit():
            children.setdefault(int(parent), []).append(int(pid))
    found: list[int] = []
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, ())
    return found
