"""A sandbox with a check of the workspace's git repositories after every command.

The mounts keep a command from changing the files that the user's git runs today; the guard finds new ones: a repository
planted inside, a hook, a redirected `.git`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from lmagent.core.sandbox import Exec, Exit, OnOutput, Running, Sandbox, SandboxReport
from lmagent.sandbox.git.guard import GitGuard


class Guarded:
    """See `lmagent.core.sandbox.Sandbox`; runs commands in `inner`, with checks by `guard`."""

    def __init__(self, inner: Sandbox, guard: GitGuard) -> None:
        self.workspace: Path = inner.workspace
        self.root = inner.root
        self.environment: Mapping[str, str] = inner.environment
        self._inner = inner
        self._guard = guard

    async def probe(self) -> SandboxReport:
        return await self._inner.probe()

    async def start(self, command: Exec, output: OnOutput) -> Running:
        guarded = _GuardedRunning(self._guard)
        # A sandbox cannot cover a missing path, and a command could make that path, for us to read.
        with contextlib.suppress(OSError):
            os.mkdir(self.workspace / ".lmagent")
        guarded.inner = await self._inner.start(command, output)
        return guarded

    async def aclose(self) -> None:
        await self._inner.aclose()


class _GuardedRunning:
    """A command whose end is followed by a look at the repositories."""

    inner: Running

    def __init__(self, guard: GitGuard) -> None:
        self._guard = guard
        self.mark()

    async def wait(self) -> Exit:
        try:
            end = await self.inner.wait()
        except BaseException:
            self.inspect()  # files that it planted must not outlive it, however the wait ended
            raise
        return replace(end, notes=(*end.notes, *self.inspect()))

    def mark(self) -> None:
        """Attribute all changes since the last check to the user."""
        self._mark = self._guard.baseline()

    def inspect(self) -> tuple[str, ...]:
        found = self._guard.check(self._mark)
        return tuple(f"git guard: {finding.path}: {finding.what}; {finding.action}" for finding in found)

    async def send(self, data: bytes) -> None:
        await self.inner.send(data)

    def kill(self) -> None:
        self.inner.kill()
