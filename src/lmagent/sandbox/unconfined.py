"""No sandbox at all: only if the user chose it by flag or in their own configuration.

It shares the environment rules, the limits and the killing of the process group with the others, and promises no
protection: a command can read, change and reach whatever its user can.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lmagent.core.sandbox import Exec, Limits, OnOutput, SandboxReport
from lmagent.sandbox.attack import attack
from lmagent.sandbox.environment import base_environment, inside
from lmagent.sandbox.limits import limited
from lmagent.sandbox.process import Process


class Unconfined:
    """See `lmagent.core.sandbox.Sandbox`."""

    def __init__(self, workspace: Path, env: Mapping[str, str], limits: Limits | None = None) -> None:
        self.workspace = workspace
        self.root = str(workspace)
        self._limits = limits or Limits()
        everything = base_environment(env, [Path("/")], home=env.get("HOME", "/"))
        self.environment: Mapping[str, str] = {**everything, "LMAGENT_SANDBOX": "off"}

    async def probe(self) -> SandboxReport:
        """Report that nothing is protected."""
        is_limited = bool(limited([], self._limits, count_processes=False))
        how = "limits of each process and a watch over the tree" if is_limited else ""
        report = await attack(self, SandboxReport("off"), self._limits, how)
        return SandboxReport("off", works=True, promises=report.promises)

    async def start(self, command: Exec, output: OnOutput) -> Process:
        argv = limited(command.argv, self._limits, count_processes=False)
        env, cwd = {**self.environment, **command.env}, inside(self.workspace, command)
        return Process(argv, command, output, env=env, cwd=cwd, limits=self._limits)

    async def aclose(self) -> None:
        """Do nothing: no resources are held between commands."""
