"""Watching: a session and its sub-agents as a tree, folded from their logs, whichever process writes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, cast

import anyio
from msgspec import Struct

from lmagent.app.watchedjobs import WatchedJobs
from lmagent.core.errors import SessionNotFound, ungrouped
from lmagent.core.events import DurableEvent, SubagentStarted
from lmagent.core.plurals import plural
from lmagent.core.work import Task
from lmagent.engine.budget import steps_made, tokens_spent
from lmagent.engine.state import SessionState
from lmagent.store.jsonl import JsonlStore

PAUSE = 0.1
"""Seconds between two looks of a watcher: faster changes are shown together."""

GONE = 1.0
"""Seconds between two checks that the working process still lives."""

TASKS = 12
"""Tasks that are shown; the rest is counted."""

_MARKS = {"completed": "✓", "in_progress": "▸", "failed": "✗", "blocked": "!", "skipped": "-"}


class Node(Struct, frozen=True):
    """A session in a tree.

    Attributes:
        task: id of the task that it was begun for; empty for none.
        status: running, interrupted, idle, or how its last turn ended.
        step: model calls, those of its sub-agents included.
    """

    session: str
    parent: str
    task: str
    objective: str
    status: str
    step: int
    tokens: int
    title: str


class Tree:
    """The state of a session and all its sub-agents, from their logs."""

    def __init__(self, store: JsonlStore, root: str) -> None:
        self.root = root
        self._store = store
        self._states: dict[str, SessionState] = {}
        self._jobs: dict[str, WatchedJobs] = {}
        self._above: dict[str, str] = {}
        """The one parent of each sub-agent's session, even if several logs claim it."""
        self._load(root)

    @property
    def over(self) -> bool:
        """Return whether all work has ended: the turn is over, or no process works on it."""
        state = self._states[self.root]
        return not (state.turn_open or state.inputs) or not self._store.is_running(self.root)

    def _load(self, session: str) -> None:
        self._states[session], self._jobs[session] = SessionState(session=session), WatchedJobs()
        try:
            events = self._store.read(session)
        except SessionNotFound:
            return  # a sub-agent that only its parent's log has so far
        for event in events:
            self._take(session, event)

    def _take(self, session: str, event: DurableEvent) -> None:
        self._states[session].apply(event)
        self._jobs[session].apply(event)
        if isinstance(event, SubagentStarted) and event.child not in self._states:
            self._above[event.child] = session
            self._load(event.child)

    async def changes(self) -> AsyncIterator[None]:
        """Yield after each change, until all work has ended."""
        news = anyio.Event()
        followed: set[str] = set()

        async def follow(session: str) -> None:
            nonlocal news
            async with aclosing(cast("Any", self._store.follow(session, self._states[session].seq))) as events:
                async for event in events:
                    self._take(session, event)
                    news.set()

        with ungrouped():
            async with anyio.create_task_group() as tasks:
                while not self.over:
                    for session in self._states.keys() - followed:
                        followed.add(session)
                        tasks.start_soon(follow, session)
                    with anyio.move_on_after(GONE):
                        await news.wait()
                    news = anyio.Event()
                    yield
                    await anyio.sleep(PAUSE)
                tasks.cancel_scope.cancel()
        self._states.clear()
        self._above.clear()
        self._load(self.root)  # with events written while the followers were being stopped

    def nodes(self) -> Iterator[Node]:
        """Yield the session and its sub-agents, each after its parent."""
        yield self._node(self.root, "", None)
        yield from self._nodes_below(self.root)

    def _nodes_below(self, session: str) -> Iterator[Node]:
        for started in self._states[session].work.children.values():
            if self._above.get(started.child) == session:
                yield self._node(started.child, session, started)
                yield from self._nodes_below(started.child)

    def _node(self, session: str, parent: str, started: SubagentStarted | None) -> Node:
        state = self._states[session]
        doing = "running" if self._store.is_running(session) else "interrupted"
        if not (state.turn_open or state.inputs):
            doing = state.last_outcome or "idle"
        return Node(
            session=session,
            parent=parent,
            task=started.task if started is not None else "",
            objective=started.brief.objective if started is not None else "",
            status=doing,
            step=steps_made(state),
            tokens=tokens_spent(state),
            title=state.title,
        )

    def lines(self) -> list[str]:
        state = self._states[self.root]
        return [f"{self.root}  {state.title}", *self._below(self.root, 1)]

    def _below(self, session: str, depth: int) -> Iterator[str]:
        state, pad = self._states[session], "  " * depth
        yield f"{pad}{self._doing(session)}"
        if budget := _budget(state):
            yield f"{pad}budget: {budget}"
        tasks = list(state.work.tasks.values())
        for task in tasks[:TASKS]:
            yield f"{pad}{_task(task)}"
        if len(tasks) > TASKS:
            yield f"{pad}… {plural(len(tasks) - TASKS, 'more task')}"
        for line in self._jobs[session].lines(alive=self._store.is_running(session)):
            yield f"{pad}{line}"
        for key, started in state.work.children.items():
            result = state.work.results.get(key)
            name = f"{started.task}: " if started.task else ""
            ended = f"  {result.status}" if result is not None else ""
            yield f"{pad}↳ {name}{' '.join(started.brief.objective.split())[:80]}  [{started.child}]{ended}"
            if self._above.get(started.child) == session:
                yield from self._below(started.child, depth + 2)

    def _doing(self, session: str) -> str:
        state = self._states[session]
        used = f"{steps_made(state)} steps, {tokens_spent(state):,} tokens"
        if not state.turn_open and not state.inputs:
            return f"{state.last_outcome or 'not begun'} · turn {state.turn} · {used}"
        if not self._store.is_running(session):
            return f"interrupted · turn {state.turn} · {used} · lmagent --resume {self._resumed(session)} continues it"
        doing = "the model" if state.turn_open else "waiting"
        if state.started:
            calls = list(state.started.values())
            doing = calls[-1].summary or calls[-1].tool
        if state.approvals:
            doing = f"asks for {next(iter(state.approvals.values())).summary}"
        return f"turn {state.turn} · step {state.step} · {doing} · {used}"

    def _resumed(self, session: str) -> str:
        """Return the session to resume for an interrupted one: the topmost that waits for its result."""
        above = self._above.get(session)
        if above is None:
            return session
        work = self._states[above].work
        ended = any(started.child == session and key in work.results for key, started in work.children.items())
        return session if ended else self._resumed(above)


def _task(task: Task) -> str:
    return f"{_MARKS.get(task.status, '·')} {task.id} {task.title} ({task.status})"


def _budget(state: SessionState) -> str:
    work, parts = state.work, list[str]()
    if work.budget.steps is not None:
        parts.append(f"{steps_made(state) - work.steps_before} of {plural(work.budget.steps, 'step')}")
    if work.budget.tokens is not None:
        parts.append(f"{tokens_spent(state) - work.spent_before:,} of {work.budget.tokens:,} tokens")
    return ", ".join(parts)
