"""No sandbox at all: only if the user chose it by flag or in their own configuration.

It shares the environment rules, the limits and the killing of the process group with the others, and promises no
protection: a command can read, change and reach whatever its user can.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from lmagent.core.sandbox import EndReason, Exec, Limits, OnOutput, SandboxReport
from lmagent.sandbox.attack import attack
from lmagent.sandbox.environment import base_environment, inside
from lmagent.sandbox.limits import over_limit
from lmagent.sandbox.process import Handlers, Process, spawn

LIMITS = Limits()
_PRLIMIT = "/usr/bin/prlimit"


class Unconfined:
    """See `lmagent.core.sandbox.Sandbox`."""

    def __init__(self, workspace: Path, env: Mapping[str, str], limits: Limits = LIMITS) -> None:
        self.workspace = workspace
        self._limits = limits
        self.root = str(workspace)
        home = env.get("HOME", "/")
        everything = base_environment(env, [Path("/")], home=home)
        self.environment: Mapping[str, str] = {**everything, "LMAGENT_SANDBOX": "off"}

    async def probe(self) -> SandboxReport:
        """Report that nothing is protected."""
        how = "limits of each process and a watch over the tree" if os.path.exists(_PRLIMIT) else ""
        report = await attack(self, SandboxReport("off"), self._limits, how)
        return SandboxReport("off", works=True, promises=report.promises)

    async def start(self, command: Exec, output: OnOutput) -> Process:
        folder = inside(self.workspace, command)
        env = {**self.environment, **command.env}
        handlers = Handlers(kill=_kill_group, watch=partial(_watch, self._limits))
        return spawn(self._limited(command.argv), command, output, handlers, env=env, cwd=folder)

    async def aclose(self) -> None:
        """Do nothing: no resources are held between commands."""

    def _limited(self, argv: Sequence[str]) -> list[str]:
        if not os.path.exists(_PRLIMIT):
            return list(argv)
        limits, megabyte = self._limits, 1024 * 1024
        data, size = limits.memory_mb * megabyte, limits.file_mb * megabyte
        return [_PRLIMIT, f"--data={data}", f"--fsize={size}", "--core=0", "--nofile=4096:4096", "--", *argv]


def _watch(limits: Limits, popen: subprocess.Popen[bytes]) -> EndReason | None:
    return over_limit(popen.pid, limits)


def _kill_group(popen: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)
