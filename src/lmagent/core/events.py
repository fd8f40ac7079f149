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

from typing import Literal, TypeAlias

import msgspec

from lmagent.core.decoding import decoder
from lmagent.core.live import VERSION as VERSION
from lmagent.core.live import Envelope, EphemeralEvent
from lmagent.core.live import PrefillProgress as PrefillProgress
from lmagent.core.live import RetryScheduled as RetryScheduled
from lmagent.core.live import SubagentEvent as SubagentEvent
from lmagent.core.live import TextDelta as TextDelta
from lmagent.core.live import ThinkingDelta as ThinkingDelta
from lmagent.core.live import ToolOutput as ToolOutput
from lmagent.core.live import innermost as innermost
from lmagent.core.messages import Message
from lmagent.core.model import FinishReason, SessionOptions, ToolSpec, Usage
from lmagent.core.toolevents import ApprovalRequested as ApprovalRequested
from lmagent.core.toolevents import ApprovalResolved as ApprovalResolved
from lmagent.core.toolevents import FilesChanged as FilesChanged
from lmagent.core.toolevents import FilesRestored as FilesRestored
from lmagent.core.toolevents import ToolFinished as ToolFinished
from lmagent.core.toolevents import ToolStarted as ToolStarted
from lmagent.core.toolevents import grant_in_a_line as grant_in_a_line
from lmagent.core.work import Parent, Proof, Way
from lmagent.core.workevents import ContextInherited as ContextInherited
from lmagent.core.workevents import PlanDecided as PlanDecided
from lmagent.core.workevents import PlanProposed as PlanProposed
from lmagent.core.workevents import ResultReported as ResultReported
from lmagent.core.workevents import SubagentFinished as SubagentFinished
from lmagent.core.workevents import SubagentStarted as SubagentStarted
from lmagent.core.workevents import TasksChanged as TasksChanged
from lmagent.core.workevents import WorkChanged as WorkChanged

Outcome = Literal["done", "blocked", "waiting", "question", "limit", "interrupted", "error"]
Delivery = Literal["submit", "steer", "queue"]
Origin = Literal["input", "steer", "note", "nudge", "model", "recovery"]
PermissionMode = Literal["auto", "normal", "manual"]


# --- the session -------------------------------------------------------------------------------------------


class SessionCreated(Envelope, frozen=True, tag="session.created"):
    """The first event: everything that stays fixed, so that a resumed session sends the same bytes.

    Attributes:
        session: the session's id.
        workspace: absolute path of the workspace.
        agent: name of the agent.
        system: the system text.
        tools: the tool block.
        model: the model's name; empty lets the server choose.
        mode: the permission mode.
        app_version: version of lmagent that wrote it.
        imported_from: file that the session was imported from.
        parent: the call and session whose sub-agent it is; None for a user's session.
        options: the session's own options, which override the settings.
        replaces: id of the session with the earlier conversation, its own if deleted; `seq` continues from its last
            event.
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
        options: the new options.
        by: the surface.
    """

    options: SessionOptions
    by: str = ""


# --- input ----------------------------------------------------------------------------------------------------


class InputReceived(Envelope, frozen=True, tag="input.received"):
    """An input was accepted. It is on disk before anything acts on it; `id` names it.

    Attributes:
        message: its content.
        delivery: when the model sees it.
        by: the surface, or the schedule that it came from.
        job: id of the job that submitted it; a job submits once. Empty for the user.
        way: the session's mode of work from the turn that answers it; None leaves it.
    """

    message: Message
    delivery: Delivery
    by: str = ""
    job: str = ""
    way: Way | None = None


class InputWithdrawn(Envelope, frozen=True, tag="input.withdrawn"):
    """A queued or steering input was taken back before it reached the model."""

    input: str


# --- turns and steps -------------------------------------------------------------------------------------------


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
        message: the message.
        origin: its author.
        input: id of the `input.received` that it delivers.
        truncated: ids of calls that the token limit cut off; they are never run.
        apart: a user message after tool results is a message of its own; logs of earlier versions joined it with the
            last result.
    """

    message: Message
    origin: Origin
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


# --- context ----------------------------------------------------------------------------------------------------


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


def advice_line(event: TurnFinished | Notice) -> str:
    """Return the line by which a terminal says what to do next, with the break before it; empty for nothing."""
    return f"\n  → {event.terminal or event.fix}" if event.terminal or event.fix else ""


def stop_line(event: TurnFinished) -> str:
    """Return the notice of a stopped turn: the user knows that they stopped it, so only another reason is included."""
    return "Stopped" if event.reason in ("", BY_USER) else f"Stopped: {event.reason}"


def ending_line(event: TurnFinished) -> str:
    """Return the terminal's line about how a turn ended; empty if it is simply done."""
    if event.cause == "permission" and event.outcome == "done":
        return "denied: a call needed an approval, and no user was there to give it" + advice_line(event)
    if event.outcome == "done":
        return ""
    if event.outcome == "interrupted":
        return stop_line(event) + advice_line(event)
    if event.cause != "permission" and event.answer.startswith("BLOCKED:") and event.outcome == "blocked":
        return ""  # the answer, above this line, says so itself
    words = event.reason if event.reason.startswith(event.outcome) else f"{event.outcome}: {event.reason}"
    if not event.reason or event.reason in event.answer:
        words = event.outcome
    if event.cause == "permission":
        words += "; a call was denied because no user was there to approve it"
    return words + advice_line(event)


def retry_line(event: RetryScheduled) -> str:
    """Return why a call is made again, and when."""
    wait = f" in {event.delay:.0f} s" if event.delay >= 1 else ""
    return f"{event.reason}; trying again{wait}"


def failure_line(event: ToolFinished) -> str:
    """Return why a call did not work, for a user: a denial in a few words, else the result."""
    if event.status == "denied" and isinstance(why := event.data.get("why"), str):
        return f"denied: {why}" if why != "by the user" else "denied"
    return event.content


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
    return _decoder.decode(line)
