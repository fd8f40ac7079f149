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
from lmagent.sandbox.git.guard import GitFinding, GitGuard, GitMark


class Guarded:
    """See `lmagent.core.sandbox.Sandbox`; runs commands in `inner`, with checks by `guard`."""

    def __init__(self, inner: Sandbox, guard: GitGuard | None = None) -> None:
        self.workspace: Path = inner.workspace
        self.root = inner.root
        self.environment: Mapping[str, str] = inner.environment
        self._inner = inner
        elsewhere = inner.root if inner.root != str(inner.workspace) else ""
        self._guard = guard or GitGuard(inner.workspace, inside=elsewhere)

    async def probe(self) -> SandboxReport:
        return await self._inner.probe()

    async def start(self, command: Exec, output: OnOutput) -> Running:
        mark = self._guard.baseline()
        # A sandbox cannot cover a missing path, and a command could make that path, for us to read.
        with contextlib.suppress(OSError):
            os.mkdir(self.workspace / ".lmagent")
        return _GuardedRunning(await self._inner.start(command, output), self._guard, mark)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _GuardedRunning:
    """A command whose end is followed by a look at the repositories."""

    def __init__(self, inner: Running, guard: GitGuard, mark: GitMark) -> None:
        self._inner = inner
        self._guard = guard
        self._mark = mark

    async def wait(self) -> Exit:
        try:
            end = await self._inner.wait()
        except BaseException:
            self._look()  # files that it planted must not outlive it, however the wait ended
            raise
        return replace(end, notes=(*end.notes, *map(_words, self._look())))

    def mark(self) -> None:
        """Attribute all changes since the last check to the user."""
        self._mark = self._guard.baseline()

    def inspect(self) -> tuple[str, ...]:
        return tuple(map(_words, self._look()))

    def _look(self) -> tuple[GitFinding, ...]:
        return self._guard.check(self._mark)

    async def send(self, data: bytes) -> None:
        await self._inner.send(data)

    def kill(self) -> None:
        self._inner.kill()


def _words(finding: GitFinding) -> str:
    return f"git guard: {finding.path}: {finding.what}; {finding.action}"
