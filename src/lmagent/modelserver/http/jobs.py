"""Jobs: the changes that a request and its answer need, decided by the engine and the fields.

A reply whose calls were enforced, or come as text, is changed on its way to the client. A reply that the engine cannot
parse is answered with 500 and thrown away by it. The same prompt (`/apply-template`) with the same seed gives the same
tokens again (`/completion`), which are parsed here; `/detokenize` shows the special ones, by which many models mark
their calls.
"""

from __future__ import annotations

import os.path
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.messages import ToolCall
from lmagent.core.model import ToolSpec
from lmagent.modelserver.errors import BadRequest, refused
from lmagent.modelserver.http.bodies import RelayRequest
from lmagent.modelserver.http.enforce import CallReader, RequiredCalls, allowed_only, choice_of, enforced
from lmagent.modelserver.http.upstream import Upstream
from lmagent.modelserver.spec import ModelServerError, RunningModel
from lmagent.providers import jsontext
from lmagent.providers.sse import SseReader
from lmagent.providers.textcalls import TextCallParser, find_calls

MOST_TOKENS = 2**31 - 1
"""The largest limit of tokens that the engine can take; it would take the lower 32 bits of a larger number."""

UNPARSED = b"does not match the expected"  # words of the engine's error (llama.cpp, `common_chat_peg_parse`)
DONE = b"data: [DONE]\n\n"

_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "top_n_sigma", "stop", "seed", "logit_bias", "mirostat"),
    *("frequency_penalty", "presence_penalty", "repeat_penalty", "repeat_last_n", "dynatemp_range", "samplers"),
    *("dry_multiplier", "dry_base", "dry_allowed_length", "xtc_probability", "xtc_threshold", "id_slot"),
)
_END = re.compile(r"(?:<[|｜][^<>|｜]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>)\s*\Z")


