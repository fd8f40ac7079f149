"""Jobs: the changes that a request and its answer need, decided by the engine and the fields.

A reply whose calls were enforced is changed on its way to the client. Text of the other engines passes as it is: a
client that is ours finds the calls in it. A reply that the engine cannot
parse is answered with 500 and thrown away by it. The same request with the same seed, but without calls and thoughts
for the engine to find, has the same text again, which is parsed here.
"""

from __future__ import annotations

import os.path
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from msgspec import Struct

from lmagent.core.messages import ToolCall
from lmagent.core.model import ToolSpec
from lmagent.modelserver.errors import BadRequest, refused
from lmagent.modelserver.http.bodies import RelayRequest
from lmagent.modelserver.http.enforce import RequiredCalls, allowed_only, calls_in, choice_of, enforced
from lmagent.modelserver.http.upstream import Upstream
from lmagent.modelserver.spec import ModelServerError, RunningModel
from lmagent.providers import jsontext
from lmagent.providers.sse import SseReader
from lmagent.providers.textcalls import find_calls

MOST_TOKENS = 2**31 - 1
"""The largest limit of tokens that the engine can take; it would take the lower 32 bits of a larger number."""

UNPARSED = b"does not match the expected"  # words of the engine's error (llama.cpp, `common_chat_peg_parse`)
DONE = b"data: [DONE]\n\n"


class ParsedReply(Struct, frozen=True):
    """A reply that was parsed here."""

    content: str  # the answer
    thinking: str = ""  # the thoughts before it
    calls: tuple[ToolCall, ...] = ()  # whole calls
    finish: str = "stop"  # "stop", "tool_calls" or "length"

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.content or (None if self.calls else "")}
        if self.thinking:
            message["reasoning_content"] = self.thinking
        if self.calls:
            message["tool_calls"] = call_fields(self.calls)
        return message


