"""Rebuilding a conversation from plain messages: turns, steps, and a result for every call."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from lmagent.core.events import (
    Author,
    DurableEvent,
    InputReceived,
    MessageAdded,
    Outcome,
    SessionCreated,
    StepFinished,
    StepStarted,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from lmagent.core.ids import new_id
from lmagent.core.messages import Message, Part, Text, ToolCall, ToolStatus, user
from lmagent.core.model import Usage

RESULT_CAP = 8000
"""Characters of an imported tool result: about the 2,000 tokens to which results are capped at intake."""

NO_BEGINNING = "[The beginning of this conversation is missing: it was not in the imported file.]"
NO_RESULT = "Interrupted: the imported session holds no result of this call. It may have acted, fully or in part."


class ImportedMessage(Struct, frozen=True):
    """One message of an imported conversation.

    Attributes:
        role: user, assistant or tool.
        parts: its content.
        calls: the calls of an assistant; ids may be empty or used before.
        call_id: the call that a tool message answers, if known.
        name: the tool that it comes from, if known.
        at: Unix seconds; 0 for unknown.
        usage: token counts of the reply, if known.
    """

    role: str
    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    at: float = 0.0
    usage: Usage | None = None


def rebuild(
    opening: SessionCreated, said: list[ImportedMessage], left: list[str], started: float
) -> tuple[tuple[DurableEvent, ...], tuple[str, ...]]:
    """Return the events of a session, and a description of the imported parts.

    Args:
        opening: the first event.
        said: the messages, in order.
        left: gets a line for each kind of thing that was left out.
        started: Unix seconds of the beginning; later events are never earlier than it.
    """
    builder = _Builder(opening, started)
    for item in said:
        builder.add(item)
    builder.end_turn()
    left.extend(builder.remarks())
    return tuple(builder.events), builder.summary()


def _joined(before: ImportedMessage, item: ImportedMessage) -> ImportedMessage:
    """Join two replies with nothing between them: chat templates insist on alternation."""
    between = (Text("\n\n"),) if before.parts and item.parts else ()
    usage = item.usage or before.usage
    if item.usage and before.usage:
        prompt = before.usage.prompt_tokens + item.usage.prompt_tokens
        completion = before.usage.completion_tokens + item.usage.completion_tokens
        usage = Usage(prompt, completion, estimated=True)
    parts = (*before.parts, *between, *item.parts)
    return ImportedMessage("assistant", parts, item.calls, at=item.at or before.at, usage=usage)


class _Builder:
    def __init__(self, opening: SessionCreated, started: float) -> None:
        self.events: list[DurableEvent] = []
        self._now = started
        self._turn = 0
        self._step = 0
        self._in_turn = False
        self._open: dict[str, ToolCall] = {}
        self._used: set[str] = set()
        self._original: dict[str, str] = {}
        self._answer: str | None = None
        self._held: ImportedMessage | None = None
        """A reply without calls: if another one follows, they become one."""
        self._counts = dict.fromkeys(
            ("users", "replies", "results", "orphans", "unanswered", "shortened", "measured"), 0
        )
        self._put(opening)

    def _put(self, event: DurableEvent) -> None:
        turn = self._turn if self._in_turn else 0
        self.events.append(msgspec.structs.replace(event, id=event.id or new_id(), ts=self._now, turn=turn))

    def add(self, item: ImportedMessage) -> None:
        self._now = max(self._now, item.at)
        if item.role == "tool":
            self._result(item)
        elif item.role == "user":
            self.end_turn()
            self._begin_turn(Message("user", item.parts), "input")
            self._counts["users"] += 1
        else:
            self._held = item if self._held is None else _joined(self._held, item)
            self._counts["replies"] += 1
            if self._held.calls:
                self._flush()

    def _flush(self) -> None:
        if self._held is not None:
            item, self._held = self._held, None
            if not self._in_turn:
                self._begin_turn(user(NO_BEGINNING), "recovery")
            self._reply(item)

    def _begin_turn(self, message: Message, origin: Author) -> None:
        received = InputReceived(id=new_id(), message=message, delivery="submit", by="import")
        if origin == "input":
            self._put(received)
        self._turn, self._step, self._in_turn, self._answer = self._turn + 1, 0, True, None
        self._put(TurnStarted())
        self._put(MessageAdded(message=message, origin=origin, input=received.id if origin == "input" else None))

    def _reply(self, item: ImportedMessage) -> None:
        self._close_calls()
        self._step += 1
        calls = [self._with_id(call) for call in item.calls]
        message = Message("assistant", (*item.parts, *calls))
        self._put(StepStarted(step=self._step, model="", prompt_bytes=0, prompt_tokens=0))
        self._put(MessageAdded(message=message, origin="model"))
        usage = item.usage or Usage(estimated=True)
        reason = "tool_calls" if calls else "stop"
        self._put(StepFinished(step=self._step, usage=usage, finish_reason=reason, first_token_s=0.0, total_s=0.0))
        self._open = {call.id: call for call in calls}
        self._answer = None if calls else message.text
        self._counts["measured"] += item.usage is not None

    def _with_id(self, call: ToolCall) -> ToolCall:
        """Return the call with an id that is unique within the session; its result is looked up by the original one."""
        own = call.id
        if not own or own in self._used:
            own = f"call_{new_id()}"
        self._used.add(own)
        self._original[own] = call.id
        return ToolCall(own, call.name, call.arguments)

    def _result(self, item: ImportedMessage) -> None:
        call = self._answered_by(item)
        if call is None:
            self._counts["orphans"] += 1
            return
        content = "".join(part.text for part in item.parts if isinstance(part, Text))
        size = len(content.encode("utf-8", "replace"))
        if len(content) > RESULT_CAP:
            self._counts["shortened"] += 1
            half = RESULT_CAP // 2
            cut = len(content) - 2 * half
            content = f"{content[:half]}\n[… {cut} characters left out at import …]\n{content[-half:]}"
        self._finish(call, _status(content), content, size)
        self._counts["results"] += 1

    def _answered_by(self, item: ImportedMessage) -> ToolCall | None:
        if item.call_id:
            fitting = (call for call in self._open.values() if self._original[call.id] == item.call_id)
        else:
            fitting = (call for call in self._open.values() if item.name in ("", call.name))
        return next(fitting, None)

    def _finish(self, call: ToolCall, status: ToolStatus, content: str, size: int) -> None:
        del self._open[call.id]
        self._put(ToolFinished(call_id=call.id, tool=call.name, status=status, content=content, size=size))

    def _close_calls(self) -> None:
        for call in list(self._open.values()):
            self._counts["unanswered"] += 1
            self._finish(call, "interrupted", NO_RESULT, len(NO_RESULT))

    def end_turn(self) -> None:
        self._flush()
        if not self._in_turn:
            return
        self._close_calls()
        outcome: Outcome = "interrupted" if self._answer is None else "done"
        self._put(TurnFinished(outcome=outcome, cause="import", answer=self._answer or "", steps=self._step))
        self._in_turn = False

    def summary(self) -> tuple[str, ...]:
        counts = self._counts
        found = (
            (counts["users"], "user message", "user messages"),
            (counts["replies"], "reply", "replies"),
            (counts["results"], "tool result", "tool results"),
            (counts["measured"], "token count", "token counts"),
        )
        return tuple(f"{count} {one if count == 1 else many}" for count, one, many in found if count)

    def remarks(self) -> list[str]:
        counts = self._counts
        found = (
            (counts["orphans"], "tool result(s) that belong to no call"),
            (counts["shortened"], f"the middle of tool result(s) longer than {RESULT_CAP} characters"),
            (counts["unanswered"], "call(s) without a result: reported to the model as interrupted"),
        )
        return [f"{count} {what}" for count, what in found if count]


def _status(content: str) -> ToolStatus:
    """Both systems answer a failed call with a JSON object that says so."""
    head = content[:200].replace(" ", "")
    return "error" if head.startswith(('{"success":false', '{"error":')) else "ok"
