"""ForcedCalls: lets a model with random weights act like an agent, through the real engine.

    with EngineServer(model) as engine, ForcedCalls(engine.url, read_all_then_write(files, "SUMMARY.md")) as server:
        ...                       # point an agent at server.base_url

A random model would never write a valid call. So this server is a proxy between the agent and the engine, and adds a
grammar to each request: at every step a plan says which calls (or that an answer) may come, and the model samples
one of them.

Real: the whole prompt with its tools, tokenised and read by llama.cpp; its prompt cache; its window and its errors;
sampling, token by token, under the engine's grammar; the event stream; usage and timings, passed on untouched. An
answer in text is the engine's own byte stream.

Forced: which calls are possible at each step; and the call comes out of the engine as JSON text, which is turned
into `tool_calls` deltas here when it is complete. Until then the client gets a comment line for each chunk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import httpcore
import msgspec

from lmagent.testing.loopback import LoopbackServer, Received, Response, Step, json_object

MAX_TOKENS = 1024
"""Cap on one reply; the grammars end long before."""

_LETTERS = "[a-zA-Z0-9 .,]"
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Option:
    """A call that the model may choose."""

    name: str  # the tool
    # for each argument the values to choose from, or a number: free text of at most so many characters
    arguments: Mapping[str, Sequence[Any] | int]


@dataclass(frozen=True, slots=True)
class ForcedAnswer:
    """The model must answer in text of `least` to `most` characters."""

    least: int = 20
    most: int = 120


Plan = Callable[[Received], Sequence[Option] | ForcedAnswer]


def read_all_then_write(files: Sequence[str], target: str, *, tool: str = "read", length: int = 200) -> Plan:
    """Return a plan for a summary: read every file, in an order that the model chooses, write `target`, then answer.

    Args:
        files: paths to read.
        target: path to write.
        tool: name of the tool that reads.
        length: characters of the text that is written.
    """

    def plan(received: Received) -> Sequence[Option] | ForcedAnswer:
        done = [function["arguments"] for function in called(received)]
        left = [path for path in files if not any(_names(arguments, path) for arguments in done)]
        if left:
            return [Option(tool, {"path": left})]
        if not any(_names(arguments, target) for arguments in done):
            return [Option("write", {"path": [target], "content": length})]
        return ForcedAnswer()

    return plan


def called(received: Received) -> Iterator[dict[str, str]]:
    """Yield name and arguments of every call in the conversation so far."""
    for message in received.messages:
        for call in _objects(message.get("tool_calls")):
            yield call["function"]


def _names(arguments: str, path: str) -> bool:
    return json_object(msgspec.json.decode(arguments)).get("path") == path


def grammar(choice: Sequence[Option] | ForcedAnswer) -> str:
    """Return the grammar (GBNF) of a step: one compact JSON object with name and arguments, or plain text."""
    if isinstance(choice, ForcedAnswer):
        return f"root ::= {_LETTERS}{{{choice.least},{choice.most}}}"
    alternatives: list[str] = []
    for option in choice:
        parts = [_literal(f'{{"name":{_json(option.name)},"arguments":{{')]
        for place, (name, values) in enumerate(option.arguments.items()):
            parts.append(_literal(("," if place else "") + f"{_json(name)}:"))
            if isinstance(values, int):
                parts.append(f'"\\"" {_LETTERS}{{1,{values}}} "\\""')
            else:
                parts.append("(" + " | ".join(_literal(_json(value)) for value in values) + ")")
        alternatives.append(" ".join([*parts, _literal("}}")]))
    return "root ::= " + " | ".join(alternatives)


def _json(value: Any) -> str:
    return _encode(value).decode()


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class ForcedCalls(LoopbackServer):
    """An OpenAI-compatible proxy of an engine that forces its calls. Streams only.

    Args:
        engine_url: `http://host:port` of the engine.
        plan: the possible calls at each step.

    Attributes:
        usage: the engine's figures for every reply, in order.
    """

    def __init__(self, engine_url: str, plan: Plan) -> None:
        super().__init__(self._answer)
        self.usage: list[dict[str, Any]] = []
        self._engine_url = engine_url
        self._plan = plan

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        return f"{self.url}/v1"

    async def _answer(self, received: Received) -> Response:
        is_chat = received.method == "POST" and received.path.endswith("/chat/completions")
        choice = self._plan(received) if is_chat else None
        body = received.raw if choice is None else _encode(_forwarded(received.fields, grammar(choice)))
        pool = httpcore.AsyncConnectionPool(max_keepalive_connections=0)  # the engine closes idle ones at any time
        url = self._engine_url + received.path
        request = httpcore.Request(
            received.method,
            url,
            headers={"Host": "engine", "Content-Type": "application/json", "Content-Length": str(len(body))},
            content=body,
        )
        answer = await pool.handle_async_request(request)
        if answer.status != 200 or choice is None:
            content = await answer.aread()
            await pool.aclose()
            return Response((content,), answer.status, {"Content-Type": "application/json"})
        steps = self._relay(answer, pool, is_answer=isinstance(choice, ForcedAnswer))
        return Response(steps, headers={"Content-Type": "text/event-stream"}, framing="chunked")

    async def _relay(
        self, answer: httpcore.Response, pool: httpcore.AsyncConnectionPool, *, is_answer: bool
    ) -> AsyncIterator[Step]:
        text, finish, last = "", "stop", dict[str, Any]()
        try:
            async for event in _events(answer):
                chunk = _payload(event)
                for choice in _objects(chunk.get("choices")):
                    text += choice["delta"].get("content") or ""
                    finish = choice.get("finish_reason") or finish
                if chunk.get("usage"):
                    self.usage.append(chunk["usage"])
                    last = chunk
                yield event if is_answer else b": a token\n\n"
        finally:
            await answer.aclose()
            await pool.aclose()
        if not is_answer:
            for event in _call_events(text, finish, last, len(self.usage)):
                yield event


def _forwarded(fields: Mapping[str, Any], rule: str) -> dict[str, Any]:
    """Return the request for the engine: the tools become part of the rendered prompt, the grammar is added."""
    kept = {name: value for name, value in fields.items() if name not in ("tools", "tool_choice", "response_format")}
    offered = {"offered": _objects(fields.get("tools"))}
    return kept | {"grammar": rule, "max_tokens": MAX_TOKENS, "chat_template_kwargs": offered}


async def _events(answer: httpcore.Response) -> AsyncIterator[bytes]:
    """Yield the events of the engine's stream, each with its blank line."""
    held = b""
    async for data in answer.aiter_stream():
        held += data
        while b"\n\n" in held:
            event, _, held = held.partition(b"\n\n")
            yield event + b"\n\n"


