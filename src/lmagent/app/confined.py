"""Confined: the sandbox of a host, chosen when the first command needs it, since most sessions need none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from lmagent.config.paths import own_places
from lmagent.config.settings import Settings
from lmagent.core.sandbox import Limits, Report, Sandbox

if TYPE_CHECKING:
    from lmagent.sandbox.choose import Wishes


class Confined:
    """Gives the one sandbox of a workspace.

    Args:
        workspace: the workspace.
        settings: what the user wants of a sandbox.

    Attributes:
        report: what the probe found, once there was one.
        expected: the sandbox that `outlook` found; empty before it was asked, and where it found none.
    """

    def __init__(self, workspace: Path, settings: Settings) -> None:
        self.report: Report | None = None
        self.expected = ""
        self._settings = settings
        self._workspace = workspace
        self._sandbox: Sandbox | None = None
        self._lock = anyio.Lock()

    @property
    def name(self) -> str:
        """The sandbox that is used; before the first command the one that is expected, or was asked for."""
        return self.report.backend if self.report else self.expected or self._settings.sandbox

    async def outlook(self) -> tuple[str, str]:
        """Return the sandbox that commands will probably get, or an empty name and what to do about it."""
        from lmagent.sandbox.outlook import outlook

        settings = self._settings
        expected, missing = await outlook(settings.sandbox, os.environ, self._workspace, settings.sandbox_image)
        self.expected = expected
        return expected, missing

    @property
    def hosts(self) -> tuple[str, ...]:
        """What commands may reach."""
        return self._settings.sandbox_hosts

    @property
    def memory_mb(self) -> int:
        """Memory of one command, MiB, unless a docker image has its own limit."""
        return self._settings.sandbox_memory_mb or Limits().memory_mb

    async def get(self) -> Sandbox:
        """The sandbox.

        Raises:
            SandboxError: there is none here; asked again, it looks again.
        """
        async with self._lock:
            if self._sandbox is None:
                from lmagent.sandbox.choose import choose  # most sessions run no command

                self._sandbox, self.report = await choose(self._workspace, wishes(self._settings, self._workspace))
            return self._sandbox

    async def aclose(self) -> None:
        """Release it."""
        if self._sandbox is not None:
            await self._sandbox.aclose()


def wishes(settings: Settings, workspace: Path) -> Wishes:
    """What the settings say about the sandbox of a workspace."""
    from lmagent.sandbox.choose import Wishes
    from lmagent.sandbox.scratch import scratch_root

    data = settings.agent_data_dir
    read = tuple(Path(entry).expanduser() for entry in settings.sandbox_read.split(os.pathsep) if entry)
    return Wishes(
        backend=settings.sandbox,
        env=os.environ,
        memory_mb=settings.sandbox_memory_mb,
        pids=settings.sandbox_pids,
        read=read,
        image=settings.sandbox_image,
        network=settings.docker_network,
        own=own_places(workspace, os.environ),
        scratch=scratch_root(data, workspace) if data.is_absolute() else None,
    )
