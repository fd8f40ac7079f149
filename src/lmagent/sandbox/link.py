"""A connection to a supervisor in a container, over the pipes of a `docker exec`, and the command at its other end.

A connection serves one command at a time, and is used again afterwards. To kill the command, the connection is ended.
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

from lmagent.core.errors import SandboxError, ungrouped
from lmagent.core.sandbox import EndReason, Exec, Exit, OnOutput, Stream
from lmagent.sandbox.inside.supervisor import CHANNEL, DONE, ERR, HEADER, OUT, PIECE, SEND, START
from lmagent.sandbox.process import GONE
from lmagent.sandbox.proxy import AllowListProxy

MOST = 1024 * 1024
"""Length of a frame; a longer one is not ours."""

KILLED = 137
_STREAMS: dict[int, Stream] = {OUT: "stdout", ERR: "stderr", CHANNEL: "channel"}


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

    @property
    def alive(self) -> bool:
        return not self._to.closed and self.popen.poll() is None

    async def greet(self, setup: Mapping[str, object], seconds: float) -> dict[str, Any]:
        """Send our requirements, and return the facts about the container; raises SandboxError."""
        self.post(START, json.dumps(setup).encode())
        with anyio.move_on_after(seconds):
            await self.flush()
            if frame := await self.receive():
                return json.loads(frame[1])
        self._errors.seek(0)
        said = self._errors.read()[-4000:].decode("utf-8", "replace").strip()
        raise SandboxError(said or "the supervisor in the container does not answer")

    def post(self, kind: int, body: bytes) -> None:
        """Have a frame sent; `flush` sends the part that does not go at once."""
        self._outbox += HEADER.pack(kind, len(body)) + body

    async def flush(self) -> None:
        """Send the posted frames; the command may have to take some of its bytes first."""
        async with self._flushing:
            while self._outbox and self.alive:
                try:
                    del self._outbox[: os.write(self._to.fileno(), self._outbox[:PIECE])]
                except BlockingIOError:
                    await anyio.wait_writable(self._to)
                except OSError:
                    return  # the reader finds out that the connection is gone, and why

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next frame; None at the end of the connection."""
        while True:
            if len(self._inbox) >= HEADER.size:
                kind, length = HEADER.unpack_from(self._inbox)
                if not OUT <= kind <= DONE or length > MOST:
                    return None
                if len(self._inbox) >= HEADER.size + length:
                    body = bytes(self._inbox[HEADER.size : HEADER.size + length])
                    del self._inbox[: HEADER.size + length]
                    return kind, body
            try:
                await anyio.wait_readable(self._from)
                piece = os.read(self._from.fileno(), PIECE)
            except BlockingIOError:
                continue
            except (OSError, ValueError, anyio.ClosedResourceError):  # it was closed meanwhile
                return None
            if not piece:
                return None
            self._inbox += piece

    def hang_up(self) -> None:
        """End the supervisor's input, which ends its command and then itself."""
        if not self._to.closed:
            anyio.notify_closing(self._to)
            self._to.close()

    async def close(self, *, remove: bool) -> int:
        """End the supervisor, with its command; `remove` also kills the container, with all that is left in it.

        Returns the exit status of the `docker exec`: 137 if the supervisor was killed inside.
        """
        with anyio.CancelScope(shield=True):
            async with self._closing:
                if not self._from.closed:
                    self.hang_up()
                    code = await anyio.to_thread.run_sync(_last_status, self.popen)
                    if remove or code:
                        await self._remove()
                    anyio.notify_closing(self._from)
                    self._from.close()
                    self._errors.close()
        return self.popen.returncode


class Remote:
    """A command in a container; see `lmagent.core.sandbox.Running`.

    Args:
        release: takes its connection back.
        proxy: the command's way to the hosts that it may reach; closed at its end.
    """

    def __init__(
        self,
        link: Link,
        command: Exec,
        output: OnOutput,
        release: Callable[[Link], Awaitable[None]],
        proxy: AllowListProxy | None = None,
    ) -> None:
        self._link, self._command, self._output, self._release = link, command, output, release
        self._proxy = proxy
        self._result: dict[str, Any] | None = None
        self._reason: EndReason | None = None
        self._lost = 0
        self._is_shut = False  # the command has closed its channel
        self._began = time.monotonic()

    async def begin(self, request: Mapping[str, object]) -> None:
        try:
            self._link.post(START, json.dumps(request).encode())
            await self._link.flush()
        except BaseException:
            if self._proxy is not None:
                self._proxy.close()
            await self._link.close(remove=False)
            raise

    def mark(self) -> None:
        """Do nothing: the guard checks the workspace."""

    def inspect(self) -> tuple[str, ...]:
        """Return nothing: the guard checks the workspace."""
        return ()

    def kill(self) -> None:
        self._end("killed")

    def _end(self, reason: EndReason) -> None:
        if self._result is None and self._reason is None:
            self._reason = reason
            self._link.hang_up()

    async def send(self, data: bytes) -> None:
        if not self._command.channel:
            raise SandboxError("the command has no channel")
        for at in range(0, len(data), PIECE):
            if self._is_shut or self._result is not None or not self._link.alive:
                raise SandboxError("the command does not listen any more")
            self._link.post(SEND, data[at : at + PIECE])
            await self._link.flush()

    async def wait(self) -> Exit:
        if self._proxy is None:
            return await self._ended()
        try:
            ended: list[Exit] = []
            with ungrouped():
                async with anyio.create_task_group() as beside:
                    beside.start_soon(self._proxy.serve)
                    ended.append(await self._ended())
                    beside.cancel_scope.cancel()
            return ended[0]
        finally:
            self._proxy.close()

    async def _ended(self) -> Exit:
        timeout = self._command.timeout
        try:
            with anyio.move_on_after(timeout if timeout is not None else float("inf")) as limit:
                await self._read(self._output)
            if limit.cancelled_caught:
                self._end("timeout")
        except BaseException:
            self._end("killed")
            raise
        finally:
            with anyio.CancelScope(shield=True):
                if self._result is None:
                    with anyio.move_on_after(GONE):  # the supervisor ends once its output is taken
                        await self._read(_ignore)
                    self._lost = await self._link.close(remove=False)
                await self._release(self._link)
        return self._exit()

    async def _read(self, output: OnOutput) -> None:
        """Pass the output on until the end of the command, or of the connection."""
        while self._result is None and (frame := await self._link.receive()) is not None:
            kind, body = frame
            if kind == DONE:
                self._result = json.loads(body)
            elif kind == CHANNEL and not body:
                self._is_shut = True
            else:
                output(_STREAMS[kind], body)

    def _exit(self) -> Exit:
        seconds = time.monotonic() - self._began
        if self._result is not None and "error" in self._result:
            raise SandboxError(self._result["error"])
        if self._result is not None:
            return Exit(self._result["code"], self._reason or ("memory" if self._result["memory"] else "exit"), seconds)
        if self._reason is None and self._lost != KILLED:
            raise SandboxError(
                "the connection to docker was lost while the command ran: the command was killed, its changes stay",
                fix="docker info shows whether the engine runs",
            )
        return Exit(KILLED, self._reason or "exit", seconds)  # its supervisor may have been killed from inside


def _ignore(stream: Stream, piece: bytes) -> None:
    """A killed command has no output."""


def _last_status(popen: subprocess.Popen[bytes]) -> int:
    try:
        return popen.wait(GONE)
    except subprocess.TimeoutExpired:
        popen.kill()
        return popen.wait()
