"""Store: the one way in which a model's call changes the session's tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import anyio
from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.events import TasksChanged
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.engine import worktext
from lmagent.engine.session import Session
from lmagent.engine.work import WorkState

ROWS = 30
"""Changed tasks that a result shows; the model has named the others itself."""

WINDOW_SHARE = 0.4
"""The part of the window, up to its trigger, that open tasks and the task state may take in their shortest form."""

Build = Callable[[WorkState], TasksChanged]
"""Builds a change; raises ToolError to refuse it, and then nothing changes."""


class Store:
    """The tasks of the sessions that are open here; `session` finds one by id."""

    def __init__(self, session: Callable[[str], Session]) -> None:
        self._session = session
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    def session(self, ctx: ToolContext) -> Session:
        """Return the session of a call. Raises ToolError if no session is open, as when a user calls a single tool."""
        return self._session(ctx.session)

    def work(self, ctx: ToolContext) -> WorkState:
        return self.session(ctx).state.work

    async def change(self, ctx: ToolContext, build: Build) -> ToolOutput:
        """Record one change, whole or not at all; calls of one reply change one after the other."""
        session = self.session(ctx)
        async with self._locks[ctx.session]:
            work = session.state.work
            done = work.calls.get(ctx.call)
            if done is None:  # else a crash came between the change and its result, and this is the same call again
                done = replace(build(work), by="model", call=ctx.call)
                _fits(session, done)
                if done.items or done.removed or done.state is not None:
                    await session.record(done)
        return ToolOutput(told(done))


def _fits(session: Session, change: TasksChanged) -> None:
    """Refuse a change after which open work no longer fits the window next to the conversation."""
    work = session.state.work
    tasks = {**work.tasks, **{task.id: task for task in change.items}}
    after = WorkState(tasks=tasks, state=change.state or work.state, plan=work.plan)
    if (why := too_much(session, after)) and worktext.least(after) > worktext.least(work):
        raise ToolError(f"{why} Nothing was changed. Keep long lists in a file, or take several tasks together.")


def too_much(session: Session, work: WorkState) -> str:
    """Return why the window has no room for so much open work next to the conversation; empty if it has."""
    size, limit = session.state.tokens(worktext.least(work)), int(session.window.trigger * WINDOW_SHARE)
    if size <= limit:
        return ""
    return f"All that is open would take {size:,} tokens, of a window that has room for {limit:,}."


def told(change: TasksChanged) -> str:
    lines = [worktext.row(task, worktext.SHORT) for task in change.items[:ROWS]]
    if len(change.items) > ROWS:
        lines.append(f"and {len(change.items) - ROWS} more, up to {change.items[-1].id}")
    if change.removed:
        lines.append(f"gone: {', '.join(change.removed)}")
    if change.state is not None:
        from lmagent.planning.gate import standing

        lines.append(f"Task state kept. {standing(change.state)}")
    return "\n".join(lines) or "Nothing to change: it is so already."
