"""A real host and loop with a scripted model, and MCP servers that a test names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from lmagent.app.host import Host
from lmagent.app.mcpservers import use_servers
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Approve, Submit
from lmagent.core.events import ApprovalRequested, Event, ToolFinished
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.engine.toolbox import Toolbox
from lmagent.mcp.spec import McpManifest, McpTool
from lmagent.testing import ScriptedServer
from lmagent.testing.fakes import FakeServers
from lmagent.testing.script import call

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def manifest(*names: str, **more: Any) -> McpManifest:
    return McpManifest(tools=tuple(McpTool(name, f"Do {name}. At length.", TEXT) for name in names), **more)


def used(name: str, /, **arguments: Any) -> Any:
    return call("use_tool", name=name, arguments=arguments)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a fact."""
    with anyio.fail_after(30):
        while not holds():  # noqa: ASYNC110  the fact has no event
            await anyio.sleep(0.01)


@dataclass
class Talk:
    """A session, its events, and the answers to its questions, first come first served; no answer is a no."""

    host: Host
    session: Session
    server: ScriptedServer
    answers: list[tuple[bool, str]] = field(default_factory=list[tuple[bool, str]])
    events: list[Event] = field(default_factory=list[Event])

    async def say(self, text: str) -> None:
        await self.session.send(Submit(message=user(text)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer)
            await run_until_idle(self.session)
            tasks.cancel_scope.cancel()

    async def _answer(self) -> None:
        while True:
            for approval in list(self.session.state.approvals.values()):
                if approval.call_id in self.session.answers:
                    approved, text = self.answers.pop(0) if self.answers else (False, "")
                    await self.session.send(Approve(approval=approval.id, approved=approved, feedback=text, by="test"))
            await anyio.sleep(0.01)

    @property
    def asked(self) -> list[ApprovalRequested]:
        return [event for event in self.events if isinstance(event, ApprovalRequested)]

    @property
    def results(self) -> list[ToolFinished]:
        return [event for event in self.events if isinstance(event, ToolFinished)]

    def prompts(self) -> list[list[Mapping[str, Any]]]:
        return [request.body["messages"] for request in self.server.chats]

    def notes(self) -> list[str]:
        """Return each note about MCP in the last prompt."""
        texts = (str(message["content"]) for message in self.prompts()[-1])
        return [f"<mcp>{part.partition('</mcp>')[0]}</mcp>" for text in texts for part in text.split("<mcp>")[1:]]


@asynccontextmanager
async def talk(
    workspace: Path,
    servers: FakeServers,
    script: list[Any],
    *,
    mode: str = "auto",
    attended: bool = True,
    **settings: Any,
) -> AsyncIterator[Talk]:
    """Open a session whose model follows the script."""
    with ScriptedServer(script, strict=True) as server:
        flags = {"llm_url": server.base_url, "permission_mode": mode, **settings}
        host = await open_host(HostOptions(workspace, flags, attended=attended), say=lambda _: None)
        try:
            use_servers(host.registry, servers)
            host.toolbox = Toolbox(host.registry.offered(), host.registry.outside)
            session = await host.new_session()
            one = Talk(host, session, server)
            session.listen(one.events.append)
            yield one
        finally:
            await host.aclose()
