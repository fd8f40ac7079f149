"""Chunks: streams of chat completions that are changed on their way to the client.

A changer turns the engine's chunks into the client's: one for calls that were enforced, one for calls that come as
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

from lmagent.core.model import ToolSpec
from lmagent.modelserver.http.enforce import CallPiece, CallReader
from lmagent.modelserver.http.recover import Recovered, call_fields, parsed
from lmagent.modelserver.spec import ModelServerError
from lmagent.providers import jsontext
from lmagent.providers.sse import SseReader
from lmagent.providers.textcalls import TextCallParser

DONE = b"data: [DONE]\n\n"

_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*"?)|\s+')
"""Texts, and the blanks between them."""


class Changer(Protocol):
    def feed(self, chunk: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the chunks that replace this one."""
        ...


def event(value: Any) -> bytes:
    return b"data: " + jsontext.dumps(value) + b"\n\n"


class Changing:
    """A stream that goes through a changer; `error` is the engine's error, if it sent one."""

    def __init__(self, changer: Changer) -> None:
        self._changer = changer
        self._reader = SseReader()
        self.error: Any = None

    def feed(self, piece: bytes) -> bytes:
        """Return the client's bytes for the engine's."""
        return b"".join(self._events(self._reader.feed(piece)))

    def _events(self, payloads: Iterable[bytes]) -> Iterable[bytes]:
        for payload in payloads:
            if payload.strip() == b"[DONE]":
                yield DONE
                continue
            chunk = jsontext.loads(payload)
            fields = cast("dict[str, Any]", chunk) if isinstance(chunk, dict) else {}
            if "error" in fields and "choices" not in fields:
                self.error = fields
                return
            for changed in self._changer.feed(fields):
                yield event(changed)


class EnforcedCalls:
    """A changer that turns enforced JSON into calls: the name first, then the arguments in pieces."""

    def __init__(self) -> None:
        self._readers: dict[int, CallReader] = {}

    def feed(self, chunk: dict[str, Any]) -> Iterable[dict[str, Any]]:
        choices: list[dict[str, Any]] = chunk.get("choices") or []
        if not choices:
            yield chunk
        for choice in choices:
            index = int(choice.get("index") or 0)
            delta: dict[str, Any] = dict(choice.get("delta") or {})
            reader = self._readers.setdefault(index, CallReader())
            text = delta.pop("content", None)
            pieces = reader.feed(text) if isinstance(text, str) else []
            finish = choice.get("finish_reason")
            if finish == "stop" and reader.whole:
                finish = "tool_calls"
            if finish is not None and not reader.calls and reader.text.strip() and finish != "length":
                delta["content"] = reader.text  # the engine kept to nothing: better shown than lost
            if pieces:
                delta["tool_calls"] = [_delta(piece) for piece in pieces]
            if delta.get("role") and text is None:
                delta["content"] = None
            if delta or finish is not None:
                yield {**chunk, "choices": [{**choice, "delta": delta, "finish_reason": finish}]}


def _delta(piece: CallPiece) -> dict[str, Any]:
    if piece.call is not None:
        return {"index": piece.index, **call_fields(piece.call.id, piece.call.name, "")}
    return {"index": piece.index, "function": {"arguments": piece.arguments}}


