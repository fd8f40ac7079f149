"""A session for reading: Markdown, one HTML file without other files, or its events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import Literal

import msgspec
from msgspec import Struct

from lmagent.core import events as ev
from lmagent.core.lines import grant_in_a_line, proof_line, stop_line
from lmagent.core.messages import Image, Message, Text, Thinking, ToolCall
from lmagent.core.plurals import plural
from lmagent.core.view import is_filler, spoken
from lmagent.store.tally import Tally

_TICKS = re.compile(r"`+")
_SAFE_IMAGE = re.compile(r"image/(png|jpeg|gif|webp)")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Terminal escapes (ECMA-48 control sequences, operating system commands) and all other control characters."""

_ORIGINS = {
    "steer": "User (while it worked)",
    "note": "Note to the model",
    "nudge": "Reminder to the model",
    "recovery": "Added when the session was recovered",
}


Kind = Literal["user", "assistant", "thinking", "tool", "note"]


class TranscriptEntry(Struct, frozen=True):
    """One message, call or note.

    Attributes:
        text: its content; of a tool its result.
        label: a heading; of a tool its name.
        status: of a tool how it ended, "pending" without a result; of a note its level.
        ts: Unix seconds.
        for_model: a note that only the model reads.
        picture: the path and the SHA-256 of a picture that a tool made.
        summary: of a tool what it was to do, in a line.
    """

    kind: Kind
    text: str = ""
    label: str = ""
    arguments: str = ""
    status: str = "ok"
    images: tuple[tuple[str, str], ...] = ()
    ts: float = 0.0
    for_model: bool = False
    picture: tuple[str, str] = ("", "")
    summary: str = ""


ReadPicture = Callable[[str, str], Image | None]
"""Returns a picture of the workspace by its path, if it still has the SHA-256."""


class Transcript(Struct):
    tally: Tally
    workspace: str = ""
    system: str = ""
    entries: list[TranscriptEntry] = []

    @property
    def title(self) -> str:
        return self.tally.title or self.tally.id


class _TranscriptWriter:
    """Folds events into a transcript; the result of a call is placed with the call."""

    def __init__(self) -> None:
        self.transcript = Transcript(Tally(""))
        self._calls: dict[str, int] = {}
        self._inputs: dict[str, ev.InputReceived] = {}

    def put(self, kind: Kind, text: str, **facts: object) -> None:
        self.transcript.entries.append(msgspec.structs.replace(TranscriptEntry(kind, plain(text)), **facts))

    def note(self, label: str, text: str = "", status: str = "ok") -> None:
        self.put("note", text, label=plain(label), status=status)

    def apply(self, event: ev.DurableEvent) -> None:
        self.transcript.tally.apply(event)
        match event:
            case ev.MessageAdded():
                self._message(event)
            case ev.ToolStarted() if event.call_id.startswith(ev.OWN_CALL):
                self._call(event.call_id, event.tool, event.summary, event.ts)
            case ev.ToolStarted():
                self._summarize(event.call_id, event.summary)
            case ev.ToolFinished():
                self._result(event)
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
            case ev.Notice():
                self.note(event.text, event.fix, event.level)
            case _:
                self._describe(event)

    def _describe(self, event: ev.DurableEvent) -> None:
        transcript = self.transcript
        match event:
            case ev.SessionCreated():
                transcript.tally.id = event.session
                transcript.workspace, transcript.system = plain(event.workspace), plain(event.system)
                if event.imported_from:
                    self.note(f"Imported from {event.imported_from}")
            case ev.SessionForked():
                transcript.tally.id = event.session
                self._inputs.clear()
                self.note(f"Forked from {event.parent}")
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

    def _assistant(self, message: Message, ts: float) -> None:
        for part in message.parts:
            match part:
                case Thinking(text=text) if text.strip():
                    self.put("thinking", text, ts=ts)
                case Text(text=text) if text.strip():
                    self.put("assistant", text, ts=ts)
                case ToolCall(id=call, name=name, arguments=arguments):
                    self._call(call, name, arguments, ts)
                case _:
                    pass

    def _call(self, call: str, tool: str, arguments: str, ts: float) -> None:
        self._calls[call] = len(self.transcript.entries)
        self.put("tool", "", label=plain(tool), arguments=plain(arguments), status="pending", ts=ts)

    def _summarize(self, call: str, summary: object) -> None:
        position = self._calls.get(call)
        if position is not None and isinstance(summary, str) and summary:
            entry = self.transcript.entries[position]
            self.transcript.entries[position] = msgspec.structs.replace(entry, summary=plain(summary))

    def _result(self, event: ev.ToolFinished) -> None:
        self._summarize(event.call_id, event.data.get("summary"))
        position = self._calls.get(event.call_id)
        if position is None:
            self.put("tool", event.content, label=plain(event.tool), status=event.status, ts=event.ts)
            return
        entry = self.transcript.entries[position]
        diff = event.data.get("diff")
        text = f"{event.content}\n\n{diff}" if isinstance(diff, str) and diff else event.content
        made = event.data.get("picture"), event.data.get("sha256")
        picture = (str(made[0]), str(made[1])) if all(made) else ("", "")
        self.transcript.entries[position] = msgspec.structs.replace(
            entry, text=plain(text), status=event.status, picture=picture
        )

    def _approval(self, event: ev.ApprovalResolved) -> None:
        answer = "approved" if event.approved else "denied"
        rule = f" (always: {grant_in_a_line(event.grant)})" if event.grant else ""
        self.note(f"{answer.capitalize()} by {event.by or 'the user'}{rule}", event.feedback)

    def _end(self, event: ev.TurnFinished) -> None:
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