class RelayJob(Struct, frozen=True):
    """A request with the changes that it needs."""

    body: dict[str, Any]  # as the engine gets it
    choice: RequiredCalls | None = None  # calls that were enforced
    recoverable: bool = False  # a reply that the engine cannot parse can be had again

    def changed(self, answer: bytes) -> bytes:
        """Return the client's answer for the engine's, which is not a stream."""
        return answer if self.choice is None else jsontext.dumps(_with_calls(answer, enforced_reply))

    def changed_stream(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return the client's events for the engine's; the same bytes if nothing has to be changed."""
        return pieces if self.choice is None else _changed(pieces)

    async def again(self, upstream: Upstream, running: RunningModel) -> dict[str, Any]:
        """Return the answer to a client for a reply that the engine could not parse."""
        body = {**self.body, "tool_choice": "none", "reasoning_format": "none", "stream": False}
        url = f"{running.address}/v1/chat/completions"
        status, answer = await upstream.ask("POST", url, jsontext.dumps(body), running.key)
        if status >= 400:
            raise refused(status, answer, running.entry.name)
        read = partial(parsed, tool_specs(self.body)) if self.choice is None else enforced_reply
        return _with_calls(answer, read)


def job_for(asked: RelayRequest, running: RunningModel) -> RelayJob:
    """Decide how a request is served; refuse one that its engine cannot serve."""
    body = {**asked.body, "model": running.model}
    engine = running.entry.engine
    if asked.route != "chat" or engine == "upstream":  # another server decides, as it does for its own clients
        return RelayJob(body)
    for limit in ("max_tokens", "max_completion_tokens"):
        if body.get(limit):
            body[limit] = min(body[limit], MOST_TOKENS)
    choice = choice_of(body)
    body = allowed_only(body)
    if engine == "transformers":
        form = cast("dict[str, Any]", body.get("response_format") or {}).get("type", "text")
        if choice is not None or form != "text":
            field = "tool_choice" if choice is not None else "response_format"
            text = f"'{field}' cannot be enforced: the engine {engine!r} has no grammars"
            fix = "use the model as a GGUF file, or leave the choice to it"
            raise BadRequest(text, param=field, code="not_supported", fix=fix)
        return RelayJob(body)
    if not isinstance(body.get("seed"), int) or body["seed"] < 0:
        body["seed"] = secrets.randbelow(1 << 31)  # the reply can be written again
    one = body.get("n") in (None, 1)
    if choice is None:
        return RelayJob(body, recoverable=one)
    try:
        return RelayJob(enforced(body, choice), choice, recoverable=one)
    except RecursionError:
        raise BadRequest("the schema of a tool is nested too deeply", param="tools") from None


def call_fields(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]


def tool_specs(body: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    if body.get("tool_choice") == "none":
        return ()
    functions = [cast("dict[str, Any]", tool["function"]) for tool in body.get("tools") or ()]
    return tuple(
        ToolSpec(str(function["name"]), str(function.get("description") or ""), function.get("parameters") or {})
        for function in functions
    )


def parsed(tools: Sequence[ToolSpec], text: str, finish: str) -> ParsedReply:
    """Parse a whole text, without a call that the limit of tokens cut off."""
    found = find_calls(text, tools, cut=finish == "length")
    calls = tuple(call.tool_call() for call in found.calls if not call.truncated)
    if finish != "length":
        finish = "tool_calls" if calls else "stop"
    return ParsedReply(found.content, found.thinking, calls, finish)


def enforced_reply(text: str, finish: str) -> ParsedReply:
    """Find the calls in a text whose form was enforced; half a call is not shown, and a text without calls is."""
    if calls := tuple(calls_in(text)):
        return ParsedReply("", "", calls, "tool_calls" if finish == "stop" else finish)
    return ParsedReply("" if finish == "length" else text, finish=finish)


def _with_calls(answer: bytes, read: Callable[[str, str], ParsedReply]) -> dict[str, Any]:
    """Return a completion with the calls that `read` finds in its text."""
    fields = cast("dict[str, Any]", jsontext.loads(answer))
    choices: list[dict[str, Any]] = []
    for choice in fields.get("choices") or ():
        message = cast("dict[str, Any]", choice.get("message") or {})
        text = message.get("content")
        if isinstance(text, str) and text and not message.get("tool_calls"):
            reply = read(text, str(choice.get("finish_reason") or "stop"))
            choice = {**choice, "message": {**message, **reply.message()}, "finish_reason": reply.finish}
        choices.append(choice)
    return {**fields, "choices": choices}


async def _changed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a stream with the enforced calls at the end of each choice; an error of the engine is left as it is."""
    reader, texts = SseReader(), dict[int, str]()
    async for piece in pieces:
        for payload in reader.feed(piece):
            chunk = {} if payload.strip() == b"[DONE]" else cast("dict[str, Any]", jsontext.loads(payload))
            if not chunk.get("choices"):
                yield b"data: " + payload + b"\n\n"
            else:
                yield _event({**chunk, "choices": [_held_back(choice, texts) for choice in chunk["choices"]]})


def _held_back(choice: dict[str, Any], texts: dict[int, str]) -> dict[str, Any]:
    """Return a choice without its text, which is kept in `texts` and read at the end."""
    index, finish = int(choice.get("index") or 0), choice.get("finish_reason")
    delta: dict[str, Any] = dict(choice.get("delta") or {})
    if isinstance(text := delta.get("content"), str):
        texts[index] = texts.get(index, "") + text
        delta["content"] = None  # a sign of life while a call is written
    if finish is not None and index in texts:
        reply = enforced_reply(texts.pop(index), finish)
        finish = reply.finish
        if reply.content:
            delta["content"] = reply.content
        if reply.calls:
            delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(call_fields(reply.calls))]
    return {**choice, "delta": delta, "finish_reason": finish}


def _event(value: Any) -> bytes:
    return b"data: " + jsontext.dumps(value) + b"\n\n"


def rest_of(shown: bytes, answer: dict[str, Any], *, usage: bool) -> bytes:
    """Return the events that complete an answer for a client that has received the events `shown` of it.

    Raises:
        ModelServerError: a part of a call was among them.
    """
    base: dict[str, Any] = {"object": "chat.completion.chunk"}
    delta: dict[str, Any] = {} if shown else {"role": "assistant"}
    seen = {"reasoning_content": "", "content": ""}
    for payload in SseReader().feed(shown):
        chunk = cast("dict[str, Any]", jsontext.loads(payload))
        base = {key: value for key, value in chunk.items() if key not in ("usage", "timings")}
        for choice in chunk.get("choices") or ():
            for field in seen:
                seen[field] += choice["delta"].get(field) or ""
            if choice["delta"].get("tool_calls"):
                raise ModelServerError("the model's call could not be read", status=502, code="bad_output")

    def event(delta: dict[str, Any], finish: str | None) -> bytes:
        return _event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    message, finish = answer["choices"][0]["message"], answer["choices"][0]["finish_reason"]
    for field, text in seen.items():
        if rest := _unseen(text, message.get(field) or ""):
            delta[field] = rest
    if calls := message.get("tool_calls"):
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    events = event(delta, None) + event({}, finish)
    return events + (_event({**base, "choices": [], "usage": answer.get("usage")}) if usage else b"") + DONE


def _unseen(seen: str, whole: str) -> str:
    """Return the rest of a text after the part that was seen; engines leave out blanks at its beginning."""
    seen, whole = seen.lstrip(), whole.lstrip() if seen else whole
    return whole[len(os.path.commonprefix([seen, whole])) :]  # noqa: RUF071 (these are no paths)
