"""The slash commands of sub-agents: /agents, /steer and /stop."""

from __future__ import annotations

from collections.abc import Iterator

from lmagent.app.registry import SlashCommand
from lmagent.app.slash import WORK, SlashContext, SlashResult
from lmagent.app.watching import Tree
from lmagent.core.commands import Interrupt, Steer
from lmagent.core.errors import ConfigError
from lmagent.core.messages import user
from lmagent.engine.session import Session


def commands() -> Iterator[SlashCommand]:
    yield SlashCommand("agents", "", "list the sub-agents of this session", _agents, WORK)
    yield SlashCommand("steer", "AGENT WORDS", "tell a sub-agent something while it works", _steer, WORK)
    yield SlashCommand("stop", "AGENT", "interrupt a sub-agent; the session continues", _stop, WORK)


async def _agents(context: SlashContext, _: str) -> SlashResult:
    if context.session is None:
        return SlashResult("no sub-agents yet")
    nodes = list(Tree(context.host.store, context.session.state.session).nodes())
    lines = [f"{node.session}  {node.status} · step {node.step}  {node.task} {node.objective}" for node in nodes[1:]]
    return SlashResult("\n".join(line[:160] for line in lines) or "no sub-agents yet")


async def _steer(context: SlashContext, argument: str) -> SlashResult:
    name, _, words = argument.partition(" ")
    if not words.strip():
        raise ConfigError("/steer needs a sub-agent and words for it", fix="/agents lists them")
    session, child = _named(context, name)
    await session.send(Steer(message=user(words.strip()), to=child.state.session, by="slash"))
    return SlashResult(f"told {child.state.session}")


async def _stop(context: SlashContext, name: str) -> SlashResult:
    session, child = _named(context, name)
    await session.send(Interrupt(to=child.state.session, by="slash"))
    return SlashResult(f"stopped {child.state.session}")


def _named(context: SlashContext, name: str) -> tuple[Session, Session]:
    """Find the sub-agent at work; `name` is its id, a beginning or end of that, or its task's name."""
    at_work = dict(_at_work(context.session)) if context.session is not None else {}
    found = [id for id, task in at_work.items() if name and (name == task or id.startswith(name) or id.endswith(name))]
    if context.session is None or len(found) != 1:
        how = f"{len(found)} sub-agents at work are" if found else "no sub-agent at work is"
        raise ConfigError(f"{how} called {name!r}", fix="/agents lists them")
    return context.session, context.host.sessions[found[0]]


def _at_work(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the id of each sub-agent at work, and the task that it was begun for."""
    for started in session.state.work.children.values():
        if (child := session.children.get(started.child)) is not None:
            yield started.child, started.task
            yield from _at_work(child)
