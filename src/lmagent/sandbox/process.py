"""A started command: its pipes, its end, and the end of all processes that it started.

A command ends with its process, never with a pipe: a grandchild that holds the output open does not delay the end.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from lmagent.core.errors import SandboxError, ungrouped
from lmagent.core.sandbox import CHANNEL, EndReason, Exec, Exit, OnOutput, Stream

DRAIN = 0.2
"""Seconds in which output that was written before the end is still read."""

GONE = 2.0
"""Seconds that a killed tree has to be gone."""

WATCH = 0.1
"""Seconds between checks of a command's use of resources."""

_PIECE = 256 * 1024


class Handlers(Struct, frozen=True):
    """A backend's callbacks for a process.

    Attributes:
        kill: kills it, with all processes that it started.
        gone: waits until all of these are gone.
        watch: checks its use of resources; a reason ends it.
        memory: returns whether it ran out of memory, called at the end.
        failure: the sandbox's own failure, from the exit status and the first output; None without one.
        serve: runs beside the command, and is cancelled at its end.
    """

    kill: Callable[[subprocess.Popen[bytes]], None]
    gone: Callable[[subprocess.Popen[bytes]], None] | None = None
    watch: Callable[[subprocess.Popen[bytes]], EndReason | None] | None = None
    memory: Callable[[], bool] | None = None
    failure: Callable[[int, bytes], SandboxError | None] | None = None
    close: Callable[[], None] | None = None
    serve: Callable[[], Coroutine[Any, Any, None]] | None = None


class Process:
    """One command; see `lmagent.core.sandbox.Running`. Made by `spawn`."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        pipes: Mapping[Stream, int],
        channel: socket.socket | None,
        command: Exec,
        output: OnOutput,
        handlers: Handlers,
    ) -> None:
        self._popen = popen
        self._pipes = dict(pipes)
        self._channel = channel
        self._command = command
        self._output = output
        self._handlers = handlers
        self._began = time.monotonic()
        self._reason: EndReason | None = None
        self._first = b""
        self._failure: SandboxError | None = None
        self._notes: tuple[str, ...] = ()
        self._open = len(self._pipes) + (channel is not None)
        self._drained = anyio.Event()

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
                    for stream, descriptor in self._pipes.items():
                        readers.start_soon(self._pump, stream, descriptor)
                    if self._channel is not None:
                        readers.start_soon(self._pump, "channel", self._channel.fileno())
                    if self._handlers.watch is not None:
                        readers.start_soon(self._watch)
                    if self._handlers.serve is not None:
                        readers.start_soon(self._handlers.serve)
                    await self._until_end()
                    with anyio.move_on_after(DRAIN):
                        await self._drained.wait()
                    readers.cancel_scope.cancel()
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

    async def _settle(self) -> None:
        """Ensure that no process of it and no descriptor of ours is left."""
        await _ended(self._popen)
        for descriptor in self._pipes.values():
            os.close(descriptor)
        if self._channel is not None:
            self._channel.close()
        if self._handlers.gone is not None:
            await anyio.to_thread.run_sync(self._handlers.gone, self._popen)
        if self._handlers.memory is not None and self._reason is None and self._handlers.memory():
            if self._code:
                self._reason = "memory"
            else:
                self._notes = ("a process in it was killed: it used more memory than the sandbox allows",)
        if self._handlers.failure is not None and self._reason is None:
            self._failure = self._handlers.failure(self._code, self._first)
        if self._handlers.close is not None:
            self._handlers.close()

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
            self._handlers.kill(self._popen)

    async def _watch(self) -> None:
        assert self._handlers.watch is not None
        while True:
            await anyio.sleep(WATCH)
            if reason := self._handlers.watch(self._popen):
                self._end(reason)
                return

    async def _pump(self, stream: Stream, descriptor: int) -> None:
        try:
            while True:
                await anyio.wait_readable(descriptor)
                try:
                    piece = os.read(descriptor, _PIECE)
                except BlockingIOError:
                    continue
                except OSError:
                    return
                if not piece:
                    return
                if len(self._first) < 512 and stream != "channel":
                    self._first += piece[:512]
                self._output(stream, piece)
        finally:
            self._open -= 1
            if not self._open:
                self._drained.set()


def spawn(
    argv: Sequence[str],
    command: Exec,
    output: OnOutput,
    handlers: Handlers,
    *,
    env: Mapping[str, str],
    cwd: str | Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Process:
    """Start `argv`, which is the command with the backend's wrapper.

    Called from the thread of the event loop, which outlives the command: a bubblewrap is killed when the *thread* that
    started it ends.

    Raises:
        SandboxError: it could not be started.
    """
    ends: list[int] = []
    pipes: dict[Stream, int] = {}
    channel, theirs = socket.socketpair() if command.channel else (None, None)
    try:
        pipes["stdout"], stdout = _pipe(ends)
        stderr = stdout
        if not command.merge:
            pipes["stderr"], stderr = _pipe(ends)
        inside = {CHANNEL: str(theirs.fileno())} if theirs else {}
        popen = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**env, **inside},
            cwd=cwd,
            pass_fds=(*pass_fds, *((theirs.fileno(),) if theirs else ())),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        for descriptor in pipes.values():
            os.close(descriptor)
        if channel:
            channel.close()
        if handlers.close is not None:
            handlers.close()
        raise SandboxError(f"the command cannot be started: {error}") from error
    finally:
        for descriptor in ends:
            os.close(descriptor)
        if theirs:
            theirs.close()
    if channel:
        channel.setblocking(False)
    return Process(popen, pipes, channel, command, output, handlers)


def _pipe(ends: list[int]) -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    ends.append(write)
    return read, write


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
