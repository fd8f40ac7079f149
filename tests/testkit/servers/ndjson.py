"""Ndjson: a scripted reply as the lines of Ollama's native chat route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lmagent.testing.loopback import Pause, Response
from lmagent.testing.script import Reply, ScriptedCall
from lmagent.testing.wire import ServerRequest, counts, finish_reason, paced

_encode = msgspec.json.encode


def respond(reply: Reply, asked: ServerRequest) -> Response:
    """Return the reply as a stream of lines, or as one object if the request asks for no stream."""
    before = (Pause(reply.before_head),) if reply.before_head else ()
    if not asked.stream:
        return Response((_encode(_whole(reply, asked)),), 200, {"Content-Type": "application/json"}, "length", before)
    lines = [_encode(line) + b"\n" for line in _lines(reply, asked)]
    steps = paced(reply, lines, (Pause(reply.first),) if reply.first else ())
    return Response(steps, 200, {"Content-Type": "application/x-ndjson"}, reply.style.framing, before)


def _lines(reply: Reply, asked: ServerRequest) -> Iterator[dict[str, Any]]:
    for at in range(0, len(reply.thinking), reply.chunk):
        yield _line(asked, {"content": "", "thinking": reply.thinking[at : at + reply.chunk]})
    for at in range(0, len(reply.text), reply.chunk):
        yield _line(asked, {"content": reply.text[at : at + reply.chunk]})
    for message in _messages(reply):
        yield _line(asked, message)
    if reply.error:
        yield {"error": reply.error}
        return
    if reply.style.finish:
        yield _end(reply, asked, {"content": ""})


def _whole(reply: Reply, asked: ServerRequest) -> dict[str, Any]:
    if reply.error:
        return {"error": reply.error}
    message: dict[str, Any] = {"content": reply.text}
    if reply.thinking:
        message["thinking"] = reply.thinking
    for told in _messages(reply):
        message["content"] += told["content"]
        message.setdefault("tool_calls", []).extend(told.get("tool_calls", []))
    return _end(reply, asked, message)


def _line(asked: ServerRequest, message: dict[str, Any]) -> dict[str, Any]:
    stamp = "2026-01-01T00:00:00.000000Z"
    return {"model": asked.model, "created_at": stamp, "message": {"role": "assistant"} | message, "done": False}


def _end(reply: Reply, asked: ServerRequest, message: dict[str, Any]) -> dict[str, Any]:
    reason = finish_reason(reply)
    line = _line(asked, message) | {"done": True, "done_reason": "length" if reason == "length" else "stop"}
    line |= {"total_duration": 10_000_000, "load_duration": 1_000_000}
    figures = counts(reply, asked)
    if reply.style.usage != "never":
        line |= {"prompt_eval_count": figures.prompt, "prompt_eval_duration": 1, "eval_count": figures.completion}
    return line


def _call(call: ScriptedCall) -> dict[str, Any]:
    """Ollama numbers all calls of a stream 0, and gives its own ids in newer versions only."""
    known = {"id": call.id} if call.id else {}
    return known | {"function": {"index": 0, "name": call.name, "arguments": _arguments(call)}}


def _arguments(call: ScriptedCall) -> Any:
    try:
        return msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return None


def _messages(reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield each call whole, on a line. Ollama's own parser returns a damaged call as text."""
    for call in reply.calls:
        if isinstance(_arguments(call), dict):
            yield {"content": "", "tool_calls": [_call(call)]}
        else:
            yield {"content": f'{{"name": "{call.name}", "arguments": {call.arguments}'}