class ParsedReply(Struct, frozen=True):
    """A reply that was parsed here."""

    content: str  # the answer
    thinking: str = ""  # the thoughts before it
    calls: tuple[ToolCall, ...] = ()  # whole calls
    finish: str = "stop"  # "stop", "tool_calls" or "length"
    usage: Mapping[str, int] = {}  # OpenAI's `usage`

    def completion(self, model: str, number: str) -> bytes:
        fields = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": int(time.time()), "model": model}
        choice = {"index": 0, "message": self.message(), "finish_reason": self.finish}
        return jsontext.dumps({**fields, "choices": [choice], "usage": self.usage})

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
    tools: tuple[ToolSpec, ...] = ()  # tools whose calls come as text; empty where the engine finds them itself
    recoverable: bool = False  # a reply that the engine cannot parse can be had again

    def changed(self, answer: bytes) -> bytes:
        """Return the client's answer for the engine's, which is not a stream."""
        if self.choice is None and not self.tools:
            return answer
        fields = cast("dict[str, Any]", jsontext.loads(answer))
        return jsontext.dumps({**fields, "choices": [self._choice(choice) for choice in fields.get("choices") or ()]})

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        message = cast("dict[str, Any]", choice.get("message") or {})
        text, finish = message.get("content"), str(choice.get("finish_reason") or "stop")
        if not isinstance(text, str) or not text or message.get("tool_calls"):
            return choice
        reply = parsed(text, self.tools, finish) if self.tools else self._enforced(ParsedReply(text, finish=finish))
        return {**choice, "message": {**message, **reply.message()}, "finish_reason": reply.finish}

    def _enforced(self, reply: ParsedReply) -> ParsedReply:
        """Turn enforced JSON into calls; half a call is not shown, and a reply without calls stays text."""
        if calls := tuple(CallReader().feed(reply.content)):
            return replace(
                reply, content="", calls=calls, finish="tool_calls" if reply.finish == "stop" else reply.finish
            )
        return replace(reply, content="") if reply.finish == "length" else reply

    def changed_stream(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return the client's events for the engine's; the same bytes if nothing has to be changed."""
        if self.choice is not None:
            return _changed(pieces, _EnforcedCalls())
        return _changed(pieces, _TextCalls(self.tools)) if self.tools else pieces

    async def again(self, upstream: Upstream, running: RunningModel) -> ParsedReply:
        """Write a reply again that the engine could not parse."""

        async def ask(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
            status, answer = await upstream.ask("POST", running.address + path, jsontext.dumps(fields), running.key)
            if status >= 400:
                raise refused(status, answer, running.entry.name)
            return cast("dict[str, Any]", jsontext.loads(answer))

        body = self.body
        request: dict[str, Any] = {name: body[name] for name in _SAMPLING if body.get(name) is not None}
        request["prompt"] = (await ask("/apply-template", body))["prompt"]
        request |= {"return_tokens": True, "cache_prompt": True, "stream": False}
        if limit := body.get("max_completion_tokens") or body.get("max_tokens"):
            request["n_predict"] = limit
        match body.get("response_format"):
            case {"type": "json_schema", "json_schema": {"schema": schema}}:
                request["json_schema"] = schema
            case {"type": "json_object"}:
                request["json_schema"] = {"type": "object"}
            case _:
                pass
        written = await ask("/completion", request)
        text = str(written.get("content") or "")
        if tokens := written.get("tokens"):
            shown = str((await ask("/detokenize", {"tokens": tokens})).get("content") or "")
            text = _without_end(shown, text) or text
        finish = "length" if written.get("stop_type") == "limit" else "stop"
        read, count = int(written.get("tokens_evaluated") or 0), int(written.get("tokens_predicted") or 0)
        usage = {"prompt_tokens": read, "completion_tokens": count, "total_tokens": read + count}
        if self.choice is not None:
            return self._enforced(ParsedReply(text, finish=finish, usage=usage))
        return replace(parsed(text, tool_specs(body), finish), usage=usage)


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
        return RelayJob(body, tools=tool_specs(body))
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


def parsed(text: str, tools: Sequence[ToolSpec], finish: str) -> ParsedReply:
    """Parse a whole text, without a call that the limit of tokens cut off."""
    found = find_calls(text, tools, cut=finish == "length")
    calls = tuple(call.tool_call() for call in found.calls if not call.truncated)
    if finish != "length":
        finish = "tool_calls" if calls else "stop"
    return ParsedReply(found.content, found.thinking, calls, finish)


def _without_end(shown: str, plain: str) -> str:
    """Remove the special tokens that only end the text; `plain` is the text without any."""
    while (end := _END.search(shown)) and not plain.rstrip().endswith(end[0].rstrip()):
        shown = shown[: end.start()]
    return shown


class _Change(Protocol):
    def __call__(self, index: int, delta: dict[str, Any], finish: str | None) -> str | None:
        """Change the delta of a choice; return its finish reason."""
        ...


async def _changed(pieces: AsyncIterator[bytes], change: _Change) -> AsyncIterator[bytes]:
    """Yield a stream whose choices were changed; an error of the engine is left as it is."""
    reader = SseReader()
    async for piece in pieces:
        for payload in reader.feed(piece):
            chunk = {} if payload.strip() == b"[DONE]" else cast("dict[str, Any]", jsontext.loads(payload))
            choices = list(_changed_choices(chunk.get("choices") or (), change))
            if not chunk.get("choices"):
                yield b"data: " + payload + b"\n\n"
            elif choices:
                yield _event({**chunk, "choices": choices})


def _changed_choices(choices: Iterable[dict[str, Any]], change: _Change) -> Iterable[dict[str, Any]]:
    for choice in choices:
        delta: dict[str, Any] = dict(choice.get("delta") or {})
        finish = change(int(choice.get("index") or 0), delta, choice.get("finish_reason"))
        if delta or finish is not None:
            yield {**choice, "delta": delta, "finish_reason": finish}


class _EnforcedCalls:
    """Turns enforced JSON into calls, each as soon as it is complete."""

    def __init__(self) -> None:
        self._readers: dict[int, CallReader] = {}
        self._counts: dict[int, int] = {}

    def __call__(self, index: int, delta: dict[str, Any], finish: str | None) -> str | None:
        reader, count = self._readers.setdefault(index, CallReader()), self._counts.get(index, 0)
        text = delta.pop("content", None)
        if isinstance(text, str) and (calls := reader.feed(text)):
            delta["tool_calls"] = [{"index": count + at, **call} for at, call in enumerate(call_fields(calls))]
            count = self._counts[index] = count + len(calls)
        if finish not in (None, "length") and not count and reader.text.strip():
            delta["content"] = reader.text  # the engine kept to nothing: better shown than lost
        elif isinstance(text, str) or delta.get("role"):
            delta.setdefault("content", None)  # a sign of life while a call is written
        return "tool_calls" if finish == "stop" and count else finish


class _TextCalls:
    """Turns calls in the text into calls."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools
        self._parsers: dict[int, TextCallParser] = {}
        self._texts: dict[int, str] = {}

    def __call__(self, index: int, delta: dict[str, Any], finish: str | None) -> str | None:
        if isinstance(text := delta.pop("content", None), str):
            parser = self._parsers.setdefault(index, TextCallParser(self._tools))
            self._texts[index] = self._texts.get(index, "") + text
            if (shown := parser.feed(text)) or delta.get("role"):
                delta["content"] = shown
        if finish is None or index not in self._parsers:
            return finish
        parser = self._parsers.pop(index)
        parser.finish()
        reply = parsed(self._texts.pop(index), self._tools, finish)
        if parser.rest:
            delta["content"] = delta.get("content", "") + parser.rest
        if reply.thinking:
            delta["reasoning_content"] = reply.thinking
        if reply.calls:
            delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(call_fields(reply.calls))]
        return reply.finish if reply.calls or finish != "tool_calls" else finish