# --- the three forms ---------------------------------------------------------------------------------------------


def to_jsonl(events: Iterable[ev.DurableEvent]) -> str:
    return "".join(f"{ev.encode(event).decode()}\n" for event in events)


def to_talk(events: Iterable[ev.DurableEvent]) -> str:
    """Format the session as Markdown, without the notes that only the model reads."""
    return to_markdown(events, for_model=False)


def to_markdown(events: Iterable[ev.DurableEvent], *, for_model: bool = True) -> str:
    """Format the session as Markdown. Control characters are left out, since this is also shown in terminals."""
    transcript = transcript_of(events)
    blocks = [f"# {transcript.title}", "  \n".join(_facts(transcript))]
    blocks += [_markdown(entry) for entry in transcript.entries if for_model or not entry.for_model]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _markdown(entry: TranscriptEntry) -> str:
    match entry.kind:
        case "user":
            images = f"\n\n({len(entry.images)} image(s))" if entry.images else ""
            return f"## {entry.label or 'User'}\n\n{entry.text}{images}"
        case "assistant":
            return f"## Assistant\n\n{entry.text}"
        case "thinking":
            return _quoted(f"*Thinking*\n\n{entry.text}")
        case "tool":
            call = f"**{entry.label}** {_code(entry.arguments)}".rstrip()
            state = "" if entry.status == "ok" else f" — {entry.status}"
            return f"{call}{state}\n\n{_fenced(entry.text)}" if entry.text else f"{call}{state}"
        case "note":
            return _quoted(f"*{entry.label}*\n\n{entry.text}" if entry.text else f"*{entry.label}*")


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _fenced(text: str) -> str:
    """Return a code block; its fence is longer than any run of backticks in the text."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _code(text: str) -> str:
    if not text:
        return ""
    flat = " ".join(text.split())
    ticks = "`" * (_longest_run(flat) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{ticks}{pad}{flat}{pad}{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)


def to_html(events: Iterable[ev.DurableEvent], read_picture: ReadPicture = lambda _path, _sha256: None) -> str:
    """Format the session as one HTML page: no scripts, nothing from outside, everything escaped.

    Pictures that tools made are part of it, if they are still there as they were.
    """
    transcript = transcript_of(events)
    system = _details("System text", transcript.system) if transcript.system else ""
    page = Template(files("lmagent.store").joinpath("export.html").read_text(encoding="utf-8"))
    return page.substitute(
        title=escape(transcript.title),
        facts="<br>".join(map(escape, _facts(transcript))),
        body="\n".join((system, *(_html(entry) + _figure(entry, read_picture) for entry in transcript.entries))),
    )


def _html(entry: TranscriptEntry) -> str:
    text = f'<p class="text">{escape(entry.text)}</p>' if entry.text else ""
    match entry.kind:
        case "user":
            images = "".join(map(_image, entry.images))
            head = f'<p class="dim">{escape(entry.label or "User")}{_time(entry.ts)}</p>'
            return f'<section class="user">{head}{text}{images}</section>'
        case "assistant":
            return f'<section><p class="dim">Assistant{_time(entry.ts)}</p>{text}</section>'
        case "thinking":
            return _details("Thinking", entry.text)
        case "tool":
            mark = "" if entry.status == "ok" else f" — {entry.status}"
            body = f"<pre>{escape(entry.arguments)}</pre>" if entry.arguments else ""
            body += f"<pre>{escape(entry.text)}</pre>" if entry.text else ""
            style = "" if entry.status == "ok" else ' class="bad"'
            return f"<details><summary{style}>{escape((entry.summary or entry.label) + mark)}</summary>{body}</details>"
        case "note":
            style = "dim bad" if entry.status == "error" else "dim"
            if len(entry.text) > 400:
                return _details(entry.label, entry.text)
            return f'<section class="{style}">{escape(entry.label)}{text}</section>'


def _details(label: str, text: str) -> str:
    return f"<details><summary>{escape(label)}</summary><pre>{escape(text)}</pre></details>"


def _figure(entry: TranscriptEntry, read_picture: ReadPicture) -> str:
    path, sha256 = entry.picture
    if not path:
        return ""
    picture = read_picture(path, sha256)
    if picture is None:
        return f'<p class="dim">({escape(path)} was changed or removed since)</p>'
    return f"<figure>{_image((picture.media_type, picture.data), path)}<figcaption>{escape(path)}</figcaption></figure>"


def _image(image: tuple[str, str], name: str = "attached image") -> str:
    media_type, data = image
    if not _SAFE_IMAGE.fullmatch(media_type) or not _BASE64.fullmatch(data):
        return f'<p class="dim">(an image of type {escape(media_type)})</p>'
    return f'<img alt="{escape(name)}" src="data:{media_type};base64,{"".join(data.split())}">'


def _facts(transcript: Transcript) -> list[str]:
    tally = transcript.tally
    facts = [f"Session {tally.id}{_time(tally.created)}"]
    if tally.model:
        facts.append(f"Model {plain(tally.model)}")
    if transcript.workspace:
        facts.append(f"Workspace {transcript.workspace}")
    tokens = f"{tally.prompt_tokens:,} prompt and {tally.completion_tokens:,} reply tokens"
    facts.append(f"{plural(tally.turns, 'turn')}, {plural(tally.steps, 'model call')}, {tokens}")
    return facts


def _time(ts: float) -> str:
    try:
        return f" · {datetime.fromtimestamp(ts, UTC):%Y-%m-%d %H:%M} UTC" if ts > 0 else ""
    except (ValueError, OSError, OverflowError):
        return ""