def _objects(value: Any) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", value) if isinstance(value, list) else []


def _payload(event: bytes) -> dict[str, Any]:
    if not event.startswith(b"data: {"):
        return {}
    return json_object(msgspec.json.decode(event[6:]))


def _call_events(text: str, finish: str, last: Mapping[str, Any], number: int) -> Iterator[bytes]:
    """Yield the engine's JSON text as deltas of one call; text that the token limit cut stays text."""
    frame = {name: last.get(name) for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        return b"data: " + _encode(frame | {"choices": choices}) + b"\n\n"

    yield event({"role": "assistant", "content": None})
    if finish == "length":
        yield event({"content": text})
        yield event({}, "length")
    else:
        call = json_object(msgspec.json.decode(text))
        arguments = _encode(call["arguments"]).decode()
        head = {"index": 0, "id": f"call_{number:06d}", "type": "function"}
        yield event({"tool_calls": [head | {"function": {"name": call["name"], "arguments": ""}}]})
        for at in range(0, len(arguments), 12):
            yield event({"tool_calls": [{"index": 0, "function": {"arguments": arguments[at : at + 12]}}]})
        yield event({}, "tool_calls")
    if last:
        yield b"data: " + _encode(last) + b"\n\n"
    yield b"data: [DONE]\n\n"
