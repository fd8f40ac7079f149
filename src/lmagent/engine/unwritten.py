"""Unwritten: turns whose writes and edits all failed, so that a claim to be done cannot be true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from lmagent.core.events import (
    ApprovalResolved,
    DurableEvent,
    FilesChanged,
    SubagentFinished,
    ToolFinished,
    TurnStarted,
)
from lmagent.engine.review import Again, End

if TYPE_CHECKING:
    from lmagent.engine.session import Session

QUESTION = (
    "Every write and edit of this turn failed, and no file was changed. Look at the last error and try again; "
    "if it cannot be done, write BLOCKED: and the reason."
)


class Tried(Struct):
    """The tools that a turn has called; a fold of events.

    Attributes:
        worked: names of tools with a call that worked.
        failed: names of tools with a call that failed or was denied.
        changed: a file may have changed.
        answered: the user has denied a call, so the user knows.
    """

    worked: set[str] = field(default_factory=set[str])
    failed: set[str] = field(default_factory=set[str])
    changed: bool = False
    answered: bool = False

    def apply(self, event: DurableEvent) -> None:
        match event:
            case TurnStarted():
                self.worked.clear()
                self.failed.clear()
                self.changed = self.answered = False
            case ToolFinished():
                (self.worked if event.status in ("ok", "interrupted") else self.failed).add(event.tool)
            case FilesChanged(by=""):
                self.changed = self.changed or _matters(event)
            case SubagentFinished():
                self.changed = True
            case ApprovalResolved() if not event.approved and event.by != "unattended":
                self.answered = True
            case _:
                pass


def _matters(event: FilesChanged) -> bool:
    from lmagent.core.byproducts import is_byproduct  # compiles its pattern: not before the first change

    return bool(event.blob) or any(not is_byproduct(change.path) for change in event.changes)


def doubt(session: Session, answer: str) -> Again | None:
    """Question a final answer after only failed writes; a second such answer ends the turn as incomplete."""
    tried = session.state.tried
    if (
        session.state.work.mode == "plan"
        or not tried.failed
        or tried.changed
        or tried.answered
        or session.state.unattended_denials
    ):
        return None  # nothing failed, something changed, or the end of the turn says why not

    def has(names: set[str], *effects: str) -> bool:
        found = (session.wiring.toolbox.get(name) for name in names)
        return any(tool is not None and tool.effect in effects for tool in found)

    # Without undo the changes of commands are unknown.
    writing = ("write",) if session.wiring.snapshots is not None else ("write", "exec")
    if not has(tried.failed, "write") or has(tried.worked, *writing):
        return None
    reason = "incomplete: every write and edit of the turn failed, and no file was changed"
    typed = "see the errors above, and continue with --continue"
    return Again("unwritten", QUESTION, 1, End("error", "incomplete", reason, answer, terminal=typed))
