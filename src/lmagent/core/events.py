"""Event: an immutable fact about a session.

Durable events have a `seq` (1, 2, 3 … without gaps, or continuing a log before) and are in the log; ephemeral ones have
0 and only reach watchers. `tests/golden/` holds every version of the union that was ever written.

Order within a session:

    session.created → input.received* → turn.started → message.added(user)
    → [ step.started → message.added(assistant) → step.finished
      → ( approval.requested → approval.resolved )? → tool.started → files.changed? → tool.finished … ]* → turn.finished

Only `message.added`, `tool.finished` and `context.inherited` add to the model's prompt; `compaction.done` shortens it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from lmagent.core.changes import Change, UndoRefusal
from lmagent.core.decoding import decode_json, decoder
from lmagent.core.ids import InputOrigin
from lmagent.core.live import (
    Envelope,
    PrefillProgress,
    RetryScheduled,
    SubagentEvent,
    TextDelta,
    ThinkingDelta,
    ToolOutput,
)
from lmagent.core.live import innermost as innermost
from lmagent.core.messages import Message, ToolStatus
from lmagent.core.model import FinishReason, SessionOptions, ToolSpec, Usage
from lmagent.core.work import Brief, Budget, ChildResult, Parent, Plan, Proof, Task, TaskState, Way, WorkMode

Outcome = Literal["done", "blocked", "waiting", "question", "limit", "interrupted", "error"]
Delivery = Literal["submit", "steer", "queue"]
Author = Literal["input", "steer", "note", "nudge", "model", "recovery"]
PermissionMode = Literal["auto", "normal", "manual"]


class SessionCreated(Envelope, frozen=True, tag="session.created"):
    """The first event: everything that stays fixed, so that a resumed session sends the same bytes.

    Attributes:
        workspace: absolute path of the workspace.
        model: the model's name; empty lets the server choose.
        app_version: version of lmagent that wrote it.
        imported_from: file that the session was imported from.
        parent: the call and session whose sub-agent it is; None for a user's session.
        options: the session's own options, which override the settings.
        replaces: id of the session with the earlier conversation; `seq` continues from its last event.
        forgets: each turn's prompt begins with the user's last message.
    """

    session: str
    workspace: str
    agent: str
    system: str
    tools: tuple[ToolSpec, ...]
    model: str = ""
    mode: PermissionMode = "normal"
    app_version: str = ""
    imported_from: str | None = None
    parent: Parent | None = None
    replaces: str = ""
    options: SessionOptions = SessionOptions()
    forgets: bool = False


class SessionForked(Envelope, frozen=True, tag="session.forked"):
    """This log began as a copy of another one up to and including its event `at_seq`.

    `at_seq` is 0 if the original log no longer exists and this one replaced it; the events above then belong to this
    session.
    """

    session: str
    parent: str
    at_seq: int


class SessionRenamed(Envelope, frozen=True, tag="session.renamed"):
    """The session has a new title."""

    title: str


class SessionMarked(Envelope, frozen=True, tag="session.marked"):
    """The session's place in the lists changed; None leaves it.

    Attributes:
        pinned: it is listed before all others.
        archived: it is listed only among archived sessions.
    """

    pinned: bool | None = None
    archived: bool | None = None


class ModeChanged(Envelope, frozen=True, tag="mode.changed"):
    """The permission mode changed."""

    mode: PermissionMode
    by: str = ""


class ModelChanged(Envelope, frozen=True, tag="model.changed"):
    """Another model answers from here on.

    Attributes:
        model: its name; `PROVIDER:NAME` for one of another server than the usual one.
        by: the surface.
        tokens: estimated tokens of the conversation, which the other model reads once; 0 for an empty conversation.
    """

    model: str
    by: str = ""
    tokens: int = 0


class OptionsChanged(Envelope, frozen=True, tag="options.changed"):
    """The session has other options from the next model call on: they replace all options before.

    Attributes:
        by: the surface.
    """

    options: SessionOptions
    by: str = ""


class InputReceived(Envelope, frozen=True, tag="input.received"):
    """An input was accepted. It is on disk before anything acts on it; `id` names it.

    Attributes:
        message: its content.
        delivery: when the model sees it.
        by: the surface, or the schedule that it came from.
        origin: where it comes from.
        way: the session's mode of work from the turn that answers it; None leaves it.
    """

    message: Message
    delivery: Delivery
    by: str = ""
    origin: InputOrigin = InputOrigin()
    way: Way | None = None


class InputWithdrawn(Envelope, frozen=True, tag="input.withdrawn"):
    """A queued or steering input was taken back before it reached the model."""

    input: str


class TurnStarted(Envelope, frozen=True, tag="turn.started"):
    """A turn began."""


BY_USER = "interrupted by the user"
"""The reason of a turn that the user stopped."""


class TurnFinished(Envelope, frozen=True, tag="turn.finished"):
    """A turn ended.

    Attributes:
        outcome: how.
        cause: a stable code for the reason (`iterations`, `narration`, `loop`, `permission`, `unreachable` …).
        reason: the reason in words.
        answer: the final answer.
        steps: model calls made.
        fix: what to do next, true on every surface; empty for nothing.
        terminal: the same for a terminal, as a command, option or variable to type; shown there in place of `fix`.
        until: Unix seconds at which a waiting session continues; 0 for none.
        proof: the verdict on the turn's changes; empty if it changed nothing. Earlier versions wrote `unverified` too.
        proof_reason: the reason for `proof`, in words.
    """

    outcome: Outcome
    cause: str = ""
    reason: str = ""
    answer: str = ""
    steps: int = 0
    fix: str = ""
    terminal: str = ""
    until: float = 0.0
    proof: Proof = ""
    proof_reason: str = ""

    @property
    def ending(self) -> str:
        """Return how the turn ended, for lists: its outcome, or `denied` if a call was denied for want of a user to
        ask."""
        return "denied" if self.cause == "permission" and self.outcome != "interrupted" else self.outcome


class MessageAdded(Envelope, frozen=True, tag="message.added"):
    """A message joined the conversation.

    Attributes:
        origin: its author.
        input: id of the `input.received` that it delivers.
        truncated: ids of calls that the token limit cut off; they are never run.
        apart: a user message after tool results is not joined with the last result, as earlier versions did.
    """

    message: Message
    origin: Author
    input: str | None = None
    truncated: tuple[str, ...] = ()
    apart: bool = False


class StepStarted(Envelope, frozen=True, tag="step.started"):
    """A model call begins: everything before it has been shown to the model."""

    step: int
    model: str
    prompt_bytes: int
    prompt_tokens: int


class StepFinished(Envelope, frozen=True, tag="step.finished"):
    """A model call ended with a reply.

    Attributes:
        step: number within the turn, from 1.
        usage: token counts.
        finish_reason: why the model stopped.
        first_token_s: seconds to the first token.
        total_s: seconds to the end.
        model: the model's name as the server gave it.
    """

    step: int
    usage: Usage
    finish_reason: FinishReason
    first_token_s: float
    total_s: float
    model: str = ""


class ApprovalRequested(Envelope, frozen=True, tag="approval.requested"):
    """A call waits for the user; `id` names the approval.

    Attributes:
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

