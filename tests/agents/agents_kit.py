"""Sessions with sub-agents against a scripted model server, and what is looked for in their logs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, call


def use(name: str, **arguments: Any) -> Behaviour:
    """A call through use_tool, as models make it."""
    return call("use_tool", name=name, arguments=arguments)


def report(status: str = "ok", summary: str = "Done.", **more: Any) -> Behaviour:
    return use("report_result", status=status, summary=summary, **more)


def brief_in(received: Received) -> str:
    """The objective of the sub-agent that asks; empty for a person's session."""
    text = json.dumps(received.body["messages"], ensure_ascii=False)
    _, found, rest = text.rpartition("Objective: ")
    return rest.partition("\\n")[0] if found else ""


def steps_in(received: Received) -> int:
    """Replies of the asker's own, which stand behind its brief."""
    messages = received.body["messages"]
    told = max((at for at, item in enumerate(messages) if "Objective: " in str(item["content"])), default=-1)
    return sum(item["role"] == "assistant" for item in messages[told + 1 :])


def by_brief(scripts: dict[str, list[Behaviour]]) -> Callable[[Received], Behaviour]:
    """Each agent follows the script of its objective, "" is the main one's, by how often it has replied."""

    def answer(received: Received) -> Behaviour:
        script = scripts[brief_in(received)]
        return script[min(steps_in(received), len(script) - 1)]

    return answer


@asynccontextmanager
async def a_host(
    workspace: Path, server: ScriptedServer, *, attended: bool = False, **flags: Any
) -> AsyncIterator[Host]:
    options = HostOptions(
        workspace,
        {"llm_url": server.base_url, "permission_mode": "auto", "llm_model": "scripted", **flags},
        attended=attended,
    )
    host = await open_host(options, say=lambda _: None)
    try:
        yield host
    finally:
        await host.aclose()


async def do(session: Session, text: str = "do it") -> ev.TurnFinished:
    await session.send(Submit(message=user(text)))
    finished = await run_until_idle(session)
    assert finished is not None
    return finished


def of_type(host: Host, session: str, kind: type[Any]) -> list[Any]:
    return [event for event in host.store.read(session) if isinstance(event, kind)]


def children_of(host: Host, session: Session) -> list[str]:
    return [event.child for event in of_type(host, session.state.session, ev.SubagentStarted)]


def results_of(host: Host, session: Session) -> list[ev.SubagentFinished]:
    return of_type(host, session.state.session, ev.SubagentFinished)


def chats(server: ScriptedServer) -> list[Any]:
    """The bodies of the model calls."""
    return [
        received.body for received in server.requests if isinstance(received.body, dict) and "messages" in received.body
    ]
