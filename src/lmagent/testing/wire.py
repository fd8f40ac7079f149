"""Wire: a scripted reply as the bytes of an OpenAI-compatible server.

The shapes are those of the chat completions API (`chat.completion` and `chat.completion.chunk`); `prompt_progress`
is llama.cpp's. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, zip_longest
from typing import Any

import msgspec

from lmagent.testing.loopback import Pause, Response, Step
from lmagent.testing.script import Counts, PlainAnswer, Reply, ScriptedCall

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """The server's facts about the request that it answers."""

    number: int  # number of the chat request, from 1
    model: str
    stream: bool  # the client wants a stream
    usage: bool  # the client wants usage in the stream
    prompt_tokens: int  # size of the prompt (canonical bytes / 4)
    cached_tokens: int  # tokens that the previous request already held


def plain_response(answer: PlainAnswer) -> Response:
    """An answer that is no reply."""
    return Response(answer.chunks, answer.code, answer.headers, answer.framing, answer.before_head)


def respond(reply: Reply, asked: ServerRequest) -> Response:
    """Return the reply as a stream, or as one JSON body if the request asks for no stream."""
    before = (Pause(reply.before_head),) if reply.before_head else ()
    if not asked.stream:
        body = _encode({"error": _error(reply)} if reply.error else _whole(reply, asked))
        return Response((body,), headers={"Content-Type": "application/json"}, before_head=before)
    headers = {"Content-Type": reply.style.content_type, "Cache-Control": "no-cache"}
    return Response(_steps(reply, asked), 200, headers, reply.style.framing, before)


