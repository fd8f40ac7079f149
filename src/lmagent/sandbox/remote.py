"""A command in a container, at the other end of a link."""

from __future__ import annotations

import time
from typing import Any

import anyio

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import EndReason, Exec, Exit
from lmagent.sandbox.link import PIECE, Link, LinkJob
from lmagent.sandbox.process import GONE
from lmagent.sandbox.supervisor import KILL, SEND

ROOM = 256 * 1024
"""Bytes of a channel that may be on their way to the command."""

KILLED = 137


class Remote:
    """A command in a container; see `lmagent.core.sandbox.Running`."""

    def __init__(self, link: Link, job: LinkJob, command: Exec) -> None:
        self._link = link
        self._job = job
        self._command = command
        self._reason: EndReason | None = None
        self._lost: int | None = None
        self._began = time.monotonic()

    def mark(self) -> None:
        """Do nothing: the guard checks the workspace."""

    def inspect(self) -> tuple[str, ...]:
        """Return nothing: the guard checks the workspace."""
        return ()

    def kill(self) -> None:
        self._end("killed")

    def _end(self, reason: EndReason) -> None:
        if not self._job.done and self._reason is None:
            self._reason = reason
            self._link.post(KILL, self._job.number)

    async def send(self, data: bytes) -> None:
        if not self._command.channel:
            raise SandboxError("the command has no channel")
        job, view = self._job, memoryview(data)
        while view:
            while job.sent >= ROOM and not (job.done or job.shut):
                await job.room.wait()
                job.room = anyio.Event()
            if job.done or job.shut:
                raise SandboxError("the command does not listen any more")
            piece = view[:PIECE]
            job.sent += len(piece)
            self._link.post(SEND, job.number, bytes(piece))
            await self._link.flush()
            view = view[PIECE:]

    async def wait(self) -> Exit:
        timeout = self._command.timeout
        try:
            with anyio.move_on_after(timeout if timeout is not None else float("inf")) as limit:
                await self._link.flush()
                await self._link.until(self._job)
            if limit.cancelled_caught:
                self._end("timeout")
        finally:
            self._end("killed")
            with anyio.CancelScope(shield=True):
                self._lost = await self._settle()
        return self._exit()

    async def _settle(self) -> int | None:
        """Ensure that no process of it is left. Return the status of the link, if that was lost."""
        with anyio.move_on_after(GONE):
            await self._link.flush()
            await self._link.until(self._job)
        if self._job.result is not None or self._job.error is not None:
            return None
        return await self._link.bury()

    def _exit(self) -> Exit:
        seconds = time.monotonic() - self._began
        if self._job.error is not None:
            raise self._job.error
        if self._job.result is None:
            if (
                self._reason is not None or self._lost == KILLED
            ):  # its supervisor was killed from inside, and all commands with it
                return Exit(KILLED, self._reason or "exit", seconds)
            raise SandboxError(
                "the connection to docker was lost while the command ran: the command was killed, its changes stay",
                fix="docker info shows whether the engine runs",
            )
        memory: EndReason = "memory" if self._result("memory") else "exit"
        return Exit(int(self._result("code")), self._reason or memory, seconds)

    def _result(self, name: str) -> Any:
        return (self._job.result or {})[name]
