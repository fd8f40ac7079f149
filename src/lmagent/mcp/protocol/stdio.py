"""Stdio: a server that is a program, as a transport of the SDK. The SDK is imported by the caller's thread only."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import CHANNEL, Exec, Exit, Running, Sandbox, Stream
from lmagent.mcp.protocol.lines import Flood, Lines, Noise, has_many_brackets
from lmagent.mcp.protocol.link import McpLink
from lmagent.mcp.protocol.logs import ServerLog

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

LAUNCHER = (
    *("/bin/bash", "-c", f'exec 0<&"${CHANNEL}"; eval "exec ${CHANNEL}<&-"; unset {CHANNEL}; exec "$@"', "mcp"),
)
"""Makes the command's private channel the program's standard input, and becomes the program."""


@asynccontextmanager
async def program(sandbox: Sandbox, command: Exec, link: McpLink, log: ServerLog) -> AsyncGenerator[Any]:
    """Run a program, and yield its streams of messages. The program dies with everything it started at the end.

    Raises SandboxError if nothing was run.
    """
    launched = replace(command, argv=(*LAUNCHER, *command.argv), channel=True, timeout=None)
    output = _Output(log)
    running = await sandbox.start(launched, output.receive)
    output.stop = running.kill
    # Unbuffered: output that the session does not take in time fills `Lines`, which is bounded.
    to_session, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, from_session = anyio.create_memory_object_stream[Any](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_watch, running, output, link)
        group.start_soon(_read, output, to_session, link)
        group.start_soon(_write, running, from_session)
        try:
            yield incoming, outgoing
        finally:
            group.cancel_scope.cancel()
            for stream in (incoming, outgoing, to_session, from_session):
                stream.close()


class _Output:
    """The output of a program. After a flood or an unreadable answer, nothing is kept, and the program is stopped."""

    def __init__(self, log: ServerLog) -> None:
        self.lines = Lines()
        self.news = anyio.Event()
        self.fault = ""
        self.last_error = ""
        self.has_ended = False
        self.stop: Callable[[], None] = lambda: None
        self._log = log
        self._noise = Noise()

    def receive(self, stream: Stream, piece: bytes) -> None:
        if self.fault:
            return
        if stream != "stdout":
            self.note("stderr", piece)
            return
        try:
            self.lines.feed(piece)
        except Flood as flood:
            self._drown(str(flood))
        self.news.set()

    def note(self, kind: str, content: bytes) -> None:
        """Write output that is no message to the log."""
        try:
            self._noise.count(len(content))
        except Flood as flood:
            self._drown(str(flood))
            return
        text = self._log.redact(content.decode("utf-8", "replace"))
        self.last_error = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), self.last_error)
        self._log.write(kind, text)

    def take_noise(self, line: bytes) -> None:
        """Write a line that is no message to the log. One that was meant as an answer ends the server: a call waits."""
        self.note("stdout", line)
        if not self.fault and line.lstrip().startswith(b"{") and b'"jsonrpc"' in line and b'"method"' not in line:
            self._drown("it sent an answer that cannot be read")

    def _drown(self, why: str) -> None:
        self.fault = why
        self.lines = Lines()
        self.stop()
        self.news.set()


async def _watch(running: Running, output: _Output, link: McpLink) -> None:
    """Wait for the program's end, and note the reason."""
    try:
        end = await running.wait()
        link.reason = output.fault or _why(end, output.last_error)
    except SandboxError as error:
        link.reason, link.fix = error.message, error.fix
    finally:
        output.has_ended = True
        output.news.set()


def _why(end: Exit, last_error: str) -> str:
    if end.reason == "memory":
        return "it used more memory than the sandbox allows, and was killed"
    if end.code == 127 and last_error.startswith("mcp: "):  # the shell of the launcher
        return last_error.rpartition("exec: ")[2]
    said = f": {last_error[:300]}" if last_error else ""
    return f"it ended with status {end.code}{said}"


async def _read(output: _Output, to_session: MemoryObjectSendStream[Any], link: McpLink) -> None:
    """Pass the messages on; at the end of the program, close the session's stream."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    validate = jsonrpc_message_adapter.validate_json
    async with to_session:
        while not output.has_ended or output.lines:
            while (line := output.lines.take()) is not None:
                try:
                    message = None if has_many_brackets(line) else validate(line, by_name=False)
                except ValueError:
                    message = None
                if message is None:
                    output.take_noise(line)
                    await anyio.lowlevel.checkpoint()
                    continue
                try:
                    await to_session.send(SessionMessage(message))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
            if not output.has_ended:
                await output.news.wait()
                output.news = anyio.Event()
        link.end("it ended")


async def _write(running: Running, from_session: MemoryObjectReceiveStream[Any]) -> None:
    async with from_session:
        async for message in from_session:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await running.send(text.encode() + b"\n")
            except SandboxError:
                return  # it has ended; the watcher notes why
