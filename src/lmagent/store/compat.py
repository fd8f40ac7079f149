"""Sessions of the systems that lmagent replaces, as events.

LMAgent keeps `.lmagent/sessions/<id>.json`: {"metadata": {id, task, created, updated, …}, "messages": [OpenAI-shaped]}.
agent_computer keeps `sessions/<id>.jsonl`, a line {role, content, timestamp, tool_call_id, tool_name} each; the content
of an assistant line is its text or the whole OpenAI-shaped message, and `meta` lines hold {"usage": {…}}.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from lmagent.core.errors import StoreError
from lmagent.core.events import DurableEvent, SessionCreated
from lmagent.core.ids import is_session_id
from lmagent.core.messages import Image, Part, Text, Thinking, ToolCall
from lmagent.core.model import Usage
from lmagent.core.plurals import plural
from lmagent.store.failures import store_error
from lmagent.store.rebuild import ImportedMessage, rebuild

_OWN_ID = re.compile(r"(\d{8})_(\d{6})_[0-9a-f]{6}")
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,([A-Za-z0-9+/=]+)")


class ImportedSession(Struct, frozen=True):
    """The content of an imported file.

    Attributes:
        session: the file's own id if it is usable, else the caller's.
        events: to be appended in this order; the first is `session.created`.
        taken: descriptions of the imported parts.
        left: the other parts, with reasons.
    """

    session: str
    events: tuple[DurableEvent, ...]
    taken: tuple[str, ...]
    left: tuple[str, ...]


def read_session(path: Path, opening: SessionCreated, now: float) -> ImportedSession:
    """Read a session of LMAgent (`.json`) or agent_computer (`.jsonl`).

    Raises StoreError if the file cannot be read, or holds no conversation.

    Args:
        path: the file; it is only read.
        opening: the first event of the new session: its system text and tools (theirs are not kept), its workspace and
            mode, and an id in case the file's own cannot be used.
        now: Unix seconds, for messages that have no time.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise store_error(error, "the session could not be read", path) from error
    left: list[str] = []
    metadata, raw = _parse(text, left)
    session = _session_id(path, metadata, opening)
    said = _messages(raw, left)
    first_at = next((item.at for item in said if item.at), 0.0)
    started = _time(metadata.get("created")) or first_at or _time_of_id(session) or now
    if not any(item.role in ("user", "assistant") for item in said):
        raise StoreError(
            f"there is no conversation in {path}",
            fix="give a session file of LMAgent (.json) or of agent_computer (.jsonl)",
        )
    if path.with_suffix(".tasks.json").exists():
        left.append(f"the task list {path.stem}.tasks.json")
    first = SessionCreated(
        session=session,
        workspace=opening.workspace,
        agent=opening.agent,
        system=opening.system,
        tools=opening.tools,
        model=opening.model,
        mode=opening.mode,
        app_version=opening.app_version,
        imported_from=str(path),
    )
    events, taken = rebuild(first, said, left, started)
    return ImportedSession(session, events, taken, tuple(left))


# --- the two file formats ---------------------------------------------------------------------------------------


def _parse(text: str, left: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return metadata and raw messages; other entries are noted in `left`."""
    try:
        whole: Any = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict) and "messages" in whole:
        document = cast("dict[str, Any]", whole)
        return _object(document.get("metadata")), _objects(document["messages"], left)
    if isinstance(whole, list):
        return {}, _objects(whole, left)
    found: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry: Any = json.loads(line)
        except (ValueError, RecursionError):
            left.append(f"line {number}: damaged, not JSON ({plural(len(line), 'character')})")
            continue
        if isinstance(entry, dict) and "role" in entry:
            found.append(_unwrapped(cast("dict[str, Any]", entry)))
        else:
            left.append(f"line {number}: not a message")
    return {}, found


def _objects(value: Any, left: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    entries: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, dict) and "role" in entry:
            found.append(cast("dict[str, Any]", entry))
        else:
            left.append(f"message {number}: not a message")
    return found


def _unwrapped(entry: dict[str, Any]) -> dict[str, Any]:
    """agent_computer puts a whole OpenAI message in the place of its text when there are tool calls."""
    content = _object(entry.get("content"))
    if entry["role"] == "assistant" and content:
        return {**content, "role": "assistant", "timestamp": entry.get("timestamp")}
    return entry


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _session_id(path: Path, metadata: dict[str, Any], opening: SessionCreated) -> str:
    for candidate in (metadata.get("id"), path.stem):
        if isinstance(candidate, str) and is_session_id(candidate):
            return candidate
    return opening.session


# --- messages -----------------------------------------------------------------------------------------------------


def _messages(raw: list[dict[str, Any]], left: list[str]) -> list[ImportedMessage]:
    said: list[ImportedMessage] = []
    dropped: Counter[str] = Counter()
    for entry in raw:
        role, at = entry["role"], _time(entry.get("timestamp"))
        if role == "meta":
            _note_usage(said, entry)
        elif role in ("user", "assistant"):
            parts = (*_thought(entry, role), *_parts(entry.get("content"), dropped))
            calls = tuple(_calls(entry)) if role == "assistant" else ()
            if parts or calls:
                said.append(ImportedMessage(role, parts, calls, at=at))
            else:
                dropped[f"empty {role} message"] += 1
        elif role == "tool":
            name = _text(entry, "tool_name") or _text(entry, "name")
            said.append(
                ImportedMessage(
                    "tool", _parts(entry.get("content"), dropped), (), _text(entry, "tool_call_id"), name, at
                )
            )
        else:
            dropped["system or injected message" if role in ("system", "developer") else f"{role!r} message"] += 1
    left.extend(f"{count} {what}{'s' if count > 1 else ''}" for what, count in dropped.items())
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


def _thought(entry: dict[str, Any], role: str) -> tuple[Part, ...]:
    thought = entry.get("reasoning_content") or entry.get("reasoning")
    return (Thinking(thought),) if role == "assistant" and isinstance(thought, str) and thought.strip() else ()


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


def _note_usage(said: list[ImportedMessage], entry: dict[str, Any]) -> None:
    """Usage belongs to the reply before it."""
    usage = _object(_object(entry.get("content")).get("usage"))
    prompt, completion = (
        value if isinstance(value := usage.get(key), int) else 0 for key in ("prompt_tokens", "completion_tokens")
    )
    for position in range(len(said) - 1, -1, -1):
        item = said[position]
        if item.role == "assistant":
            before = item.usage or Usage()
            # "Estimated": another prompt was counted, so nothing may be concluded for ours.
            total = Usage(before.prompt_tokens + prompt, before.completion_tokens + completion, estimated=True)
            said[position] = ImportedMessage(item.role, item.parts, item.calls, at=item.at, usage=total)
            return


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


def _time_of_id(session: str) -> float:
    match = _OWN_ID.fullmatch(session)
    return _time(f"{match.group(1)}T{match.group(2)}") if match else 0.0
