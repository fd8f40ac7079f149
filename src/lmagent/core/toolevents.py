"""Events of calls: what a person is asked, what acts, what came of it, what it changed in the workspace."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lmagent.core.changes import Change, Refusal
from lmagent.core.live import Envelope
from lmagent.core.messages import ToolStatus


def grant_in_a_line(grant: str) -> str:
    """The rules of a grant as a person reads them."""
    return ", ".join(grant.split("\n"))


class ApprovalRequested(Envelope, frozen=True, tag="approval.requested"):
    """A call waits for a person; `id` names the approval.

    Attributes:
        call_id: the call.
        tool: its tool.
        summary: the call in one line.
        preview: what would change (a diff, the whole command).
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
        by: who answered: a surface, or "unattended" when nobody could.
        grant: the rules added, one a line.
        feedback: words for the model.
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
        content: what the model is told, capped.
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
    """What a call, or the user, changed in the workspace, so that it can be taken back.

    Attributes:
        call_id: the call; of the user's own change, a name that no call has.
        tool: its tool.
        count: number of paths.
        changes: the changes, in path order; empty where they are in `blob`.
        blob: SHA-256 of a blob with all changes as JSON, where they are many.
        unkept: paths whose earlier content could not be kept.
        seconds: for how long anybody's changes in the whole workspace counted as the call's.
        interrupted: the call's process died; what anybody changed until this was recorded is in it.
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
    """Changes were taken back, or done again.

    Attributes:
        events: ids of the `files.changed` events, in the order of the log.
        to: `before` when they were taken back, `after` when they were done again.
        paths: brought to that state.
        refused: left as they are, and why.
        by: the surface.
    """

    events: tuple[str, ...]
    to: Literal["before", "after"]
    paths: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    by: str = ""
