"""Landlock: the kernel's own access control, for a Linux where neither bubblewrap nor docker can run. Degraded.

A command can read /usr and the toolchains, and write in the workspace and a folder of its own; it can make no socket at
all, since Landlock knows TCP alone and the unix sockets of other programs (docker's) are as good as the host.

Its gaps: rights only ever add up, so `.git` and `.lmagent` in the workspace are writable; the machine's processes are
visible; modes and times of the user's files outside can be changed; and limits are per process, with a watch over the
tree. Without /tmp and /dev/shm, semaphores of Python's multiprocessing fail. So it runs only if the user selected it by
name.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import CHANNEL, Exec, Limits, OnOutput, Promise, SandboxReport
from lmagent.sandbox import seccomp
from lmagent.sandbox.attack import REQUIRED, attack
from lmagent.sandbox.environment import base_environment, inside
from lmagent.sandbox.inside import launch, program
from lmagent.sandbox.inside.keeper import FAILED, kill, kill_below
from lmagent.sandbox.limits import MEGABYTE
from lmagent.sandbox.process import Process
from lmagent.sandbox.scratch import make_private

OLDEST = 4
SCOPED = 6
READ = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sys/devices/system/cpu")
ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates"),
    *("pki/tls/certs", "localtime", "passwd", "group", "nsswitch.conf", "hosts"),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
FIX = "install bubblewrap (sudo apt install bubblewrap), or ask for the degraded sandbox by name: SANDBOX=landlock"
NOT_KEPT = (
    Promise("git", False, "open: .git and .lmagent in the workspace can be written"),
    Promise("metadata", False, "open: modes, owners and times of the user's files outside can be changed"),
)


class Landlock:
    """See `lmagent.core.sandbox.Sandbox`. `read` are folders outside /usr that are readable inside."""

    def __init__(
        self, workspace: Path, env: Mapping[str, str], limits: Limits | None = None, read: tuple[Path, ...] = ()
    ) -> None:
        self.workspace = workspace
        self.root = str(workspace)
        self._limits = limits or Limits()
        self._read = read
        self._own = Path(tempfile.gettempdir(), f"lmagent-{os.getpid()}-{secrets.token_hex(8)}")
        base = base_environment(env, (*read, workspace), home=f"{self._own}/home")
        # An unreadable config file is a fatal error to git, a missing one is not.
        self.environment: Mapping[str, str] = {**base, "TMPDIR": f"{self._own}/tmp", "GIT_CONFIG_NOSYSTEM": "1"}

    async def probe(self) -> SandboxReport:
        """Attack it from inside. That processes can be seen is known, and does not count."""
        version = launch.abi() if sys.platform == "linux" else 0
        report = SandboxReport("landlock", str(version))
        if why := _missing(version):
            return replace(report, works=False, reason=why, fix=FIX)
        report = await attack(self, report, self._limits, "limits of each process and a watch over the tree")
        if not report.promises:
            return report
        signals = "not signalled" if version >= SCOPED else "signalled"
        seen = Promise("processes", False, f"open: other processes can be seen, and {signals}")
        promises = [seen if promise.name == "processes" else promise for promise in report.promises]
        broken = [made.name for made in promises if not made.kept and made.name in REQUIRED and made is not seen]
        reason = f"not kept: {', '.join(broken)}" if broken else ""
        return replace(report, works=not broken, promises=(*promises, *NOT_KEPT), reason=reason)

    async def start(self, command: Exec, output: OnOutput) -> Process:
        if why := _missing(launch.abi() if sys.platform == "linux" else 0):
            raise SandboxError(f"{why}; nothing was run", fix=FIX)
        if command.hosts:
            raise SandboxError(
                "Landlock cannot let a command reach some hosts and no others; nothing was run",
                fix="use bubblewrap or docker for commands that need the network",
            )
        folder = inside(self.workspace, command)
        argv = [sys.executable, *program("launch", json.dumps(self._config(command, folder)))]
        # Without the command's own variables: out here they would take effect.
        return _Landlocked(argv, command, output, env={"PATH": os.defpath}, cwd="/", limits=self._limits)

    async def aclose(self) -> None:
        shutil.rmtree(self._own, ignore_errors=True)

    def _config(self, command: Exec, folder: Path) -> launch.Config:
        make_private(self._own)
        limits = self._limits
        return {
            "argv": command.argv,
            "cwd": str(folder),
            "env": {**self.environment, **command.env},
            "parent": os.getpid(),
            "filter": seccomp.program(families=()).hex(),
            "read": [*READ, *(f"/etc/{name}" for name in ETC), *map(str, self._read)],
            "write": [str(self.workspace), str(self._own)],
            "devices": DEVICES,
            "channel": CHANNEL,
            "limits": {
                "RLIMIT_CORE": 0,
                "RLIMIT_DATA": limits.memory_mb * MEGABYTE,
                "RLIMIT_FSIZE": limits.file_mb * MEGABYTE,
                "RLIMIT_NOFILE": 4096,
            },
        }


def _missing(version: int) -> str:
    if version == 0:
        return "this kernel has no Landlock"
    if version < OLDEST:
        return f"the Landlock of this kernel is too old ({version}, and {OLDEST} is needed)"
    return "" if seccomp.supported() else "there is no system call filter for this processor"


class _Landlocked(Process):
    def kill_all(self) -> None:
        """Kill the descendants first: before ABI 6 a command could have stopped its launcher."""
        kill_below(self._popen.pid)
        kill(self._popen.pid, signal.SIGTERM)
        kill(self._popen.pid, signal.SIGCONT)

    def failure(self, code: int, first_output: bytes) -> SandboxError | None:
        if code != FAILED or not first_output.startswith(launch.SIGN.encode()):
            return None
        said = first_output.decode("utf-8", "replace").strip()
        return SandboxError(f"{said}; nothing was run", fix=FIX)
