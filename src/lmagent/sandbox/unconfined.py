"""Unconfined: no sandbox at all. Only where a person asked for it by flag or in their own configuration.

It shares the environment rules, the limits of a process and the killing of the process group with the others, and
promises nothing: a command can read, change and reach whatever its user can.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lmagent.core.sandbox import Exec, Limits, OnOutput, Report
from lmagent.sandbox.attack import attack
from lmagent.sandbox.environment import base_environment
from lmagent.sandbox.place import inside
from lmagent.sandbox.process import Handlers, Process, spawn


class Unconfined:
    """See `lmagent.core.sandbox.Sandbox`."""

    def __init__(self, workspace: Path, env: Mapping[str, str]) -> None:
        self.workspace = workspace
        self.root = str(workspace)
        home = env.get("HOME", "/")
        everything = base_environment(env, [Path("/")], home=home)
        self.environment: Mapping[str, str] = {**everything, "LMAGENT_SANDBOX": "off"}

    async def probe(self) -> Report:
        """Show what is open, which is everything."""
        report = await attack(self, Report("off"), Limits(), "")
        return Report("off", works=True, promises=report.promises)

    async def start(self, command: Exec, output: OnOutput) -> Process:
        """Start a command in a process group of its own."""
        folder = inside(self.workspace, command.cwd)
        env = {**self.environment, **command.env}
        return spawn(command.argv, command, output, Handlers(kill=_kill_group), env=env, cwd=folder)

    async def aclose(self) -> None:
        """Nothing is held between commands."""


def _kill_group(popen: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)
