"""Seatbelt: the sandbox of macOS, by `sandbox-exec`. **Untested on a Mac**: only the profile's text is tested.

Everything is denied, then the system's programs are readable, the workspace is writable except for the files that git
runs, and there is no network. Without a process namespace, a command's processes in another session outlive it; and the
only limits are those of a shell. The probe says so.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Limits, OnOutput, Promise, SandboxReport
from lmagent.sandbox.attack import attack
from lmagent.sandbox.environment import base_environment, inside
from lmagent.sandbox.git.guard import Protected
from lmagent.sandbox.process import Process
from lmagent.sandbox.scratch import make_private

PROGRAM = "/usr/bin/sandbox-exec"
READ = (
    *("/usr", "/bin", "/sbin", "/System", "/Library/Developer", "/Library/Frameworks", "/Library/Apple", "/opt"),
    *("/private/etc/ssl", "/private/etc/localtime", "/private/etc/passwd", "/private/etc/group", "/private/etc/hosts"),
    *("/private/var/db/timezone", "/private/var/select", "/private/var/db/dyld", "/Applications/Xcode.app"),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SERVICES = tuple(f"com.apple.system.{name}" for name in ("opendirectoryd.libinfo", "logger", "notification_center"))
"""Services that may be contacted: accounts, the log, notifications. Not names (DNS), keys, or to open things."""

_LIMITED = 'ulimit -c 0; ulimit -f "$1"; shift; exec "$@"'
_FIX = "use docker: install Docker Desktop, and SANDBOX=docker"
_NOT_KEPT = (
    Promise("orphans", False, "open: processes that a command moves to another session may outlive it"),
    Promise("untested", False, "this sandbox was written without a Mac and never run by its authors"),
)


class Seatbelt:
    """See `lmagent.core.sandbox.Sandbox`. It has not run on a Mac.

    Args:
        limits: only the size of a file is enforced.
        protected: git's paths that commands must not change, from the guard's latest look.
    """

    def __init__(
        self,
        workspace: Path,
        env: Mapping[str, str],
        limits: Limits,
        read: tuple[Path, ...],
        protected: Callable[[], Sequence[Protected]],
    ) -> None:
        self.workspace = workspace
        self.root = str(workspace)
        self._limits, self._read, self._protected = limits, read, protected
        self._own = Path(os.path.realpath(tempfile.gettempdir()), f"lmagent-{os.getpid()}-{secrets.token_hex(8)}")
        base = base_environment(env, (*read, workspace), home=f"{self._own}/home")
        self.environment: Mapping[str, str] = {**base, "TMPDIR": f"{self._own}/tmp"}

    async def probe(self) -> SandboxReport:
        if why := _missing():
            return SandboxReport("seatbelt", works=False, reason=why, fix=_FIX if sys.platform == "darwin" else "")
        report = await attack(self, SandboxReport("seatbelt"), self._limits, "")
        return replace(report, promises=(*report.promises, *_NOT_KEPT))

    async def start(self, command: Exec, output: OnOutput) -> Process:
        if why := _missing():
            raise SandboxError(f"{why}; nothing was run")
        if command.hosts:
            raise SandboxError("this sandbox has no network; nothing was run", fix=_FIX)
        folder = inside(self.workspace, command)
        make_private(self._own)
        real, readable = os.path.realpath(self.workspace), [*map(str, self._read)]
        text = profile(real, [str(self._own)], readable, self._protected())
        blocks = str(self._limits.file_mb * 2048)
        argv = [PROGRAM, "-p", text, "/bin/sh", "-c", _LIMITED, "sh", blocks, *command.argv]
        return _Seatbelted(argv, command, output, env={**self.environment, **command.env}, cwd=folder)

    async def aclose(self) -> None:
        shutil.rmtree(self._own, ignore_errors=True)


class _Seatbelted(Process):
    def wait_until_gone(self) -> None:
        self.kill_all()  # the rest of its process group


def profile(workspace: str, write: Sequence[str], read: Sequence[str], protected: Sequence[Protected]) -> str:
    """Return the profile; of two rules that match, the later one holds. `write` and `read` are other folders."""
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
    closed = [str(item.path) for item in protected if not item.writable]
    if closed:
        lines.append(f"(deny file-write* {_each('subpath', closed)})")
    if protected:
        # The folders above must not be renamed and built again beside them either.
        above = {str(folder) for item in protected for folder in item.path.parents if folder.is_relative_to(workspace)}
        kept = sorted(above | {str(item.path) for item in protected})
        lines.append(f"(deny file-write-unlink {_each('literal', kept)})")
    lines.append("(deny network*)")
    return "\n".join(lines)


def _each(kind: str, values: Iterable[str]) -> str:
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return " ".join(f'({kind} "{value}")' for value in quoted)


def _missing() -> str:
    if sys.platform != "darwin":
        return "sandbox-exec is macOS's own, and this is another system"
    return "" if os.access(PROGRAM, os.X_OK) else f"{PROGRAM} is not there"
