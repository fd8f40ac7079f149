"""`lmagent mcp serve` as a real process, and the SDK's client that starts it.

    with served(tmp_path) as client:
        client.call("ls")                              # a CallToolResult
        client.answers = [{"allow": True}]             # of the client's user to the next question; None declines
        client.questions                               # texts and forms that were shown

`client.events()` are the recorded events of all sessions of the workspace.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from lmagent.config.paths import data_dir
from lmagent.config.trust import trust
from lmagent.testing import ScriptedServer

OURS = ("LLM", "LM_", "LMAGENT", "XDG", "AGENT")
"""How variables begin that would tell the process something."""


class Place:
    """A workspace, with a home folder of its own, and the command that serves it."""

    def __init__(self, folder: Path, options: Sequence[str] = (), model: ScriptedServer | None = None) -> None:
        self.workspace = folder / "workspace"
        self.home = folder / "home"
        for path in (self.workspace, self.home):
            path.mkdir(exist_ok=True)
        given = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self.env = {**given, "HOME": str(self.home), "LLM_RETRY_DELAY": "0", "NO_COLOR": "1"}
        trust(data_dir(self.env), self.workspace)
        url = model.base_url if model is not None else "http://127.0.0.1:9"
        self.arguments = ["-m", "lmagent", "mcp", "serve", "-w", str(self.workspace), "--base-url", url, *options]
        self.arguments += ["-m", "scripted"]

    def events(self) -> list[dict[str, Any]]:
        """All recorded events in the order of their times, each with its session."""
        return events_in(self.workspace)

    def recorded(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["type"] == type]


def events_in(workspace: Path) -> list[dict[str, Any]]:
    found = [
        {**json.loads(line), "session": file.parent.name}
        for file in workspace.glob(".lmagent/sessions/*/events.jsonl")
        for line in file.read_bytes().split(b"\n")[:-1]
    ]
    return sorted(found, key=lambda event: event["ts"])


class Served:
    """A client of the SDK, driven from a test that is no coroutine."""

    def __init__(self, portal: BlockingPortal, *, can_ask: bool) -> None:
        self.answers: list[dict[str, Any] | None] = []
        self.questions: list[types.ElicitRequestFormParams] = []
        self.progress: list[str] = []
        self._portal = portal
        self._can_ask = can_ask

    def connection(self, transport: AbstractAsyncContextManager[Any]) -> Client:
        return Client(transport, elicitation_callback=self._elicit if self._can_ask else None)

    def use(self, client: Client) -> None:
        self.client = client

    def call(self, tool: str, **arguments: Any) -> types.CallToolResult:
        return self._portal.call(self._call, tool, arguments)

    def call_until(self, tool: str, arguments: dict[str, Any], done: Any) -> None:
        """Begin a call, and cancel it once `done` returns true."""
        self._portal.call(self._call_until, tool, arguments, done)

    def tools(self) -> list[types.Tool]:
        return self._portal.call(self.client.list_tools).tools

    async def _call(self, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        return await self.client.call_tool(tool, arguments, progress_callback=self._progress)

    async def _call_until(self, tool: str, arguments: dict[str, Any], done: Any) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._call, tool, arguments)
            with anyio.fail_after(60):
                while not done():  # noqa: ASYNC110
                    await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()

    async def _elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.questions.append(params)
        answer = self.answers.pop(0)
        return types.ElicitResult(action="decline" if answer is None else "accept", content=answer)

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(message or "")


class ServedPlace(Served):
    """The same, of a process on the standard streams."""

    place: Place
    recorded: Any


@contextmanager
def connected(transport: AbstractAsyncContextManager[Any], client: Served, portal: BlockingPortal) -> Iterator[None]:
    with portal.wrap_async_context_manager(client.connection(transport)) as known:
        client.use(known)
        yield


@contextmanager
def served(
    folder: Path, *options: str, can_ask: bool = True, model: ScriptedServer | None = None
) -> Iterator[ServedPlace]:
    place = Place(folder, options, model)
    parameters = StdioServerParameters(command=sys.executable, args=place.arguments, env=place.env, cwd=place.workspace)
    with start_blocking_portal() as portal, (folder / "stderr.txt").open("w") as log:
        client = ServedPlace(portal, can_ask=can_ask)
        client.place, client.recorded = place, place.recorded
        with connected(stdio_client(parameters, log), client, portal):
            yield client


def text(result: types.CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, types.TextContent)
    return part.text
