"""Delegate: the task of a client becomes a turn of a session of its own, from its begin to its end."""

from __future__ import annotations

from typing import Annotated, Literal

import anyio
from msgspec import Meta, Struct

from lmagent.app.open_session import OpenSession
from lmagent.app.runner import Runner
from lmagent.core.commands import Interrupt
from lmagent.core.errors import SessionBusy, ToolError
from lmagent.core.messages import user
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.mcpserver.watch import SURFACE, AnswerPlaces, Client, RequestWatch

DELEGATE = "delegate"

DESCRIPTION = (
    "Give a whole task to lmagent, an agent that works in this workspace with its own tools and its own local model. "
    "Returns its answer, how the task ended, the files it changed, and the id of its session."
)


class DelegatedTask(Struct, frozen=True):
    """The arguments of `delegate`."""

    task: Annotated[str, Meta(min_length=1, description="What to do, with everything that the agent must know.")]
    context: Annotated[str, Meta(description="Facts, text or errors that belong to the task.")] = ""
    session: Annotated[str, Meta(description="Id of an earlier task of this connection, to continue it.")] = ""


class TaskOutcome(Struct, frozen=True):
    """How a task ended.

    Attributes:
        outcome: `open` if this program ends before the turn does.
        reason: why it is not done, in words.
        changed: paths in the workspace.
    """

    session: str
    outcome: Literal["done", "blocked", "waiting", "question", "limit", "interrupted", "error", "denied", "open"]
    answer: str = ""
    reason: str = ""
    changed: tuple[str, ...] = ()


async def _never(_arguments: DelegatedTask, _context: ToolContext) -> ToolOutput:
    raise ToolError("delegate begins a session; it is no call of one")


TOOL = Tool(DELEGATE, DESCRIPTION, DelegatedTask, "exec", _never)
"""Describes the arguments; `run_task` does the work."""


async def run_task(
    runner: Runner, task: DelegatedTask, client: Client, places: AnswerPlaces, begun: set[str]
) -> TaskOutcome:
    """Run a task to the end of its turn. Cancelling it interrupts the turn; the session stays.

    `begun` are the sessions of the tasks of this connection.

    Raises LmagentError: it could not begin, or its session failed.
    """
    known = await (_continued(runner, task.session, begun) if task.session else runner.begin())
    begun.add(known.id)
    watch = RequestWatch(known.session, client, places)
    try:
        async with watch.following():
            watch.say(f"session {known.id}")
            await runner.submit(known.id, user(_text(task)), by=SURFACE)
            try:
                await known.until_idle()
            except anyio.get_cancelled_exc_class():
                if not runner.is_ending:  # then the turn stays open for the next process
                    with anyio.CancelScope(shield=True):
                        await known.interrupt(Interrupt(by=SURFACE))
                raise
    finally:
        with anyio.CancelScope(shield=True):
            await runner.release(known.id, unless=lambda it: it.is_needed or runner.is_watched(known.id))
    if watch.ended is None and known.failure is not None:
        raise known.failure
    return _outcome(known, watch)


async def _continued(runner: Runner, session: str, begun: set[str]) -> OpenSession:
    """Open the session of an earlier task. Other sessions are of other clients, or may have more rights."""
    if session not in begun:
        raise ToolError(
            f"no task of this connection has the session {session[:80]!r}. Leave it out to begin a new one, with all "
            "that the agent must know."
        )
    known = await runner.open(session)
    if known.is_working:
        raise SessionBusy(f"session {session} is at work", fix="wait for its end, or leave the session out")
    return known


def _text(task: DelegatedTask) -> str:
    return f"{task.task}\n\nContext:\n{task.context}" if task.context else task.task


def _outcome(known: OpenSession, watch: RequestWatch) -> TaskOutcome:
    changed, end = tuple(watch.changed), watch.ended
    if end is None:
        reason = "lmagent is about to end; the turn stays in the session's log"
        return TaskOutcome(known.id, "open", reason=reason, changed=changed)
    reason = "; ".join(part for part in (end.reason, end.fix) if part)
    outcome = "denied" if end.ending == "denied" else end.outcome
    return TaskOutcome(known.id, outcome, end.answer, reason, changed)


def shown(outcome: TaskOutcome) -> str:
    """Return an outcome as the text of a result."""
    facts = [f"session {outcome.session}", f"outcome {outcome.outcome}"]
    if outcome.reason and outcome.outcome != "done":
        facts.append(outcome.reason)
    if outcome.changed:
        facts.append(f"changed {', '.join(outcome.changed)}")
    return "\n\n".join(part for part in (outcome.answer, f"[{'; '.join(facts)}]") if part)