def counts(reply: Reply, asked: ServerRequest) -> Counts:
    """Return the figures that the reply reports."""
    if reply.style.usage == "zero":
        return Counts(0, 0)
    size = len(reply.text) + len(reply.thinking) + sum(len(call.arguments) + len(call.name) for call in reply.calls)
    return reply.usage or Counts(asked.prompt_tokens, max(1, size // 4), asked.cached_tokens)


# --- a stream ---------------------------------------------------------------------------------------------------


def _steps(reply: Reply, asked: ServerRequest) -> list[Step]:
    events = [_frame(chunk, reply) for chunk in _chunks(reply, asked)]
    if reply.style.done and not reply.error:
        events.append(_line(b"[DONE]", reply))
    return paced(reply, events, _prefill(reply, asked))


def paced(reply: Reply, events: Sequence[bytes], before: Iterable[Step] = ()) -> list[Step]:
    """Return the events with the reply's pauses, in its pieces, and with its end."""
    steps, ended = list(before), reply.stop_chunks is not None
    for position, event in enumerate(events[: reply.stop_chunks]):
        if reply.each and position:
            steps.append(Pause(reply.each))
        steps.append(event)
    if reply.style.split:
        steps = list(_split(steps, reply.style.split))
    if reply.stop_bytes is not None:
        steps, ended = _first_bytes(steps, reply.stop_bytes), True
    return [*steps, reply.stop] if ended else steps


def _prefill(reply: Reply, asked: ServerRequest) -> Iterator[Step]:
    """Yield comments and progress, spread evenly over the `first` seconds before the first event."""
    signs: list[bytes] = [b": keep-alive" + reply.style.newline * 2] * reply.keepalive
    total = asked.prompt_tokens
    for fraction in reply.prefill:
        progress = {"total": total, "cache": 0, "processed": round(total * fraction), "time_ms": 1}
        chunk = _chunk(asked, {"role": "assistant", "content": None}) | {"prompt_progress": progress}
        signs.append(_frame(chunk, reply))
    gap = reply.first / (len(signs) + 1)
    for sign in signs:
        yield from ((Pause(gap), sign) if gap else (sign,))
    if gap:
        yield Pause(gap)


def _chunks(reply: Reply, asked: ServerRequest) -> Iterator[dict[str, Any]]:
    style = reply.style
    yield _chunk(asked, {"role": "assistant", "content": ""})
    for delta in chain(_text_deltas(reply), _call_deltas(reply, asked)):
        if style.empties:
            yield _chunk(asked, {})
            yield _chunk(asked, {"content": None, "tool_calls": None, "reasoning_content": None})
            yield _chunk(asked, {}) | {"choices": []}
        yield _chunk(asked, delta | {"role": "assistant"} if style.heads else delta)
    if reply.error:
        yield {"error": _error(reply)}
        return
    usage = usage_fields(counts(reply, asked))
    wanted = style.usage in ("always", "zero") or (style.usage == "asked" and asked.usage)
    twice = 2 if style.duplicates else 1
    if style.finish:
        last = _chunk(asked, {}, finish_reason(reply))
        for _ in range(twice):
            yield last | {"usage": usage} if style.usage == "last" else last
    if wanted:
        for _ in range(twice):
            yield _chunk(asked, {}) | {"choices": [], "usage": usage}


def _text_deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    kind, thought, text = reply.style.thinking, reply.thinking, reply.text
    if thought and kind in ("reasoning_content", "reasoning"):
        for piece in _pieces(thought, reply.chunk):
            yield {kind: piece}
    elif thought:
        opening = "" if kind == "closing" else "<think>"
        closing = "" if kind == "unclosed" else "</think>"
        text = f"{opening}{thought}{closing}{text}"
    for piece in _pieces(text, reply.chunk):
        yield {"content": piece}


def _call_deltas(reply: Reply, asked: ServerRequest) -> Iterator[dict[str, Any]]:
    fragments = [_fragments(reply, asked, place, call) for place, call in enumerate(reply.calls)]
    ordered = chain.from_iterable(zip_longest(*fragments, fillvalue=None) if reply.style.interleave else fragments)
    for fragment in ordered:
        if fragment:
            yield {"tool_calls": [fragment]}
    if reply.style.duplicates:
        for place, call in enumerate(reply.calls):
            whole = _head(reply, asked, place, call)
            whole["function"]["arguments"] = call.arguments
            yield {"tool_calls": [whole]}


def _fragments(reply: Reply, asked: ServerRequest, place: int, call: ScriptedCall) -> list[dict[str, Any]]:
    head = _head(reply, asked, place, call)
    if reply.style.arguments == "object":
        head["function"]["arguments"] = _object(call.arguments)
        return [head]
    size = -(-len(call.arguments) // max(1, reply.style.pieces)) or 1
    pieces = _pieces(call.arguments, size)
    if reply.style.index == "zero" or reply.style.ids == "same":  # servers that number so send calls whole
        head["function"]["arguments"] = call.arguments
        return [head]
    later: list[dict[str, Any]] = []
    for piece in pieces:
        fragment = _head(reply, asked, place, call) if reply.style.heads else _bare(reply, place)
        fragment["function"]["arguments"] = piece
        later.append(fragment)
    return [head, *later]


def _head(reply: Reply, asked: ServerRequest, place: int, call: ScriptedCall) -> dict[str, Any]:
    head = _bare(reply, place)
    if reply.style.ids != "none":
        number = 0 if reply.style.ids == "same" else place
        head["id"] = call.id or f"call_{asked.number:06d}_{number}"
    return head | {"type": "function", "function": {"name": call.name, "arguments": ""}}


def _bare(reply: Reply, place: int) -> dict[str, Any]:
    bare: dict[str, Any] = {"function": {}}
    if reply.style.index != "none":
        bare["index"] = 0 if reply.style.index == "zero" else place
    return bare


# --- one body -----------------------------------------------------------------------------------------------------


def _whole(reply: Reply, asked: ServerRequest) -> dict[str, Any]:
    text = "".join(delta.get("content", "") for delta in _text_deltas(reply))
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if reply.thinking and reply.style.thinking in ("reasoning_content", "reasoning"):
        message[reply.style.thinking] = reply.thinking
    if reply.calls:
        message["tool_calls"] = [_head(reply, asked, place, call) for place, call in enumerate(reply.calls)]
        for head, call in zip(message["tool_calls"], reply.calls, strict=True):
            as_object = reply.style.arguments == "object"
            head["function"]["arguments"] = _object(call.arguments) if as_object else call.arguments
    whole = _chunk(asked, {}) | {"object": "chat.completion"}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": finish_reason(reply)}]
    return whole if reply.style.usage == "never" else whole | {"usage": usage_fields(counts(reply, asked))}


# --- pieces ---------------------------------------------------------------------------------------------------------


def finish_reason(reply: Reply) -> str:
    """Return why the model stopped."""
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _chunk(asked: ServerRequest, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{asked.number:06d}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": asked.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def usage_fields(figures: Counts) -> dict[str, Any]:
    """Return OpenAI's `usage`."""
    return {
        "prompt_tokens": figures.prompt,
        "completion_tokens": figures.completion,
        "total_tokens": figures.prompt + figures.completion,
        "prompt_tokens_details": {"cached_tokens": figures.cached},
    }


def _error(reply: Reply) -> dict[str, Any]:
    return {"message": reply.error, "type": "server_error", "code": 500}


def _frame(chunk: dict[str, Any], reply: Reply) -> bytes:
    return _line(_encode(chunk), reply)


def _line(data: bytes, reply: Reply) -> bytes:
    style = reply.style
    end = style.newline
    before = b": beat" + end if style.comments else b""
    if style.event_lines:
        before += b"event: message" + end + b"id: 7" + end + b"retry: 3000" + end
    return before + (b"data: " if style.space else b"data:") + data + end + end


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _object(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _split(steps: list[Step], size: int) -> Iterator[Step]:
    """Split the bytes into pieces of `size`, across the borders of events."""
    for kind, run in groupby(steps, key=lambda step: isinstance(step, bytes)):
        if not kind:
            yield from run
            continue
        joined = b"".join(step for step in run if isinstance(step, bytes))
        yield from (joined[at : at + size] for at in range(0, len(joined), size))


def _first_bytes(steps: list[Step], limit: int) -> list[Step]:
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, bytes):
            step = step[:limit]
            limit -= len(step)
        kept.append(step)
        if not limit:
            break
    return kept
