"""A real host on a scripted server, and the words of its scripts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.slash import SlashContext, SlashResult, dispatch
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.core.view import View, reduce
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.testing import ScriptedServer
from lmagent.testing.script import Reply, ScriptedCall, call, calls, tool


def use(name: str, **arguments: Any) -> Reply:
    """A reply that calls a tool of the catalogue."""
    return call("use_tool", name=name, arguments=arguments)


def done(step: str) -> Reply:
    """A step is ticked off."""
    return use("plan_complete_step", step_id=step, verification_notes=f"saw {step}")


def uses(*wanted: tuple[str, dict[str, Any]]) -> Reply:
    """Several such calls in one reply."""
    return calls(*(_use(name, arguments) for name, arguments in wanted))


def _use(name: str, arguments: dict[str, Any]) -> ScriptedCall:
    return tool("use_tool", name=name, arguments=arguments)


def plan(*steps: tuple[str, tuple[str, ...]], **more: Any) -> str:
    """A plan as a model writes it: (id, dependencies) each."""
    value = {
        "title": "Tidy up",
        "goal": "The folder is tidy.",
        "risk_areas": ["files may be lost"],
        "steps": [
            {"id": id, "description": f"do {id}", "verification": f"see {id}", "risk": "", "dependencies": list(needs)}
            for id, needs in steps
        ],
        **more,
    }
    return json.dumps(value)


@dataclass
class Run:
    """One session of a host."""

    host: Host
    session: Session
    server: ScriptedServer

    async def submit(self, text: str = "do it") -> ev.TurnFinished:
        await self.session.send(Submit(message=user(text)))
        return await self.go()

    async def go(self) -> ev.TurnFinished:
        finished = await run_until_idle(self.session)
        assert finished is not None
        return finished

    async def go_on(self) -> None:
        """Do what is wished for outside a turn."""
        await run_until_idle(self.session)

    async def slash(self, line: str) -> SlashResult:
        return await dispatch(line, SlashContext(self.host, self.session, View()))

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.host.store.read(self.session.state.session) if isinstance(event, kind)]

    @property
    def results(self) -> list[str]:
        """What calls were answered, in order."""
        return [event.content for event in self.of(ev.ToolFinished)]

    @property
    def sent(self) -> str:
        """The last conversation as the model read it."""
        return "\n".join(str(message.get("content")) for message in self.server.chats[-1].body["messages"])

    @property
    def work(self):
        return self.session.state.work


def check_view(host: Host, session: Session) -> None:
    """What a person sees of the work is what the session knows of it."""
    view = View()
    for event in host.store.read(session.state.session):
        view = reduce(view, event)
    work = session.state.work
    assert (view.tasks, view.plan, view.work) == (tuple(work.tasks.values()), work.proposal, work.mode)


@asynccontextmanager
async def running(folder: Path, *script: Any, name: str = "", **flags: Any) -> AsyncIterator[Run]:
    """A session whose model answers by the script; the prompt is checked to grow only."""
    with ScriptedServer(script[0] if len(script) == 1 and callable(script[0]) else list(script), strict=True) as server:
        settings = {
            "llm_url": server.base_url,
            "permission_mode": "auto",
            "llm_model": "scripted",
            "llm_retry_delay": 0.0,
            **flags,
        }
        host = await open_host(HostOptions(folder, settings), say=lambda _: None)
        try:
            session = await host.open_session(name) if name else await host.new_session()
            yield Run(host, session, server)
            check_view(host, session)
        finally:
            await host.aclose()
        cuts = session.state.compactions
        assert len(server.prefix.breaks) <= cuts, "the prompt was changed"
