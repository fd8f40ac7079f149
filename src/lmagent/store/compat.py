"""Sessions of the systems that lmagent replaces, as events.

LMAgent keeps `.lmagent/sessions/<id>.json`: {"metadata": {id, task, created, updated, …}, "messages": [OpenAI-shaped]}.
agent_computer keeps `sessions/<id>.jsonl`, a line {role, content, timestamp, tool_call_id, tool_name} each; the content
of an assistant line is its text or the whole OpenAI-shaped message. `meta` lines hold token counts, which are left out:
they say nothing about our prompts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core import events as ev
from lmagent.core.errors import StoreError
from lmagent.core.ids import is_session_id, new_id
from lmagent.core.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolStatus, user
from lmagent.core.plurals import plural
from lmagent.store.files import store_error

RESULT_CAP = 8000
"""Characters of an imported tool result: about the 2,000 tokens to which results are capped at intake."""

NO_BEGINNING = "[The beginning of this conversation is missing: it was not in the imported file.]"
ORPHANS = "tool result(s) that belong to no call"
SHORTENED = f"the middle of tool result(s) longer than {RESULT_CAP} characters"
UNANSWERED = "call(s) without a result: reported to the model as interrupted"
NO_RESULT = "Interrupted: the imported session holds no result of this call. It may have acted, fully or in part."

_NOT_TAKEN = {"system": "system or injected message", "developer": "system or injected message", "meta": "token count"}
_NOUNS = ("user message", "user messages"), ("reply", "replies"), ("tool result", "tool results")
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,([A-Za-z0-9+/=]+)")


class ImportedSession(Struct, frozen=True):
    """The content of an imported file: events for a new log, and lines about the parts that were taken and left out."""

    session: str
    events: tuple[ev.DurableEvent, ...]
    taken: tuple[str, ...]
    left: tuple[str, ...]


class _Said(Struct, frozen=True):
    """One message of the file; ids of calls may be empty or used before, `name` is the tool of a result."""

    role: str
    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    at: float = 0.0


def read_session(path: Path, opening: ev.SessionCreated, now: float) -> ImportedSession:
    """Read a session of LMAgent (`.json`) or agent_computer (`.jsonl`).

    The new session has the system text, tools, workspace and mode of `opening`, and its id if the file's own cannot be
    used. Messages without a time get `now`. Raises StoreError if the file cannot be read, or holds no conversation.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise store_error(error, "the session could not be read", path) from error
    left: list[str] = []
    metadata, raw = _parse(text, left)
    names = (metadata.get("id"), path.stem)
    session = next((name for name in names if isinstance(name, str) and is_session_id(name)), opening.session)
    dropped: Counter[str] = Counter()
    said = _messages(raw, dropped)
    left.extend(plural(count, what) for what, count in dropped.items())
    if not any(item.role in ("user", "assistant") for item in said):
        raise StoreError(
            f"there is no conversation in {path}",
            fix="give a session file of LMAgent (.json) or of agent_computer (.jsonl)",
        )
    if path.with_suffix(".tasks.json").exists():
        left.append(f"the task list {path.stem}.tasks.json")
    first_at = next((item.at for item in said if item.at), 0.0)
    started = _time(metadata.get("created")) or first_at or now
    log = _Rebuilt(replace(opening, session=session, imported_from=str(path)), started)
    for item in said:
        log.add(item)
    log.end_turn()
    taken = tuple(plural(log.counts[one], one, many) for one, many in _NOUNS if log.counts[one])
    left += [f"{log.counts[what]} {what}" for what in (ORPHANS, SHORTENED, UNANSWERED) if log.counts[what]]
    return ImportedSession(session, tuple(log.events), taken, tuple(left))


# --- the two file formats ---------------------------------------------------------------------------------------


