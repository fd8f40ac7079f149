"""A connection to the supervisor in a container, over the pipes of a `docker exec`.

Many commands share it. No task runs in the background: one waiting caller reads for all of them, and hands over to
another when its own command is done. Without a reader, output stays in the pipes, and the commands wait.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import OnOutput, Stream
from lmagent.sandbox.process import GONE
from lmagent.sandbox.supervisor import (
    ACCEPTED,
    BYE,
    CHANNEL,
    ERR,
    EXIT,
    FAILED,
    HEADER,
    HELLO,
    KILL,
    OUT,
    READY,
    SHUT,
    START,
)

PIECE = 64 * 1024
MOST = 1024 * 1024
"""Length of a frame; a longer one is not ours."""

FROM_SUPERVISOR = (READY, OUT, ERR, CHANNEL, ACCEPTED, SHUT, EXIT, FAILED)
_STREAMS: dict[int, Stream] = {OUT: "stdout", ERR: "stderr", CHANNEL: "channel"}


class LinkJob:
    """The progress of a command, or of the greeting."""

    def __init__(self, number: int, output: OnOutput) -> None:
        self.number = number
        self.output = output
        self.woken = anyio.Event()
        self.room = anyio.Event()
        self.sent = 0
        self.shut = False
        self.done = False
        self.result: dict[str, Any] | None = None
        self.error: BaseException | None = None

    def end(self) -> None:
        self.done = True
        self.woken.set()
        self.room.set()


class Link:
    """One connection; made by `connect`. `first` is a pidfd of the container's first process; -1 if unknown."""

    def __init__(self, popen: subprocess.Popen[bytes], errors: Any, bury: Callable[[], Awaitable[bool]]) -> None:
        assert popen.stdin
        assert popen.stdout
        self._popen = popen
        self._errors = errors
        self._bury = bury
        self._to, self._from = popen.stdin.fileno(), popen.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._inbox, self._outbox = bytearray(), bytearray()
        self._flushing, self._burying = anyio.Lock(), anyio.Lock()
        self._jobs: dict[int, LinkJob] = {}
        self._leader: LinkJob | None = None
        self._next = 1
        self.lost = False
        self.first = -1
        self._buried = False

    @property
    def alive(self) -> bool:
        return not self.lost and self._popen.poll() is None

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    async def greet(self, setup: Mapping[str, object], seconds: float) -> dict[str, Any]:
        """Send our requirements, and return the facts about the container.

        Raises:
            SandboxError: no answer came; the text is docker's.
        """
        job = self._jobs[0] = LinkJob(0, _nothing)
        self.post(HELLO, 0, json.dumps(setup).encode())
        with anyio.move_on_after(seconds):
            await self.flush()
            await self.until(job)
        self._jobs.pop(0, None)
        if job.result is None:
            raise SandboxError(self.said() or "the supervisor in the container does not answer")
        return job.result

    def begin(self, request: Mapping[str, object], output: OnOutput) -> LinkJob:
        job = LinkJob(self._next, output)
        self._next += 1
        self._jobs[job.number] = job
        self.post(START, job.number, json.dumps(request).encode())
        return job

    def post(self, kind: int, number: int, body: bytes = b"") -> None:
        """Send a frame, or as much of it as goes without waiting; `flush` sends the rest."""
        if not self.lost:
            self._outbox += HEADER.pack(kind, number, len(body)) + body
            self._push()

    def _push(self) -> None:
        try:
            while self._outbox:
                del self._outbox[: os.write(self._to, self._outbox[:PIECE])]
        except BlockingIOError:
            return
        except OSError:
            self._outbox.clear()  # the reader finds out that the connection is gone, and why

    async def flush(self) -> None:
        async with self._flushing:
            while self._outbox and not self.lost:
                await anyio.wait_writable(self._to)
                self._push()

    async def until(self, job: LinkJob) -> None:
        """Read, or let another caller read, until the job is done."""
        while not job.done:
            if self._leader is not None:
                await job.woken.wait()
                job.woken = anyio.Event()
                continue
            self._leader = job
            try:
                while not job.done:
                    await anyio.wait_readable(self._from)
                    self._take()
            finally:
                self._leader = None
                for other in self._jobs.values():
                    other.woken.set()

    def _take(self) -> None:
        try:
            piece = os.read(self._from, 4 * PIECE)
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
            if kind not in FROM_SUPERVISOR or length > MOST:
                self._lose()
                break
            if len(self._inbox) - at < HEADER.size + length:
                break
            self._dispatch(kind, number, bytes(self._inbox[at + HEADER.size : at + HEADER.size + length]))
            at += HEADER.size + length
        del self._inbox[:at]

    def _dispatch(self, kind: int, number: int, body: bytes) -> None:
        job = self._jobs.get(number)
        if job is None:
            return
        if kind in _STREAMS:
            try:
                job.output(_STREAMS[kind], body)
            except Exception as error:  # noqa: BLE001 - raised in the `wait` of that command, not in the reader's
                job.error = job.error or error
                self.post(KILL, number)
        elif kind == ACCEPTED:
            job.sent -= int(body)
            job.room.set()
        elif kind == SHUT:
            job.shut = True
            job.room.set()
        elif kind in (EXIT, READY, FAILED):
            if kind == FAILED:
                job.error = SandboxError(f"the command cannot be started: {body.decode('utf-8', 'replace')}")
            else:
                job.result = json.loads(body)
            del self._jobs[number]
            job.end()

    def _lose(self) -> None:
        self.lost = True
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.end()

    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode("utf-8", "replace").strip()

    async def bury(self) -> int:
        """End the connection, and with the container all its remaining processes.

        Returns the exit status of the `docker exec`: 137 if the supervisor was killed inside.
        """
        async with self._burying:
            if not self._buried:
                self._buried = True
                self._lose()
                if self._popen.stdin:
                    self._popen.stdin.close()
                code = await anyio.to_thread.run_sync(_last_words, self._popen)
                if not await self._bury():
                    self._kill_container()
                self._close()
                return code
        return self._popen.returncode

    async def leave(self) -> None:
        """End the supervisor, with all its commands; the container ends if no other lmagent uses it."""
        if self._buried:
            return
        self._buried = True
        self.post(BYE, 0)
        with anyio.move_on_after(GONE, shield=True):
            await self.flush()
        self._lose()
        if self._popen.stdin:
            self._popen.stdin.close()
        with anyio.CancelScope(shield=True):
            if await anyio.to_thread.run_sync(_last_words, self._popen) and not await self._bury():
                self._kill_container()
        self._close()

    def _kill_container(self) -> None:
        """Kill it without docker: containers outlive a killed engine, and their supervisors do not notice."""
        if self.first >= 0 and sys.platform == "linux":
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.first, signal.SIGKILL)

    def _close(self) -> None:
        if self.first >= 0:
            os.close(self.first)
            self.first = -1
        for pipe in (self._popen.stdin, self._popen.stdout, self._errors):
            if pipe:
                pipe.close()


def connect(argv: Sequence[str], env: Mapping[str, str], bury: Callable[[], Awaitable[bool]]) -> Link:
    """Start a `docker exec` and talk to its supervisor.

    Args:
        env: environment of the docker client.
        bury: removes the container, and returns whether it could.

    Raises:
        SandboxError: it could not be started.
    """
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the link
    try:
        # A session of its own: Ctrl+C at the terminal must not reach docker.
        popen = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(env),
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        errors.close()
        raise SandboxError(f"docker cannot be started: {error}") from error
    return Link(popen, errors, bury)


def _nothing(stream: Stream, piece: bytes) -> None:
    """Ignore output: a greeting has none."""


def _last_words(popen: subprocess.Popen[bytes]) -> int:
    try:
        return popen.wait(GONE)
    except subprocess.TimeoutExpired:
        popen.kill()
        return popen.wait()