COMMAND_CALL = f"{OWN_CALL}command-"
"""Begins the id of a call that fills in a slash command. It is made between turns: the session stays idle."""


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


class CompactionDone(Envelope, frozen=True, tag="compaction.done"):
    """The conversation was compacted: the only event that may change text that was sent before.

    Attributes:
        messages: the whole new conversation, the prompt from here on.
        trigger: why: `window`, `overflow`, `command`.
        summary: the model's summary; empty if it failed and only the ledger remains.
        before_tokens: prompt tokens before.
        after_tokens: prompt tokens after.
        through_seq: last event that the compaction covers.
        usage: tokens of the model's summary, which is one more model call; None without a summary.
        head: how many parts of the first message were there from its beginning: text that was sent first stays first.
    """

    messages: tuple[Message, ...]
    trigger: Literal["window", "overflow", "command"]
    summary: str
    before_tokens: int
    after_tokens: int
    through_seq: int
    usage: Usage | None = None
    head: int = 0


class CallsConstrained(Envelope, frozen=True, tag="calls.constrained"):
    """From now on the server makes the model write valid calls, because it did not do so by itself; or no longer.

    Attributes:
        model: the model that failed.
        reason: how it failed, or why the constraint was lifted.
        lifted: the constraint was lifted.
    """

    model: str
    reason: str
    lifted: bool = False


PlanDecision = Literal["approved", "revise", "rejected"]


class TasksChanged(Envelope, frozen=True, tag="tasks.changed"):
    """The store of tasks changed.

    Attributes:
        items: tasks that are new or different, whole; in the order in which new ones are added.
        removed: ids of removed tasks.
        state: the task state, if it changed; an empty one clears it.
        by: `model`, or the surface through which the user did it.
        call: the model's call that did it; a call that a crash has repeated changes nothing a second time.
    """

    items: tuple[Task, ...] = ()
    removed: tuple[str, ...] = ()
    state: TaskState | None = None
    by: str = "model"
    call: str = ""


class PlanProposed(Envelope, frozen=True, tag="plan.proposed"):
    """The model proposes a plan; `id` names it. It waits for the user, across restarts."""

    plan: Plan


