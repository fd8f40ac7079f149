"""Fetching from the site of traps, without a session and in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from testkit.trapsite import TrapSite, resolve

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Submit, Undo
from lmagent.core.errors import ToolError
from lmagent.core.messages import user
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.fakes import FakeClock
from lmagent.testing.script import say
from lmagent.web.client import FetchLimits
from lmagent.web.fetch import Web
from lmagent.web.reading import read

SHORT = FetchLimits(connect=1.0, silence=0.4, whole=0.8)


def context(asked: list[str] | None = None, *, answer: bool = True) -> ToolContext:
    async def ask(host: str, port: int) -> bool:
        if asked is not None:
            asked.append(f"{host}:{port}")
        return answer

    return ToolContext("s", "c", Path("/"), {}, lambda _: None, ask_host=ask)


def web(
    site: TrapSite, *more: str, limits: FetchLimits = SHORT, resolver=resolve, clock: FakeClock | None = None, tls=None
):
    return Web((site.address, *more), clock or FakeClock(auto=True), resolve=resolver, limits=limits, tls=tls)


def fetched(of: Web, url: str, selector: str = "", characters: int = 10_000, **how) -> ToolOutput:
    async def go() -> ToolOutput:
        with anyio.fail_after(20):
            return await read(of, url, selector, characters, context(**how))

    return anyio.run(go)


def refusal(of: Web, url: str, **how) -> str:
    with pytest.raises(ToolError) as refused:
        fetched(of, url, **how)
    assert "\n" not in refused.value.message.replace("\nThe user can", " The user can")
    return refused.value.message


class Ran:
    def __init__(self) -> None:
        self.asked: list[ev.ApprovalRequested] = []
        self.results: list[ev.ToolFinished] = []
        self.changes: list[str] = []
        self.requests: list[dict[str, Any]] = []

    @property
    def statuses(self) -> list[str]:
        return [result.status for result in self.results]


def run(
    workspace: Path,
    *script: Any,
    scope: Literal["once", "session"] = "once",
    approve: bool = True,
    attended: bool = True,
    undo: bool = False,
    **flags: object,
) -> Ran:
    """Run a turn; each approval is answered alike."""
    ran = Ran()

    async def main() -> None:
        with ScriptedServer([*script, say("Done.")]) as server:
            options = HostOptions(workspace, {"llm_url": server.base_url, **flags}, attended=attended)
            host = await open_host(options, say=lambda _: None)
            try:
                session = await host.new_session()
                async with anyio.create_task_group() as tasks:

                    def listen(event: ev.Event) -> None:
                        if isinstance(event, ev.ApprovalRequested) and attended:
                            ran.asked.append(event)
                            reply = Approve(approval=event.id, approved=approve, scope=scope)
                            tasks.start_soon(session.send, reply)
                        if isinstance(event, ev.ToolFinished):
                            ran.results.append(event)
                        if isinstance(event, ev.FilesChanged):
                            ran.changes += [change.path for change in event.changes]

                    session.listen(listen)
                    await session.send(Submit(message=user("look it up")))
                    await run_until_idle(session)
                    if undo:
                        await session.send(Undo())
                        await run_until_idle(session)
            finally:
                await host.aclose()
                ran.requests += [request.body for request in server.chats]

    anyio.run(main)
    return ran