class TextCalls:
    """A changer that turns calls in the text into calls."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools
        self._parsers: dict[int, TextCallParser] = {}
        self._texts: dict[int, list[str]] = {}

    def feed(self, chunk: dict[str, Any]) -> Iterable[dict[str, Any]]:
        choices: list[dict[str, Any]] = chunk.get("choices") or []
        if not choices:
            yield chunk
        for choice in choices:
            index = int(choice.get("index") or 0)
            delta: dict[str, Any] = dict(choice.get("delta") or {})
            if isinstance(text := delta.pop("content", None), str):
                parser = self._parsers.setdefault(index, TextCallParser(self._tools))
                self._texts.setdefault(index, []).append(text)
                if (shown := parser.feed(text)) or delta.get("role"):
                    delta["content"] = shown
            finish = choice.get("finish_reason")
            if finish is not None and index in self._parsers:
                text, parser = "".join(self._texts.pop(index)), self._parsers.pop(index)
                parser.finish()
                reply = parsed(text, self._tools, str(finish), {})
                if parser.rest:
                    delta["content"] = delta.get("content", "") + parser.rest
                delta |= _calls_of(reply)
                finish = reply.finish if reply.calls or finish != "tool_calls" else finish
            if delta or finish is not None:
                yield {**chunk, "choices": [{**choice, "delta": delta, "finish_reason": finish}]}


def _calls_of(reply: Recovered) -> dict[str, Any]:
    fields: dict[str, Any] = {"reasoning_content": reply.thinking} if reply.thinking else {}
    if reply.calls:
        fields["tool_calls"] = [
            {"index": number, **call_fields(call.id, call.name, call.arguments)}
            for number, call in enumerate(reply.calls)
        ]
    return fields


class Shown:
    """The part of a stream that the client has received, after which a recovered reply continues.

    The bytes are parsed only when they are many, or needed.
    """

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self._size = 0
        self._reader = SseReader()
        self.chunk: dict[str, Any] = {}
        self.content = ""
        self.thinking = ""
        self.calls: list[str] = []

    def add(self, piece: bytes) -> None:
        self._kept.append(piece)
        self._size += len(piece)
        if self._size > 65_536:
            self.read()

    def read(self) -> None:
        """Parse the bytes that were kept."""
        content, thinking = [self.content], [self.thinking]
        for payload in self._reader.feed(b"".join(self._kept)) if self._kept else ():
            if payload.strip() == b"[DONE]":
                continue
            self.chunk = cast("dict[str, Any]", jsontext.loads(payload))
            for choice in self.chunk.get("choices") or ():
                delta = cast("dict[str, Any]", choice.get("delta") or {})
                content.append(delta.get("content") or "")
                thinking.append(delta.get("reasoning_content") or "")
                for call in delta.get("tool_calls") or ():
                    self._call(call)
        self.content, self.thinking = "".join(content), "".join(thinking)
        self._kept.clear()
        self._size = 0

    def _call(self, call: dict[str, Any]) -> None:
        index = int(call.get("index") or 0)
        self.calls += [""] * (index + 1 - len(self.calls))
        self.calls[index] += cast("dict[str, Any]", call.get("function") or {}).get("arguments") or ""


def rest_of(shown: Shown, reply: Recovered, *, usage: bool) -> bytes:
    """Return the events that complete a reply for a client that has received a part of it."""
    shown.read()
    base = {key: value for key, value in shown.chunk.items() if key not in ("usage", "timings")}
    base.setdefault("object", "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None) -> bytes:
        return event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    events: list[bytes] = []
    delta: dict[str, Any] = {"role": "assistant"} if not shown.chunk else {}
    if thinking := _unseen(shown.thinking, reply.thinking):
        delta["reasoning_content"] = thinking
    if content := _unseen(shown.content, reply.content):
        delta["content"] = content
    if calls := _calls_left(shown.calls, reply):
        delta["tool_calls"] = calls
    if delta:
        events.append(chunk(delta, None))
    events.append(chunk({}, reply.finish))
    if usage:
        events.append(event({**base, "choices": [], "usage": reply.usage}))
    return b"".join((*events, DONE))


def _calls_left(seen: Sequence[str], reply: Recovered) -> list[dict[str, Any]]:
    """Return the calls, or their ends, that the client has not received; `seen` has their arguments so far."""
    if len(seen) > len(reply.calls):
        raise ModelServerError("the model's call broke off and could not be read", status=502, code="bad_output")
    left: list[dict[str, Any]] = []
    for index, call in enumerate(reply.calls):
        if index >= len(seen):
            left.append({"index": index, **call_fields(call.id, call.name, call.arguments)})
            continue
        begun = _BLANKS.sub(lambda found: found[1] or "", seen[index])
        if call.arguments.startswith(begun):
            left.append({"index": index, "function": {"arguments": call.arguments[len(begun) :]}})
        elif not jsontext.is_object(seen[index]):
            raise ModelServerError("the model's call changed while it was read", status=502, code="bad_output")
    return left


def _unseen(seen: str, whole: str) -> str:
    """Return the rest of a text after the part that was seen; engines leave out blanks at its beginning."""
    seen, whole = seen.lstrip(), whole.lstrip() if seen else whole
    same = 0
    for one, other in zip(seen, whole, strict=False):
        if one != other:
            break
        same += 1
    return whole[same:]