class PlanDecided(Envelope, frozen=True, tag="plan.decided"):
    """A plan was decided on.

    Attributes:
        proposal: id of the `plan.proposed`.
        decision: `approved`, `revise` (the model tries again with the feedback) or `rejected`.
        plan: the approved plan, with the user's edits.
        feedback: text for the model.
        by: the surface.
    """

    proposal: str
    decision: PlanDecision
    plan: Plan | None = None
    feedback: str = ""
    by: str = ""


class WorkChanged(Envelope, frozen=True, tag="work.changed"):
    """The session works in another mode.

    Attributes:
        mode: `plan` reads only; `deep` has a budget that is a hard total; `bounded` has few steps a turn.
        budget: from here on; a total that was set with plan mode continues when the plan is approved.
        then: the mode that follows when a plan is approved.
        by: the surface.
    """

    mode: WorkMode
    budget: Budget = Budget()
    then: WorkMode = "normal"
    by: str = ""


class ContextInherited(Envelope, frozen=True, tag="context.inherited"):
    """A sub-agent begins with its parent's conversation, so that a server that has read it need not read it again.

    Attributes:
        messages: the parent's conversation in its sent form, up to the call, with results for its calls.
        notes: the notes at the tail of the parent's conversation, by name.
        nonce: the parent's; see `ModelRequest.nonce`. Empty in logs of earlier versions.
    """

    messages: tuple[Message, ...]
    notes: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    nonce: str = ""


class SubagentStarted(Envelope, frozen=True, tag="subagent.started"):
    """A call has started a sub-agent's session.

    Attributes:
        child: id of the session.
        task: the one of the call's tasks; empty if it has one.
        brief: its order.
    """

    call_id: str
    child: str
    brief: Brief
    task: str = ""


class SubagentFinished(Envelope, frozen=True, tag="subagent.finished"):
    """A sub-agent's session ended.

    Attributes:
        call_id: the call that started it.
        child: id of the session.
        result: its report, checked against the disk.
        usage: its tokens, and those of its own children; they count for the parent's budget.
        steps: model calls, likewise.
        task: the one of the call's tasks.
    """

    call_id: str
    child: str
    result: ChildResult
    usage: Usage = Usage()
    steps: int = 0
    task: str = ""


class ResultReported(Envelope, frozen=True, tag="result.reported"):
    """A sub-agent reported; its turn ends with it."""

    result: ChildResult


class Notice(Envelope, frozen=True, tag="notice"):
    """Information for the user: a damaged log line, a recovered crash, a withheld repeat.

    Attributes:
        level: how bad it is.
        code: its subject, for programs.
        text: what happened, and why.
        fix: what to do next, true on every surface.
        terminal: the same for a terminal, as a command, option or variable to type; shown there in place of `fix`.
    """

    level: Literal["info", "warning", "error"]
    code: str
    text: str
    fix: str = ""
    terminal: str = ""


DurableEvent: TypeAlias = (
    SessionCreated
    | SessionForked
    | SessionRenamed
    | SessionMarked
    | ModeChanged
    | ModelChanged
    | OptionsChanged
    | InputReceived
    | InputWithdrawn
    | TurnStarted
    | TurnFinished
    | MessageAdded
    | StepStarted
    | StepFinished
    | ApprovalRequested
    | ApprovalResolved
    | ToolStarted
    | ToolFinished
    | FilesChanged
    | FilesRestored
    | CompactionDone
    | CallsConstrained
    | TasksChanged
    | PlanProposed
    | PlanDecided
    | WorkChanged
    | ContextInherited
    | SubagentStarted
    | SubagentFinished
    | ResultReported
    | Notice
)
EphemeralEvent: TypeAlias = TextDelta | ThinkingDelta | ToolOutput | PrefillProgress | RetryScheduled | SubagentEvent
Event: TypeAlias = DurableEvent | EphemeralEvent

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[DurableEvent] | None = None


def encode(event: Event) -> bytes:
    """Encode the event as one line of JSON, without the line end."""
    return _encoder.encode(event)


def decode(line: bytes) -> DurableEvent:
    """Decode the durable event of one log line.

    Raises:
        msgspec.ValidationError: it is JSON, but no event this version knows.
        msgspec.DecodeError: it is not JSON.
    """
    global _decoder
    if _decoder is None:  # built on first use: a one-shot run never reads a log
        _decoder = decoder(DurableEvent)
    event = _decoder.decode(line)
    if isinstance(event, InputReceived) and b'"job":"' in line:
        event = msgspec.structs.replace(event, origin=InputOrigin.of(decode_json(line, dict[str, Any])["job"]))
    return event
