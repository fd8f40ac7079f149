"""Transcript: a session as a list of entries, the common ground of the exports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from lmagent.core import events as ev
from lmagent.core.lines import grant_in_a_line, proof_line, stop_line
from lmagent.core.messages import Image, Message, Text, Thinking, ToolCall
from lmagent.core.model import Usage
from lmagent.core.titles import title_of
from lmagent.core.view import is_filler, spoken

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Terminal escapes (ECMA-48 control sequences, operating system commands) and all other control characters."""

_ORIGINS = {
    "steer": "User (while it worked)",
    "note": "Note to the model",
    "nudge": "Reminder to the model",
    "recovery": "Added when the session was recovered",
}


class TranscriptEntry(Struct, frozen=True):
    """One message, call or note.

    Attributes:
        kind: of the entry.
        text: its content; of a tool its result.
        label: a heading; of a tool its name.
        arguments: of a tool: as the model wrote them.
        status: of a tool how it ended, "pending" without a result; of a note its level.
        images: media type and base64 data of each image.
        ts: Unix seconds.
        for_model: a note that only the model reads.
    """

    kind: Literal["user", "assistant", "thinking", "tool", "note"]
    text: str = ""
    label: str = ""
    arguments: str = ""
    status: str = "ok"
    images: tuple[tuple[str, str], ...] = ()
    ts: float = 0.0
    for_model: bool = False


class Transcript(Struct):
    session: str = ""
    title: str = ""
    workspace: str = ""
    model: str = ""
    system: str = ""
    created: float = 0.0
    turns: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    entries: list[TranscriptEntry] = []


class _TranscriptWriter:
    """Folds events into a transcript; the result of a call is placed with the call."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self._calls: dict[str, int] = {}
        self._inputs: dict[str, ev.InputReceived] = {}

    def put(self, kind: Literal["user", "assistant", "thinking", "tool", "note"], text: str, **facts: object) -> None:
        self.transcript.entries.append(msgspec.structs.replace(TranscriptEntry(kind, plain(text)), **facts))

    def note(self, label: str, text: str = "", status: str = "ok") -> None:
        self.put("note", text, label=plain(label), status=status)

    def apply(self, event: ev.DurableEvent) -> None:
        match event:
            case ev.MessageAdded():
                self._message(event)
            case ev.ToolStarted() if event.call_id.startswith(ev.OWN_CALL):
                self._calls[event.call_id] = len(self.transcript.entries)
                shown = plain(event.summary)
                self.put("tool", "", label=plain(event.tool), arguments=shown, status="pending", ts=event.ts)
            case ev.ToolFinished():
                self._result(event)
            case ev.StepFinished():
                self._count(event.usage)
                self.transcript.model = plain(event.model) or self.transcript.model
            case ev.InputReceived():
                self._inputs[event.id] = event
            case ev.InputWithdrawn():
                self._inputs.pop(event.input, None)
            case ev.TurnFinished():
                self._end(event)
            case ev.ApprovalResolved():
                self._approval(event)
            case ev.CompactionDone():
                sizes = f"{event.before_tokens:,} → {event.after_tokens:,} tokens"
                self.note(f"The conversation was shortened: {sizes}", event.summary)
                if event.usage is not None:
                    self._count(event.usage)
            case ev.Notice():
                self.note(event.text, event.fix, event.level)
            case _:
                self._describe(event)

    def _describe(self, event: ev.DurableEvent) -> None:
        transcript = self.transcript
        match event:
            case ev.SessionCreated():
                transcript.session, transcript.created = event.session, event.ts
                transcript.workspace, transcript.system = plain(event.workspace), plain(event.system)
                transcript.model = plain(event.model)
                if event.imported_from:
                    self.note(f"Imported from {event.imported_from}")
            case ev.SessionForked():
                transcript.session = event.session
                self._inputs.clear()
                self.note(f"Forked from {event.parent}")
            case ev.SessionRenamed():
                transcript.title = title_of(event.title, None)
            case ev.ModeChanged():
                self.note(f"Permission mode: {event.mode}")
            case ev.ModelChanged():
                self.note(f"Model: {event.model}")
            case _:
                pass

    def _message(self, event: ev.MessageAdded) -> None:
        message = spoken(event)
        if event.input is not None:
            self._inputs.pop(event.input, None)
        if is_filler(event):
            return
        if message.role == "assistant":
            self._assistant(message, event.ts)
        elif event.origin in ("input", "steer"):
            self._user(message, _ORIGINS.get(event.origin, ""), event.ts)
        else:
            self.put("note", message.text, label=_ORIGINS.get(event.origin, event.origin), for_model=True)

    def _user(self, message: Message, label: str, ts: float) -> None:
        images = tuple((part.media_type, part.data) for part in message.parts if isinstance(part, Image))
        self.put("user", message.text, label=label, images=images, ts=ts)
        self.transcript.title = self.transcript.title or title_of(message.text)

    def _assistant(self, message: Message, ts: float) -> None:
        for part in message.parts:
            match part:
                case Thinking(text=text) if text.strip():
                    self.put("thinking", text, ts=ts)
                case Text(text=text) if text.strip():
                    self.put("assistant", text, ts=ts)
                case ToolCall(id=call, name=name, arguments=arguments):
                    self._calls[call] = len(self.transcript.entries)
                    self.put("tool", "", label=plain(name), arguments=plain(arguments), status="pending", ts=ts)
                case _:
                    pass

    def _result(self, event: ev.ToolFinished) -> None:
        position = self._calls.get(event.call_id)
        if position is None:
            self.put("tool", event.content, label=plain(event.tool), status=event.status, ts=event.ts)
            return
        entry = self.transcript.entries[position]
        diff = event.data.get("diff")
        text = f"{event.content}\n\n{diff}" if isinstance(diff, str) and diff else event.content
        self.transcript.entries[position] = msgspec.structs.replace(entry, text=plain(text), status=event.status)

    def _approval(self, event: ev.ApprovalResolved) -> None:
        answer = "approved" if event.approved else "denied"
        rule = f" (always: {grant_in_a_line(event.grant)})" if event.grant else ""
        self.note(f"{answer.capitalize()} by {event.by or 'the user'}{rule}", event.feedback)

    def _count(self, usage: Usage) -> None:
        transcript = self.transcript
        transcript.steps += 1
        transcript.prompt_tokens += usage.prompt_tokens
        transcript.completion_tokens += usage.completion_tokens

    def _end(self, event: ev.TurnFinished) -> None:
        self.transcript.turns += 1
        if proof := proof_line(event):
            self.note(proof)
        if event.outcome == "interrupted":
            self.note(stop_line(event), event.fix)
        elif event.outcome != "done":
            reason = f": {event.reason}" if event.reason else ""
            status = "error" if event.outcome == "error" else "ok"
            self.note(f"The turn ended: {event.outcome}{reason}", event.fix, status)

    def finish(self) -> Transcript:
        """Return the transcript, with messages that still wait for the model at its end."""
        for event in self._inputs.values():
            self._user(event.message, "User (not delivered yet)", event.ts)
        return self.transcript


def transcript_of(events: Iterable[ev.DurableEvent]) -> Transcript:
    writer = _TranscriptWriter()
    for event in events:
        writer.apply(event)
    return writer.finish()


def plain(text: str) -> str:
    """Return the text without terminal escapes and control characters; line ends and tabs stay."""
    return _CONTROL.sub("", text.replace("\r\n", "\n"))
