"""A connection to the supervisor in a container, over the pipes of a `docker exec`, and the commands at its other end.

Many commands share it. No task runs in the background: one waiting caller reads for all of them, and hands over to
another when its own command is done. Without a reader, output stays in the pipes, and the commands wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import EndReason, Exec, Exit, OnOutput, Stream
from lmagent.sandbox.inside.supervisor import (
    ACCEPTED,
    CHANNEL,
    DONE,
    ERR,
    HEADER,
    HELLO,
    KILL,
    OUT,
    PIECE,
    SEND,
    START,
)
from lmagent.sandbox.process import GONE

MOST = 1024 * 1024
"""Length of a frame; a longer one is not ours."""

ROOM = 256 * 1024
"""Bytes of a channel that may be on their way to the command."""

KILLED = 137
_STREAMS: dict[int, Stream] = {OUT: "stdout", ERR: "stderr", CHANNEL: "channel"}


class Remote:
    """A command in a container; see `lmagent.core.sandbox.Running`.

    Attributes:
        woken: set when it is done, or must read for the others.
        room: set when more may be sent.
        on_way: bytes that were sent and not yet accepted.
        is_shut: whether the command accepts no more.
        is_done: whether it has ended, or its connection has.
    """

    def __init__(self, link: Link, number: int, command: Exec, output: OnOutput) -> None:
        self.number = number
        self.output = output
        self.woken, self.room = anyio.Event(), anyio.Event()
        self.on_way = 0
        self.is_shut = self.is_done = False
        self.result: dict[str, Any] | None = None
        self.error: BaseException | None = None
        self._link = link
        self._command = command
        self._reason: EndReason | None = None
        self._lost: int | None = None
        self._began = time.monotonic()

    def end(self) -> None:
        self.is_done = True
        self.woken.set()
        self.room.set()

    def mark(self) -> None:
        """Do nothing: the guard checks the workspace."""

    def inspect(self) -> tuple[str, ...]:
        """Return nothing: the guard checks the workspace."""
        return ()

    def kill(self) -> None:
        self._end("killed")

    def _end(self, reason: EndReason) -> None:
        if not self.is_done and self._reason is None:
            self._reason = reason
            self._link.post(KILL, self.number)

    async def send(self, data: bytes) -> None:
        if not self._command.channel:
            raise SandboxError("the command has no channel")
        for at in range(0, len(data), PIECE):
            while self.on_way >= ROOM and not (self.is_done or self.is_shut):
                await self.room.wait()
                self.room = anyio.Event()
            if self.is_done or self.is_shut:
                raise SandboxError("the command does not listen any more")
            piece = data[at : at + PIECE]
            self.on_way += len(piece)
            self._link.post(SEND, self.number, piece)
            await self._link.flush()

    async def wait(self) -> Exit:
        timeout = self._command.timeout
        try:
            with anyio.move_on_after(timeout if timeout is not None else float("inf")) as limit:
                await self._link.until(self)
            if limit.cancelled_caught:
                self._end("timeout")
        finally:
            self._end("killed")
            with anyio.CancelScope(shield=True):
                # Ensure that no process of it is left.
                with anyio.move_on_after(GONE):
                    await self._link.until(self)
                if self.result is None and self.error is None:
                    self._lost = await self._link.close(remove=True)
        return self._exit()

    def _exit(self) -> Exit:
        seconds = time.monotonic() - self._began
        if self.error is not None:
            raise self.error
        if self.result is not None:
            return Exit(self.result["code"], self._reason or ("memory" if self.result["memory"] else "exit"), seconds)
        if self._reason is None and self._lost != KILLED:
            raise SandboxError(
                "the connection to docker was lost while the command ran: the command was killed, its changes stay",
                fix="docker info shows whether the engine runs",
            )
        return Exit(KILLED, self._reason or "exit", seconds)  # its supervisor may have been killed from inside


class Link:
    """One connection.

    Args:
        argv: the `docker exec`; `env` is the environment of the docker client.
        remove: removes the container.

    Raises:
        SandboxError: it could not be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], remove: Callable[[], Awaitable[object]]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the link
        self._remove = remove
        pipe = subprocess.PIPE
        try:
            # A session of its own: Ctrl+C at the terminal must not reach docker.
            self.popen = subprocess.Popen(
                list(argv), stdin=pipe, stdout=pipe, stderr=self._errors, env=env, start_new_session=True, bufsize=0
            )
        except OSError as error:
            self._errors.close()
            raise SandboxError(f"docker cannot be started: {error}") from error
        assert self.popen.stdin
        assert self.popen.stdout
        self._to, self._from = self.popen.stdin, self.popen.stdout
        os.set_blocking(self._to.fileno(), False)
        os.set_blocking(self._from.fileno(), False)
        self._inbox, self._outbox = bytearray(), bytearray()
        self._flushing, self._closing = anyio.Lock(), anyio.Lock()
        self._jobs: dict[int, Remote] = {}
        self._leader: Remote | None = None
        self._next = 1
        self._lost = self._closed = False

    @property
    def alive(self) -> bool:
        return not self._lost and self.popen.poll() is None

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    async def greet(self, setup: Mapping[str, object], seconds: float) -> dict[str, Any]:
        """Send our requirements, and return the facts about the container; raises SandboxError."""
        job = self._jobs[0] = Remote(self, 0, Exec(()), _ignore)
        self.post(HELLO, 0, json.dumps(setup).encode())
        with anyio.move_on_after(seconds):
            await self.until(job)
        self._jobs.pop(0, None)
        if job.result is None:
            self._errors.seek(0)
            said = self._errors.read()[-4000:].decode("utf-8", "replace").strip()
            raise SandboxError(said or "the supervisor in the container does not answer")
        return job.result

    def begin(self, request: Mapping[str, object], command: Exec, output: OnOutput) -> Remote:
        job = self._jobs[self._next] = Remote(self, self._next, command, output)
        self._next += 1
        self.post(START, job.number, json.dumps(request).encode())
        return job

    def post(self, kind: int, number: int, body: bytes = b"") -> None:
        """Send a frame, or as much of it as goes without waiting; `flush` sends the rest."""
        if not self._lost:
            self._outbox += HEADER.pack(kind, number, len(body)) + body
            self._push()

    def _push(self) -> None:
        try:
            while self._outbox:
                del self._outbox[: os.write(self._to.fileno(), self._outbox[:PIECE])]
        except BlockingIOError:
            return
        except OSError:
            self._outbox.clear()  # the reader finds out that the connection is gone, and why

    async def flush(self) -> None:
        async with self._flushing:
            while self._outbox and not self._lost:
                await anyio.wait_writable(self._to)
                self._push()

    async def until(self, job: Remote) -> None:
        """Read, or let another caller read, until the job is done."""
        await self.flush()
        while not job.is_done:
            if self._leader is not None:
                await job.woken.wait()
                job.woken = anyio.Event()
                continue
            self._leader = job
            try:
                while not job.is_done:
                    await anyio.wait_readable(self._from)
                    self._take()
            finally:
                self._leader = None
                for other in self._jobs.values():
                    other.woken.set()

    def _take(self) -> None:
        try:
            piece = os.read(self._from.fileno(), 4 * PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._lose()
        self._inbox += piece
        at = 0
        while len(self._inbox) - at >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self._inbox, at)
            if not OUT <= kind <= DONE or length > MOST:
                self._lose()
                break
            body = bytes(self._inbox[at + HEADER.size : at + HEADER.size + length])
            if len(body) < length:
                break
            if job := self._jobs.get(number):
                self._dispatch(job, kind, body)
            at += HEADER.size + length
        del self._inbox[:at]

    def _dispatch(self, job: Remote, kind: int, body: bytes) -> None:
        if kind in _STREAMS:
            try:
                job.output(_STREAMS[kind], body)
            except Exception as error:  # noqa: BLE001 - raised in the `wait` of that command, not in the reader's
                job.error = job.error or error
                self.post(KILL, job.number)
        elif kind == ACCEPTED:
            job.on_way -= int(body or 0)
            job.is_shut = job.is_shut or not body
            job.room.set()
        else:
            job.result = json.loads(body)
            if job.result and "error" in job.result:
                job.error = SandboxError(job.result["error"])
            del self._jobs[job.number]
            job.end()

    def _lose(self) -> None:
        self._lost = True
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.end()

    async def close(self, *, remove: bool) -> int:
        """End the supervisor, with all its commands; `remove` also kills the container, with all that is left in it.

        Returns the exit status of the `docker exec`: 137 if the supervisor was killed inside.
        """
        async with self._closing:
            if not self._closed:
                self._closed = True
                self._lose()
                self._to.close()
                with anyio.CancelScope(shield=True):
                    code = await anyio.to_thread.run_sync(_last_status, self.popen)
                    if remove or code:
                        await self._remove()
                self._from.close()
                self._errors.close()
        return self.popen.returncode


def _ignore(stream: Stream, piece: bytes) -> None:
    """A greeting has no output."""


def _last_status(popen: subprocess.Popen[bytes]) -> int:
    try:
        return popen.wait(GONE)
    except subprocess.TimeoutExpired:
        popen.kill()
        return popen.wait()
