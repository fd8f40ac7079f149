"""Events of calls: the question to the user, the action, its result, its changes to the workspace."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lmagent.core.changes import Change, UndoRefusal
from lmagent.core.live import Envelope
from lmagent.core.messages import ToolStatus


def grant_in_a_line(grant: str) -> str:
    """Return the rules of a grant on one line, for the user."""
    return ", ".join(grant.split("\n"))


class ApprovalRequested(Envelope, frozen=True, tag="approval.requested"):
    """A call waits for the user; `id` names the approval.

    Attributes:
        call_id: the call.
        tool: its tool.
        summary: the call in one line.
        preview: the coming change (a diff, the whole command).
        reason: why the gate asks.
        grant: the rules that "always" would add, exactly, one a line.
    """

    call_id: str
    tool: str
    summary: str
    preview: str = ""
    reason: str = ""
    grant: str = ""


class ApprovalResolved(Envelope, frozen=True, tag="approval.resolved"):
    """An approval was answered.

    Attributes:
        approval: id of the `approval.requested`.
        call_id: the call.
        approved: whether it may run.
        scope: "once", or "session" when `grant` was added to the session's rules.
        by: the surface that answered, or "unattended" if no user could be asked.
        grant: the rules added, one a line.
        feedback: text for the model.
    """

    approval: str
    call_id: str
    approved: bool
    scope: Literal["once", "session"] = "once"
    by: str = ""
    grant: str = ""
    feedback: str = ""


OWN_CALL = "lmagent-"
"""Begins the id of a call that lmagent makes itself, such as the check of the work."""


class ToolStarted(Envelope, frozen=True, tag="tool.started"):
    """A call is about to act. On disk before it does."""

    call_id: str
    tool: str
    effect: str
    summary: str = ""
    replay_safe: bool = False


class ToolFinished(Envelope, frozen=True, tag="tool.finished"):
    """A call has its result; the model sees `content`.

    Attributes:
        call_id: the call.
        tool: the name it was dispatched to.
        status: how it ended.
        content: the text for the model, capped.
        artifact: blob of the whole output, when `content` is capped.
        size: bytes of the whole output.
        data: facts for surfaces and for the ledger (`path`, `sha256`, `diff` …).
        duration: seconds.
    """

    call_id: str
    tool: str
    status: ToolStatus
    content: str
    artifact: str | None = None
    size: int = 0
    data: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    duration: float = 0.0


class FilesChanged(Envelope, frozen=True, tag="files.changed"):
    """The changes of a call, or of the user, in the workspace, recorded so that they can be undone.

    Attributes:
        call_id: the call; of the user's own change, a name that no call has.
        tool: its tool.
        count: number of paths.
        changes: the changes, in path order; empty if they are in `blob`.
        blob: SHA-256 of a blob with all changes as JSON, if they are many.
        unkept: paths whose earlier content could not be kept.
        seconds: for how long all changes in the workspace, by any program, counted as the call's.
        interrupted: the call's process died; changes by any program until this was recorded are included.
        by: the surface through which the user made the change; empty for a call.
    """

    call_id: str
    tool: str
    count: int
    changes: tuple[Change, ...] = ()
    blob: str = ""
    unkept: tuple[str, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False
    by: str = ""


class FilesRestored(Envelope, frozen=True, tag="files.restored"):
    """Changes were undone, or redone.

    Attributes:
        events: ids of the `files.changed` events, in the order of the log.
        to: `before` when they were undone, `after` when they were redone.
        paths: restored to that state.
        refused: left unchanged, and why.
        by: the surface.
    """

    events: tuple[str, ...]
    to: Literal["before", "after"]
    paths: tuple[str, ...] = ()
    refused: tuple[UndoRefusal, ...] = ()
    by: str = ""