def _parse(text: str, left: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return metadata and raw messages; other entries are noted in `left`."""
    whole = _json(text)
    if isinstance(whole, dict) and "messages" in whole:
        document = cast("dict[str, Any]", whole)
        return _object(document.get("metadata")), _objects(document["messages"], left)
    if isinstance(whole, list):
        return {}, _objects(whole, left)
    found: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = _json(line)
        if isinstance(entry, dict) and "role" in entry:
            found.append(_unwrapped(cast("dict[str, Any]", entry)))
        elif entry is None and line.strip():
            left.append(f"line {number}: damaged, not JSON ({plural(len(line), 'character')})")
        elif line.strip():
            left.append(f"line {number}: not a message")
    return {}, found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _objects(value: Any, left: list[str]) -> list[dict[str, Any]]:
    entries: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    found = [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict) and "role" in entry]
    if len(found) < len(entries):
        left.append(f"{len(entries) - len(found)} entries that are no messages")
    return found


def _unwrapped(entry: dict[str, Any]) -> dict[str, Any]:
    """agent_computer puts a whole OpenAI message in the place of its text when there are tool calls."""
    content = _object(entry.get("content"))
    if entry["role"] == "assistant" and content:
        return {**content, "role": "assistant", "timestamp": entry.get("timestamp")}
    return entry


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


# --- messages -----------------------------------------------------------------------------------------------------


def _messages(raw: list[dict[str, Any]], dropped: Counter[str]) -> list[_Said]:
    said: list[_Said] = []
    for entry in raw:
        role, at = entry["role"], _time(entry.get("timestamp"))
        if role not in ("user", "assistant", "tool"):
            dropped[_NOT_TAKEN.get(str(role), f"{role!r} message")] += 1
            continue
        parts = _parts(entry.get("content"), dropped)
        if role == "tool":
            name = _text(entry, "tool_name") or _text(entry, "name")
            said.append(_Said("tool", parts, (), _text(entry, "tool_call_id"), name, at))
            continue
        calls = tuple(_calls(entry)) if role == "assistant" else ()
        thought = _text(entry, "reasoning_content") or _text(entry, "reasoning")
        if role == "assistant" and thought.strip():
            parts = (Thinking(thought), *parts)
        if parts or calls:
            said.append(_Said(role, parts, calls, at=at))
        else:
            dropped[f"empty {role} message"] += 1
    return said


def _parts(content: Any, dropped: Counter[str]) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),) if content.strip() else ()
    if isinstance(content, list):
        parts = (_part(item, dropped) for item in cast("list[Any]", content))
        return tuple(part for part in parts if part is not None)
    return () if content is None else (Text(json.dumps(content, ensure_ascii=False)),)


def _part(item: Any, dropped: Counter[str]) -> Part | None:
    known = _object(item)
    if isinstance(item, str) or known.get("type") == "text":
        text = item if isinstance(item, str) else str(known.get("text") or "")
        return Text(text) if text.strip() else None
    url = known.get("image_url")
    address = _object(url).get("url", url)
    match = _DATA_URL.fullmatch(address) if isinstance(address, str) else None
    if match is None:
        dropped["message part that is neither text nor an embedded image"] += 1
        return None
    return Image(match.group(1), match.group(2))


def _calls(entry: dict[str, Any]) -> list[ToolCall]:
    calls: list[ToolCall] = []
    listed = entry.get("tool_calls")
    for item in cast("list[Any]", listed) if isinstance(listed, list) else []:
        function = _object(_object(item).get("function"))
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and name:
            written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
            calls.append(ToolCall(_text(_object(item), "id"), name, written))
    return calls


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _time(value: Any) -> float:
    """Convert a number or an ISO time (naive ones are local) to Unix seconds; 0 for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11:
        return float(value)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OSError, OverflowError):
            return 0.0
    return 0.0


# --- events -------------------------------------------------------------------------------------------------------


