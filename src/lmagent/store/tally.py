"""Tally: a session's entry in the list of sessions, as a fold of its events, and the row that is shown."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from lmagent.core import events as ev
from lmagent.core.ids import InputOrigin
from lmagent.core.model import Usage
from lmagent.core.titles import title_of

SETTINGS = "settings"
"""The `by` of plans approved unread: no surface, so the later turns belong to the surface that asked for the plan."""


class Tally(Struct):
    """A session in figures. The fields are columns of the table `session`.

    Attributes:
        waiting: inputs that have not reached the model.
        until: Unix seconds at which a waiting session continues; 0 for none.
        ended: id of the event that ended the last turn.
        job: the text of the origin of the work.
        surface: where the newest input came from.
        queued: the same for an input that a user sent while the turn of a job was open.
        child: it is a sub-agent's session, and continues with its parent.
    """

    id: str
    title: str = ""
    renamed: bool = False
    created: float = 0.0
    updated: float = 0.0
    model: str = ""
    outcome: str = ""
    turn_open: bool = False
    waiting: int = 0
    turns: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    parent: str = ""
    until: float = 0.0
    ended: str = ""
    job: str = ""
    child: bool = False
    surface: str = ""
    queued: str = ""
    asks: int = 0
    planned: bool = False
    turn: int = 0
    branch_turn: int = 0
    pinned: bool = False
    archived: bool = False
    agent: str = ""
    seq: int = 0
    read_to: int = 0
    size: int = 0
    mtime_ns: int = 0
    inode: int = 0

    def status(self, *, held: bool) -> str:
        """Return running, interrupted, idle, or how the last turn ended; `held`: a process has it open."""
        if self.turn_open or self.waiting:
            return "running" if held else "interrupted"
        return self.outcome or "idle"

    def waiting_for(self, status: str) -> str:
        """Return the kind of outside event it waits for: approval, plan, question or time; empty for none."""
        if status == "running":
            return "approval" if self.asks else ""
        if status == "interrupted":
            return ""
        if self.planned:
            return "plan"
        return {"question": "question", "waiting": "time"}.get(self.outcome, "")

    def apply(self, event: ev.DurableEvent) -> None:
        self.created = self.created or event.ts
        if not isinstance(event, ev.SessionMarked):  # marking is no activity in it
            self.updated = max(self.updated, event.ts)
        match event:
            case ev.StepFinished():
                self._count(event.usage)
                self.model = event.model or self.model
            case ev.CompactionDone(usage=Usage() as usage):
                self._count(usage)
            case ev.TurnStarted():
                self.turn_open, self.until, self.turn = True, 0.0, event.turn
            case ev.TurnFinished():
                self.turn_open, self.outcome, self.asks = False, event.ending, 0
                self.until, self.ended = event.until, event.id
                self.turns += 1
                self.job, self.queued = self.queued or self.job, ""
            case ev.InputReceived():
                self.waiting += 1
                self.surface = event.by if event.by != SETTINGS else self.surface
                self._give(event.origin)
                self._name(event.message.text)
            case ev.InputWithdrawn():
                self.waiting = max(0, self.waiting - 1)
            case ev.MessageAdded():
                self._add(event)
            case ev.SessionCreated() | ev.SessionForked() | ev.SessionRenamed() | ev.ModelChanged():
                self._describe(event)
            case _:
                self._ask(event)

    def _ask(self, event: ev.DurableEvent) -> None:
        match event:
            case ev.ApprovalRequested():
                self.asks += 1
            case ev.ApprovalResolved() if event.approval:
                self.asks = max(0, self.asks - 1)
            case ev.PlanProposed():
                self.planned = True
            case ev.PlanDecided():
                self.planned = False
            case ev.SessionMarked():
                self.pinned = self.pinned if event.pinned is None else event.pinned
                self.archived = self.archived if event.archived is None else event.archived
            case _:
                pass

    def _give(self, origin: InputOrigin) -> None:
        """Note the origin of the work; a user who adds to a job's turn does not take it over."""
        of_job = self.turn_open and not InputOrigin.of(self.job).is_user
        if of_job and origin.kind in ("web", "api"):
            self.queued = str(origin)
        elif origin.key or not self.turn_open:
            self.job, self.queued = str(origin), ""

    def _count(self, usage: Usage) -> None:
        self.steps += 1
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.cached_tokens += usage.cached_tokens

    def _add(self, event: ev.MessageAdded) -> None:
        if event.input is not None:
            self.waiting = max(0, self.waiting - 1)
        if event.origin in ("input", "steer"):
            self._name(event.message.text)

    def _describe(self, event: ev.SessionCreated | ev.SessionForked | ev.SessionRenamed | ev.ModelChanged) -> None:
        match event:
            case ev.SessionCreated():
                self.model, self.agent = event.model or self.model, event.agent
                self.child = event.parent is not None
                self.parent = event.parent.session if event.parent is not None else ""
            case ev.SessionForked():
                self.parent, self.waiting, self.child = event.parent, 0, False
                self.until, self.job, self.queued = 0.0, "", ""  # the original session keeps its own timer
                if event.at_seq:
                    self.branch_turn, self.created = self.turn + 1, event.ts
                self.pinned = self.archived = False
            case ev.SessionRenamed():
                self.title, self.renamed = title_of(event.title, None), True
            case ev.ModelChanged():
                self.model = event.model or self.model

    def _name(self, text: str) -> None:
        if not self.title and not self.renamed:
            self.title = title_of(text)


def passage_of(event: ev.DurableEvent) -> tuple[str, str] | None:
    """Return role and text of a message of the user or the model; None for any other event."""
    match event:
        case ev.InputReceived():
            role, text = "user", event.message.text
        case ev.MessageAdded() if event.message.role == "assistant":
            role, text = "assistant", event.message.text
        case ev.MessageAdded() if event.origin in ("input", "steer") and event.input is None:
            role, text = "user", event.message.text
        case _:
            return None
    return (role, text) if text.strip() else None


class SessionRow(Struct, frozen=True):
    """A session in a list.


    Attributes:
        title: the user's title for it, or the first words of its first input.
        created: Unix seconds of its first event; of a copy, of the moment in which it was made.
        status: running, interrupted, idle, or how its last turn ended (done, blocked, question …).
        parent: the session that it was forked from, or works for as a sub-agent; empty for none.
        waiting_for: approval, plan, question or time; empty if it waits for nothing.
        branch_turn: of a fork, the first turn that it does not share with its parent; else 0.
    """

    id: str
    title: str
    created: float
    updated: float
    model: str
    status: str
    turns: int
    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    parent: str
    child: bool = False
    waiting_for: str = ""
    pinned: bool = False
    archived: bool = False
    branch_turn: int = 0
    agent: str = ""


Shelf = Literal["all", "open", "archived"]
"""Which sessions to list."""

ListPlace = tuple[bool, float, str]
"""The place of a session in the list: whether it is pinned, when it was written last, its id."""
