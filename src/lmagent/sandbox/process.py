"""A started command: its pipes, its end, and the end of all processes that it started.

A command ends with its process, never with a pipe: a grandchild that holds the output open does not delay the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from lmagent.core.errors import SandboxError, ungrouped
from lmagent.core.sandbox import CHANNEL, EndReason, Exec, Exit, Limits, OnOutput, Stream
from lmagent.sandbox.limits import over_limit

GONE = 2.0
"""Seconds that a killed tree has to be gone."""

WATCH = 0.1
"""Seconds between checks of a command's use of resources."""

_PIECE = 256 * 1024
_MOST_LEFT = 1 << 20  # the largest pipe


class Process:
    """One command; see `lmagent.core.sandbox.Running`. A backend overrides what it does in its own way.

    It is made in the thread of the event loop, which outlives the command: a bubblewrap is killed when the *thread*
    that started it ends.

    Args:
        argv: the command with the backend's wrapper.
        limits: watched from outside; None if the kernel enforces all of them.

    Raises:
        SandboxError: it could not be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        command: Exec,
        output: OnOutput,
        *,
        env: Mapping[str, str],
        cwd: str | Path,
        pass_fds: Sequence[int] = (),
        limits: Limits | None = None,
    ) -> None:
        self._command = command
        self._output = output
        self._limits = limits
        self._began = time.monotonic()
        self._reason: EndReason | None = None
        self._head = b""
        self._failure: SandboxError | None = None
        self._notes: tuple[str, ...] = ()
        self._pipes: dict[Stream, int] = {}
        self._channel, theirs = socket.socketpair() if command.channel else (None, None)
        ends: list[int] = []
        try:
            for stream in ("stdout", "stderr")[: 1 if command.merge else 2]:
                self._pipes[stream], end = os.pipe()
                os.set_blocking(self._pipes[stream], False)
                ends.append(end)
            self._popen = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=ends[0],
                stderr=ends[-1],
                env={**env, **({CHANNEL: str(theirs.fileno())} if theirs else {})},
                cwd=cwd,
                pass_fds=(*pass_fds, *((theirs.fileno(),) if theirs else ())),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._close_pipes()
            raise SandboxError(f"the command cannot be started: {error}") from error
        finally:
            for end in ends:
                os.close(end)
            if theirs:
                theirs.close()
        if self._channel:
            self._channel.setblocking(False)

    def kill_all(self) -> None:
        """Kill it, with all processes that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    def wait_until_gone(self) -> None:
        """Wait until all of its processes are gone."""

    def over_limit(self) -> EndReason | None:
        """Return the limit, if any, that it exceeds."""
        return over_limit(self._popen.pid, self._limits) if self._limits else None

    def out_of_memory(self) -> bool:
        """Return whether a process of it was killed for lack of memory."""
        return False

    def failure(self, code: int, first_output: bytes) -> SandboxError | None:
        """Return why the sandbox did not get as far as the command, if so."""

    def release(self) -> None:
        """Release its resources, after its end."""

    async def serve(self) -> None:
        """Run beside it until cancelled at its end."""

    def mark(self) -> None:
        """Do nothing: the guard checks the workspace."""

    def inspect(self) -> tuple[str, ...]:
        """Return nothing: the guard checks the workspace."""
        return ()

    def kill(self) -> None:
        self._end("killed")

    async def send(self, data: bytes) -> None:
        if self._channel is None:
            raise SandboxError("the command has no channel")
        view = memoryview(data)
        while view:
            try:
                view = view[self._channel.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._channel)
            except (OSError, anyio.ClosedResourceError) as error:
                raise SandboxError(f"the command does not listen any more: {error}") from error

    async def wait(self) -> Exit:
        try:
            with ungrouped():
                async with anyio.create_task_group() as readers:
                    for stream, descriptor in self._ends():
                        readers.start_soon(self._pump, stream, descriptor)
                    readers.start_soon(self._watch)
                    readers.start_soon(self.serve)
                    await self._until_end()
                    readers.cancel_scope.cancel()
            for stream, descriptor in self._ends():
                self._drain(stream, descriptor)
        finally:
            self._end("killed")
            with anyio.CancelScope(shield=True):
                await self._settle()
        return self._exit()

    async def _until_end(self) -> None:
        timeout = self._command.timeout
        with anyio.move_on_after(timeout if timeout is not None else float("inf")) as limit:
            await _ended(self._popen)
        if limit.cancelled_caught:
            self._end("timeout")
            await _ended(self._popen)

    def _close_pipes(self) -> None:
        for descriptor in self._pipes.values():
            os.close(descriptor)
        if self._channel is not None:
            self._channel.close()

    async def _settle(self) -> None:
        """Ensure that no process of it and no descriptor of ours is left."""
        await _ended(self._popen)
        self._close_pipes()
        await anyio.to_thread.run_sync(self.wait_until_gone)
        if self._reason is None and self.out_of_memory():
            if self._code:
                self._reason = "memory"
            else:
                self._notes = ("a process in it was killed: it used more memory than the sandbox allows",)
        if self._reason is None:
            self._failure = self.failure(self._code, self._head)
        self.release()

    @property
    def _code(self) -> int:
        code = self._popen.returncode
        return 128 - code if code < 0 else code

    def _exit(self) -> Exit:
        if self._failure is not None:
            raise self._failure
        return Exit(self._code, self._reason or "exit", time.monotonic() - self._began, self._notes)

    def _end(self, reason: EndReason) -> None:
        if self._popen.poll() is None:
            self._reason = self._reason or reason
            self.kill_all()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(WATCH)
            if reason := self.over_limit():
                self._end(reason)
                return

    def _ends(self) -> list[tuple[Stream, int]]:
        return [*self._pipes.items(), *([("channel", self._channel.fileno())] if self._channel else [])]

    async def _pump(self, stream: Stream, descriptor: int) -> None:
        while True:
            await anyio.wait_readable(descriptor)
            with contextlib.suppress(BlockingIOError):
                if not self._read(stream, descriptor):
                    return

    def _drain(self, stream: Stream, descriptor: int) -> None:
        """Read the output that was written before the end."""
        read = 0
        with contextlib.suppress(BlockingIOError):
            while read < _MOST_LEFT and (length := self._read(stream, descriptor)):
                read += length

    def _read(self, stream: Stream, descriptor: int) -> int:
        """Pass a piece on and return its length, 0 at the end; raises BlockingIOError."""
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:
            raise
        except OSError:
            return 0
        if piece:
            if len(self._head) < 512 and stream != "channel":
                self._head += piece[:512]
            self._output(stream, piece)
        return len(piece)


async def _ended(popen: subprocess.Popen[bytes]) -> None:
    """Wait for the process, without a thread if the system has pidfds."""
    if popen.poll() is not None:
        return
    if not hasattr(os, "pidfd_open"):
        await anyio.to_thread.run_sync(popen.wait, abandon_on_cancel=True)
        return
    descriptor = os.pidfd_open(popen.pid)
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
    popen.wait()