class _Rebuilt:
    """A conversation with turns and a result for every call; no event is earlier than the one before it.

    It has no steps: those model calls were made elsewhere.
    """

    def __init__(self, opening: ev.SessionCreated, started: float) -> None:
        self.events: list[ev.DurableEvent] = []
        self.counts: Counter[str] = Counter()
        self._now = started
        self._turn, self._in_turn = 0, False
        self._open: dict[str, tuple[ToolCall, str]] = {}  # with the id of the call in the file
        self._used: set[str] = set()
        self._held: _Said | None = None  # a reply without calls: if another one follows, they become one
        self._put(opening)

    def _put(self, event: ev.DurableEvent) -> None:
        turn = self._turn if self._in_turn else 0
        self.events.append(replace(event, id=event.id or new_id(), ts=self._now, turn=turn))

    def add(self, item: _Said) -> None:
        self._now = max(self._now, item.at)
        if item.role == "tool":
            self._result(item)
        elif item.role == "user":
            self.end_turn()
            self._begin_turn(Message("user", item.parts), "input")
            self.counts["user message"] += 1
        else:
            if self._held is not None:  # chat templates insist on alternation
                between = (Text("\n\n"),) if self._held.parts and item.parts else ()
                item = replace(item, parts=(*self._held.parts, *between, *item.parts))
            self._held = item
            self.counts["reply"] += 1
            if item.calls:
                self._flush()

    def _flush(self) -> str | None:
        """Add the held reply; return its text if it calls nothing."""
        if self._held is None:
            return None
        item, self._held = self._held, None
        if not self._in_turn:
            self._begin_turn(user(NO_BEGINNING), "recovery")
        self._close_calls()
        calls = [self._unique(call) for call in item.calls]
        message = Message("assistant", (*item.parts, *calls))
        self._put(ev.MessageAdded(message=message, origin="model"))
        self._open = {call.id: (call, given.id) for call, given in zip(calls, item.calls, strict=True)}
        return None if calls else message.text

    def _unique(self, call: ToolCall) -> ToolCall:
        id = f"call_{new_id()}" if call.id in self._used or not call.id else call.id
        self._used.add(id)
        return replace(call, id=id)

    def _begin_turn(self, message: Message, origin: ev.Author) -> None:
        self._turn, self._in_turn = self._turn + 1, True
        self._put(ev.TurnStarted())
        self._put(ev.MessageAdded(message=message, origin=origin))

    def _result(self, item: _Said) -> None:
        fitting = (
            call
            for call, given in self._open.values()
            if (given == item.call_id if item.call_id else item.name in ("", call.name))
        )
        if (call := next(fitting, None)) is None:
            self.counts[ORPHANS] += 1
            return
        content = "".join(part.text for part in item.parts if isinstance(part, Text))
        size, half = len(content.encode("utf-8", "replace")), RESULT_CAP // 2
        if len(content) > RESULT_CAP:
            self.counts[SHORTENED] += 1
            cut = len(content) - 2 * half
            content = f"{content[:half]}\n[… {cut} characters left out at import …]\n{content[-half:]}"
        head = content[:200].replace(" ", "")  # both systems answer a failed call with a JSON object that says so
        self._finish(call, "error" if head.startswith(('{"success":false', '{"error":')) else "ok", content, size)
        self.counts["tool result"] += 1

    def _finish(self, call: ToolCall, status: ToolStatus, content: str, size: int) -> None:
        del self._open[call.id]
        self._put(ev.ToolFinished(call_id=call.id, tool=call.name, status=status, content=content, size=size))

    def _close_calls(self) -> None:
        for call, _ in list(self._open.values()):
            self.counts[UNANSWERED] += 1
            self._finish(call, "interrupted", NO_RESULT, len(NO_RESULT))

    def end_turn(self) -> None:
        answer = self._flush()
        if self._in_turn:
            self._close_calls()
            outcome = "interrupted" if answer is None else "done"
            self._put(ev.TurnFinished(outcome=outcome, cause="import", answer=answer or ""))
            self._in_turn = False
