"""Confined: the sandbox of a host, chosen when the first command needs it, since most sessions need none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from lmagent.config.paths import own_places
from lmagent.config.settings import Settings
from lmagent.core.sandbox import Limits, Sandbox, SandboxReport
from lmagent.sandbox.environment import SandboxRequest

if TYPE_CHECKING:
    from lmagent.sandbox.packages import PackageHosts


class Confined:
    """Chooses the one sandbox of a workspace.

    Attributes:
        fixed: folders, relative to the workspace, that commands must not change.
    """

    def __init__(self, workspace: Path, settings: Settings, fixed: tuple[Path, ...] = ()) -> None:
        self.fixed = fixed
        self.report: SandboxReport | None = None
        self.expected = ""  # the sandbox that `outlook` found; empty before that, and if it found none
        self._settings = settings
        self._workspace = workspace
        self._sandbox: Sandbox | None = None
        self._lock = anyio.Lock()

    @property
    def name(self) -> str:
        """The chosen sandbox; before the first command, the expected or configured one."""
        return self.report.backend if self.report else self.expected or self._settings.sandbox

    async def outlook(self) -> tuple[str, str]:
        """Return the sandbox that commands will probably get; or an empty name and a remedy."""
        from lmagent.sandbox.outlook import outlook

        settings = self._settings
        expected, missing = await outlook(settings.sandbox, os.environ, self._workspace, settings.sandbox_image)
        self.expected = expected
        return expected, missing

    @property
    def hosts(self) -> tuple[str, ...]:
        return self._settings.sandbox_hosts

    @cached_property
    def packages(self) -> PackageHosts:
        """The package registries that commands may reach once they are allowed."""
        from lmagent.sandbox.packages import PRESET, PackageHosts  # not before a command runs

        return PackageHosts(os.environ, self._workspace, listed=PRESET in self._settings.sandbox_hosts)

    async def get(self) -> Sandbox:
        """Return the sandbox. Raise SandboxError if this machine has none; the next call looks again."""
        async with self._lock:
            if self._sandbox is None:
                from lmagent.sandbox.choose import choose  # most sessions run no command
                from lmagent.sandbox.scratch import scratch_root

                data, wanted = self._settings.agent_data_dir, self.request()
                scratch = scratch_root(data, self._workspace) if data.is_absolute() else None
                self._sandbox, self.report = await choose(self._workspace, replace(wanted, scratch=scratch))
            return self._sandbox

    async def beside(self, folder: Path, read: Sequence[Path] = (), limits: Limits | None = None) -> Sandbox:
        """Return a sandbox of the same kind for another folder, which sees nothing of the workspace, and of the user's
        files only those to `read`. Raise SandboxError."""
        await self.get()
        from lmagent.sandbox.choose import alike

        wanted = replace(self.request(), read=tuple(read), limits=limits, own=(), fixed=())
        return alike(folder, wanted, self.name)

    def request(self) -> SandboxRequest:
        """Return the options of sandboxes for the workspace."""
        return replace(request(self._settings, self._workspace), fixed=self.fixed)

    async def aclose(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.aclose()


def request(settings: Settings, workspace: Path) -> SandboxRequest:
    read = tuple(Path(entry).expanduser() for entry in settings.sandbox_read.split(os.pathsep) if entry)
    return SandboxRequest(
        backend=settings.sandbox,
        env=os.environ,
        memory_mb=settings.sandbox_memory_mb,
        pids=settings.sandbox_pids,
        read=read,
        image=settings.sandbox_image,
        network=settings.docker_network,
        own=own_places(workspace, os.environ),
    )
