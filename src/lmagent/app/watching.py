"""Watching: a session and its sub-agents as a tree, folded from their logs, whichever process writes them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, cast

import anyio
from msgspec import Struct, field

from lmagent.core.errors import SessionNotFound, ungrouped
from lmagent.core.events import DurableEvent, MessageAdded, SessionForked, SubagentStarted, ToolFinished, ToolStarted
from lmagent.core.plurals import plural
from lmagent.core.work import Task
from lmagent.engine.budget import steps_made, tokens_spent
from lmagent.engine.state import SessionState
from lmagent.store.jsonl import JsonlStore

PAUSE = 0.1  # seconds between two looks of a watcher: faster changes are shown together
GONE = 1.0  # seconds between two checks that the working process still lives
SHOWN = 12  # tasks, and latest background commands, that are shown; the rest is counted

_MARKS = {"completed": "✓", "in_progress": "▸", "failed": "✗", "blocked": "!", "skipped": "-"}
_ENDED = re.compile(r"^(?:<jobs>)?(job\d+) ended: ([^<\n]*)", re.MULTILINE)


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


class WatchedJobs(Struct):
    """A session's commands in the background, from its log: each with its state, `running` or how it ended."""

    commands: dict[str, str] = field(default_factory=dict[str, str])
    states: dict[str, str] = field(default_factory=dict[str, str])
    _summaries: dict[str, str] = field(default_factory=dict[str, str])

    def apply(self, event: DurableEvent) -> None:
        match event:
            case ToolStarted() if event.tool == "shell":
                self._summaries[event.call_id] = event.summary.removeprefix("shell ")
            case ToolFinished():
                summary, job = self._summaries.pop(event.call_id, ""), event.data.get("job")
                if isinstance(job, str) and event.tool == "shell":
                    self.commands[job] = summary
                if isinstance(job, str) and event.tool in ("shell", "jobs") and job in self.commands:
                    self.states[job] = str(event.data.get("state") or "running")
            case MessageAdded() if event.origin == "note" and event.message.text.startswith("<jobs>"):
                self.states.update(_ENDED.findall(event.message.text))
            case SessionForked():
                self.commands.clear()  # they belong to the session from which this one was copied
                self.states.clear()
            case _:
                pass

    def lines(self, *, alive: bool) -> Iterator[str]:
        """Yield a line for each job. Jobs end with the process that began them, which may be no longer `alive`."""
        for job in list(self.commands)[-SHOWN:]:
            state = self.states[job]
            if state == "running" and not alive:
                state = "ended with the program"
            mark = "▸" if state == "running" else "✓" if state.startswith("exit code 0 ") else "✗"
            yield f"{mark} {job} {self.commands[job]} ({state})"
        if len(self.commands) > SHOWN:
            yield f"… {len(self.commands) - SHOWN} earlier jobs"


class _Watched(Struct):
    """One session of the tree, below the one parent that it has even if several logs claim it."""

    state: SessionState
    parent: str = ""
    jobs: WatchedJobs = field(default_factory=WatchedJobs)


class Tree:
    """The state of a session and all its sub-agents, from their logs."""

    def __init__(self, store: JsonlStore, root: str) -> None:
        self.root = root
        self._store = store
        self._known: dict[str, _Watched] = {}
        self._load(root)

    @property
    def over(self) -> bool:
        """Return whether all work has ended: the turn is over, or no process works on it."""
        state = self._known[self.root].state
        return not (state.turn_open or state.inputs) or not self._store.is_running(self.root)

    def _load(self, session: str, parent: str = "") -> None:
        self._known[session] = _Watched(SessionState(session=session), parent)
        try:
            events = self._store.read(session)
        except SessionNotFound:
            return  # a sub-agent that only its parent's log has so far
        for event in events:
            self._take(session, event)

    def _take(self, session: str, event: DurableEvent) -> None:
        known = self._known[session]
        known.state.apply(event)
        known.jobs.apply(event)
        if isinstance(event, SubagentStarted) and event.child not in self._known:
            self._load(event.child, session)

    async def changes(self) -> AsyncIterator[None]:
        """Yield after each change, until all work has ended."""
        news = anyio.Event()
        followed: set[str] = set()

        async def follow(session: str) -> None:
            async with aclosing(cast("Any", self._store.follow(session, self._known[session].state.seq))) as events:
                async for event in events:
                    self._take(session, event)
                    news.set()

        with ungrouped():
            async with anyio.create_task_group() as tasks:
                while not self.over:
                    for session in self._known.keys() - followed:
                        followed.add(session)
                        tasks.start_soon(follow, session)
                    with anyio.move_on_after(GONE):
                        await news.wait()
                    news = anyio.Event()
                    yield
                    await anyio.sleep(PAUSE)
                tasks.cancel_scope.cancel()
        self._known.clear()
        self._load(self.root)  # with events written while the followers were being stopped

    def nodes(self) -> Iterator[Node]:
        """Yield the session and its sub-agents, each after its parent."""
        yield from self._nodes(self.root, "", "")

    def _nodes(self, session: str, task: str, objective: str) -> Iterator[Node]:
        known = self._known[session]
        state = known.state
        status = state.last_outcome or "idle"
        if state.turn_open or state.inputs:
            status = "running" if self._store.is_running(session) else "interrupted"
        counted = steps_made(state), tokens_spent(state)
        yield Node(session, known.parent, task, objective, status, *counted, state.title)
        for started in state.work.children.values():
            if self._known[started.child].parent == session:
                yield from self._nodes(started.child, started.task, started.brief.objective)

    def lines(self) -> list[str]:
        return [f"{self.root}  {self._known[self.root].state.title}", *self._below(self.root, 1)]

    def _below(self, session: str, depth: int) -> Iterator[str]:
        known, pad = self._known[session], "  " * depth
        state, tasks = known.state, list(known.state.work.tasks.values())
        yield f"{pad}{self._doing(session)}"
        if budget := _budget(state):
            yield f"{pad}budget: {budget}"
        for task in tasks[:SHOWN]:
            yield f"{pad}{_task(task)}"
        if len(tasks) > SHOWN:
            yield f"{pad}… {plural(len(tasks) - SHOWN, 'more task')}"
        for line in known.jobs.lines(alive=self._store.is_running(session)):
            yield f"{pad}{line}"
        for key, started in state.work.children.items():
            result = state.work.results.get(key)
            name = f"{started.task}: " if started.task else ""
            ended = f"  {result.status}" if result is not None else ""
            yield f"{pad}↳ {name}{' '.join(started.brief.objective.split())[:80]}  [{started.child}]{ended}"
            if self._known[started.child].parent == session:
                yield from self._below(started.child, depth + 2)

    def _doing(self, session: str) -> str:
        state = self._known[session].state
        used = f"{steps_made(state)} steps, {tokens_spent(state):,} tokens"
        if not state.turn_open and not state.inputs:
            return f"{state.last_outcome or 'not begun'} · turn {state.turn} · {used}"
        if not self._store.is_running(session):
            return f"interrupted · turn {state.turn} · {used} · lmagent --resume {self._resumed(session)} continues it"
        doing = "the model" if state.turn_open else "waiting"
        if state.started:
            call = list(state.started.values())[-1]
            doing = call.summary or call.tool
        if state.approvals:
            doing = f"asks for {next(iter(state.approvals.values())).summary}"
        return f"turn {state.turn} · step {state.step} · {doing} · {used}"

    def _resumed(self, session: str) -> str:
        """Return the session to resume for an interrupted one: the topmost that waits for its result."""
        above = self._known[session].parent
        if not above:
            return session
        work = self._known[above].state.work
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
