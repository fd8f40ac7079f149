"""Watching: a session and its sub-agents as a tree, folded from their logs, whichever process writes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import anyio
from msgspec import Struct

from lmagent.core.events import SubagentStarted
from lmagent.core.ids import is_session_id
from lmagent.core.plurals import plural
from lmagent.engine.budget import steps_made, tokens_spent, used
from lmagent.engine.state import SessionState
from lmagent.store.port import SessionStore, SessionTail

PAUSE = 0.2  # seconds between two looks of a watcher
SHOWN = 12  # tasks that are shown; the rest is counted

_MARKS = {"completed": "✓", "in_progress": "▸", "failed": "✗", "blocked": "!", "skipped": "-"}


class Node(Struct, frozen=True):
    """A session in a tree; `step` and `tokens` include those of its sub-agents."""

    session: str
    parent: str
    task: str  # id of the task that it was begun for; empty for none
    objective: str
    status: str  # running, interrupted, idle, or how its last turn ended
    step: int
    tokens: int
    title: str


class _Watched(Struct):
    """One session of the tree, below the one parent that it has even if several logs claim it."""

    state: SessionState
    tail: SessionTail
    parent: str = ""


class Tree:
    """The state of a session and all its sub-agents, from their logs."""

    def __init__(self, store: SessionStore, root: str) -> None:
        self.root = root
        self._store = store
        self._known: dict[str, _Watched] = {}
        self._add(root)
        self._read()

    def _add(self, session: str, parent: str = "") -> None:
        if session not in self._known and is_session_id(session):
            self._known[session] = _Watched(SessionState(session=session), self._store.tail(session), parent)

    def _read(self) -> None:
        """Read the events that were written since the last time."""
        waiting = list(self._known)
        while waiting:
            known = self._known[session := waiting.pop()]
            before = len(self._known)
            while not known.tail.is_gone and (events := known.tail.read()):
                for event in events:
                    known.state.apply(event)
                    if isinstance(event, SubagentStarted):
                        self._add(event.child, session)
            waiting += list(self._known)[before:]

    @property
    def over(self) -> bool:
        """Return whether all work has ended: the turn is over, or no process works on it."""
        return self._status(self.root) != "running"

    async def changes(self) -> AsyncIterator[None]:
        """Yield after each look at the logs, until all work has ended."""
        while not self.over:
            await anyio.sleep(PAUSE)
            self._read()
            yield

    def nodes(self) -> Iterator[Node]:
        """Yield the session and its sub-agents, each after its parent."""
        yield from self._nodes(self.root, "", "")

    def _nodes(self, session: str, task: str, objective: str) -> Iterator[Node]:
        known = self._known[session]
        counted = steps_made(known.state), tokens_spent(known.state)
        yield Node(session, known.parent, task, objective, self._status(session), *counted, known.state.title)
        for started in known.state.work.children.values():
            if self._is_below(started.child, session):
                yield from self._nodes(started.child, started.task, started.brief.objective)

    def _is_below(self, child: str, session: str) -> bool:
        return child in self._known and self._known[child].parent == session

    def _status(self, session: str) -> str:
        state = self._known[session].state
        if not (state.turn_open or state.inputs):
            return state.last_outcome or "idle"
        return "running" if self._store.is_running(session) else "interrupted"

    def lines(self) -> list[str]:
        return [f"{self.root}  {self._known[self.root].state.title}", *self._below(self.root, 1)]

    def _below(self, session: str, depth: int) -> Iterator[str]:
        state, pad = self._known[session].state, "  " * depth
        work, spent, tasks = state.work, used(state), list(state.work.tasks.values())
        yield f"{pad}{self._doing(session)}"
        if work.budget.steps is not None:
            yield f"{pad}budget: {spent.steps:,} of {plural(work.budget.steps, 'step')}"
        if work.budget.tokens is not None:
            yield f"{pad}budget: {spent.tokens:,} of {work.budget.tokens:,} tokens"
        for task in tasks[:SHOWN]:
            yield f"{pad}{_MARKS.get(task.status, '·')} {task.id} {task.title} ({task.status})"
        if len(tasks) > SHOWN:
            yield f"{pad}… {plural(len(tasks) - SHOWN, 'more task')}"
        for key, started in work.children.items():
            result = work.results.get(key)
            name = f"{started.task}: " if started.task else ""
            ended = f"  {result.status}" if result is not None else ""
            yield f"{pad}↳ {name}{' '.join(started.brief.objective.split())[:80]}  [{started.child}]{ended}"
            if self._is_below(started.child, session):
                yield from self._below(started.child, depth + 2)

    def _doing(self, session: str) -> str:
        state, status = self._known[session].state, self._status(session)
        spent = f"{steps_made(state)} steps, {tokens_spent(state):,} tokens"
        if status != "running":
            more = f" · lmagent --resume {session} continues it" if status == "interrupted" else ""
            return f"{status} · turn {state.turn} · {spent}{more}"
        doing = "the model" if state.turn_open else "waiting"
        if state.started:
            call = list(state.started.values())[-1]
            doing = call.summary or call.tool
        if state.approvals:
            doing = f"asks for {next(iter(state.approvals.values())).summary}"
        return f"turn {state.turn} · step {state.step} · {doing} · {spent}"
