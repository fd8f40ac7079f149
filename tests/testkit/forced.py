"""ForcedCalls: lets a model with random weights act like an agent, through the real engine.

    with EngineServer(model) as engine, ForcedCalls(engine.url, read_all_then_write(files, "SUMMARY.md")) as server:
        ...                       # point an agent at server.base_url

A random model would never write a valid call. So this server asks the engine for each reply with a grammar: at every
step a plan says which calls (or that an answer) may come, and the model samples one of them.

Real: the whole prompt with its tools, tokenised and read by llama.cpp; its prompt cache; its window and its errors;
sampling, token by token, under the engine's grammar; the figures. The reply is streamed here once it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpcore
import msgspec

from lmagent.testing.loopback import Received, json_object
from lmagent.testing.script import Behaviour, Counts, PlainAnswer, Reply, ScriptedCall, status
from lmagent.testing.server import ScriptedServer

MAX_TOKENS = 1024  # cap on one reply; the grammars end long before
_LETTERS = "[a-zA-Z0-9 .,]"
_REPLACED = ("tools", "tool_choice", "response_format", "stream_options")
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
        for call in message.get("tool_calls") or ():
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


class ForcedCalls(ScriptedServer):
    """An OpenAI-compatible server whose replies an engine writes, under a grammar.

    Args:
        engine_url: `http://host:port` of the engine.
        plan: the possible calls at each step.

    Attributes:
        usage: the engine's figures for every reply, in order.
    """

    def __init__(self, engine_url: str, plan: Plan) -> None:
        super().__init__(self._reply)
        self.usage: list[dict[str, Any]] = []
        self._engine_url = engine_url
        self._plan = plan

    def _get(self, received: Received) -> PlainAnswer:
        return self._ask(received, b"")

    def _ask(self, received: Received, body: bytes) -> PlainAnswer:
        fields = [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
        answer = httpcore.request(received.method, self._engine_url + received.path, headers=fields, content=body)
        return status(answer.status, answer.content)

    def _reply(self, received: Received) -> Behaviour:
        choice, fields = self._plan(received), received.fields
        kept = {name: value for name, value in fields.items() if name not in _REPLACED}
        # The tools become part of the prompt by the template of `testkit.gguf`.
        forced = {"grammar": grammar(choice), "max_tokens": MAX_TOKENS, "stream": False}
        offered: dict[str, Any] = {"chat_template_kwargs": {"offered": fields.get("tools") or []}}
        answer = self._ask(received, _encode(kept | forced | offered))
        content = answer.chunks[0]
        if answer.code != 200 or not isinstance(content, bytes):
            return answer
        completion = json_object(msgspec.json.decode(content))
        usage, written = completion["usage"], completion["choices"][0]
        self.usage.append(usage)
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        counts = Counts(usage["prompt_tokens"], usage["completion_tokens"], cached)
        text, finish = written["message"]["content"], written["finish_reason"]
        if isinstance(choice, ForcedAnswer) or finish == "length":
            return Reply(text=text, finish=finish, usage=counts)
        call = json_object(msgspec.json.decode(text))
        return Reply(calls=(ScriptedCall(call["name"], _json(call["arguments"])),), usage=counts)
