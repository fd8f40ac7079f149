"""Wire: the protocol's library, and the lines on standard input and output. Nothing else here imports the library."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lmagent.acp.content import Object
from lmagent.core.errors import ConfigError, LmagentError, SessionNotFound, WorkspaceError
from lmagent.tools.sanitize import visible

if TYPE_CHECKING:
    from acp import RequestError

T = TypeVar("T")

LONGEST = 64 << 20  # bytes of a message: prompts have images

PARSE, INVALID, PARAMS, INTERNAL, MISSING = -32700, -32600, -32602, -32603, -32002


class Closed(Exception):
    """The editor has closed the connection."""


class NotAnswered(Exception):
    """The editor answered a request with an error, or with something that is no answer."""


class Editor:
    """The editor: the other side of the connection."""

    def __init__(self, agent: object) -> None:
        self._agent = agent
        self._connection: Any = None

    async def serve(self) -> None:
        """Answer the editor until it closes standard input."""
        from acp.agent.connection import AgentSideConnection

        reader, writer = await _streams()
        lines = _Lines(reader, writer)
        self._connection = AgentSideConnection(
            cast("Any", self._agent), lines, listening=False, use_unstable_protocol=True
        )
        try:
            await self._connection.listen()
        finally:
            await self._connection.close()

    async def update(self, session: str, update: Object) -> None:
        await self._reach(self._connection.session_update(session_id=session, update=update))

    async def ask(self, session: str, call: Object, options: list[Object]) -> str:
        """Return the id of the option that the user chose; empty if the editor cancelled the question."""
        asked = self._connection.request_permission(session_id=session, tool_call=call, options=options)
        outcome = (await self._reach(asked)).outcome
        return outcome.option_id if outcome.outcome == "selected" else ""

    async def read(self, session: str, path: str) -> str:
        """Return the text of a file as the editor has it. Raise NotAnswered if it has none."""
        return (await self._reach(self._connection.read_text_file(session_id=session, path=path))).content

    async def _reach(self, request: Awaitable[T]) -> T:
        from acp import RequestError
        from pydantic import ValidationError

        try:
            return await request
        except (RequestError, ValidationError) as failed:
            raise NotAnswered(str(failed)) from failed
        except OSError as failed:
            raise Closed(str(failed)) from failed


async def _streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of the protocol. Whatever else is printed goes to standard error from now on."""
    from acp.stdio import stdio_streams

    sys.stdout.flush()
    kept, sys.stdout = sys.stdout, os.fdopen(os.dup(1), "w", encoding="utf-8")
    try:
        reader, writer = await stdio_streams(limit=LONGEST)
    except ValueError:  # it is a file
        fix = "let an editor start it: docs/acp.md has the settings"
        raise ConfigError("standard input and output must be pipes of an editor", fix=fix) from None
    finally:
        sys.stdout = kept
    os.dup2(2, 1)
    return reader, writer


class _Lines:
    """JSON-RPC messages, one a line. Other lines are answered by an error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()

    async def send(self, message: Object) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._lock:
            self._writer.write(data)
            await self._writer.drain()

    async def receive(self) -> Object | None:
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return None
            except asyncio.LimitOverrunError:
                sys.stderr.write(f"lmagent: a message of the editor is longer than {LONGEST >> 20} MB; it ends here\n")
                return None
            if not line.strip():
                continue
            try:
                message: object = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(PARSE, "the line is not JSON")
                continue
            fields = cast("Object", message) if isinstance(message, dict) else {}
            if not isinstance(fields.get("error", {}), dict):
                fields["error"] = {}  # an error all the same; the library needs its fields
            if _is_message(fields):
                return fields
            await self._refuse(INVALID, "the line is not a JSON-RPC message: an object with a method")

    async def close(self) -> None:
        """Leave standard output open: the process ends with it."""

    async def _refuse(self, code: int, words: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": words}})


def _is_message(fields: Object) -> bool:
    """Return whether the library can take a message. An id of another type would end its loop."""
    id = fields.get("id")
    if isinstance(id, bool) or not isinstance(id, int | str | None):
        return False
    return isinstance(fields["method"], str) if "method" in fields else "id" in fields


def answering(method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """Turn the errors of a method into the protocol's errors."""

    @wraps(method)
    async def answer(*args: Any, **given: Any) -> T:
        try:
            return await method(*args, **given)
        except LmagentError as failure:
            raise error(failure) from failure

    return answer


def error(failure: LmagentError) -> RequestError:
    """Return an error for the editor: what happened, why, and what to do next, in one text."""
    from acp import RequestError

    kinds = {SessionNotFound: MISSING, ConfigError: PARAMS, WorkspaceError: PARAMS}
    code = next((code for kind, code in kinds.items() if isinstance(failure, kind)), INTERNAL)
    return RequestError(code, visible(str(failure)), {"fix": failure.typed} if failure.typed else None)