def _event(value: Any) -> bytes:
    return b"data: " + jsontext.dumps(value) + b"\n\n"


def rest_of(shown: bytes, reply: ParsedReply, *, usage: bool) -> bytes:
    """Return the events that complete a reply for a client that has received the events `shown` of it.

    Raises:
        ModelServerError: a part of a call was among them.
    """
    base: dict[str, Any] = {"object": "chat.completion.chunk"}
    content = thinking = ""
    for payload in SseReader().feed(shown):
        chunk = cast("dict[str, Any]", jsontext.loads(payload))
        base = {key: value for key, value in chunk.items() if key not in ("usage", "timings")}
        for choice in chunk.get("choices") or ():
            delta = cast("dict[str, Any]", choice.get("delta") or {})
            content += delta.get("content") or ""
            thinking += delta.get("reasoning_content") or ""
            if delta.get("tool_calls"):
                raise ModelServerError("the model's call could not be read", status=502, code="bad_output")

    def event(delta: dict[str, Any], finish: str | None) -> bytes:
        return _event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    delta: dict[str, Any] = {} if shown else {"role": "assistant"}
    if rest := _unseen(thinking, reply.thinking):
        delta["reasoning_content"] = rest
    if rest := _unseen(content, reply.content):
        delta["content"] = rest
    if reply.calls:
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(call_fields(reply.calls))]
    events = event(delta, None) + event({}, reply.finish)
    return events + (_event({**base, "choices": [], "usage": reply.usage}) if usage else b"") + DONE


def _unseen(seen: str, whole: str) -> str:
    """Return the rest of a text after the part that was seen; engines leave out blanks at its beginning."""
    seen, whole = seen.lstrip(), whole.lstrip() if seen else whole
    return whole[len(os.path.commonprefix([seen, whole])) :]  # noqa: RUF071 (these are no paths)
