"""Jobs: the changes that a request and its answer need, decided by the engine and the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from lmagent.core.messages import ToolCall
from lmagent.core.model import ToolSpec
from lmagent.modelserver.errors import BadRequest
from lmagent.modelserver.http.bodies import RelayRequest
from lmagent.modelserver.http.chunks import Changing, EnforcedCalls, TextCalls
from lmagent.modelserver.http.enforce import CallReader, RequiredCalls, allowed_only, choice_of, enforced
from lmagent.modelserver.http.recover import Recovered, call_fields, parsed, seeded, tool_specs
from lmagent.modelserver.spec import Engine, RunningModel
from lmagent.providers import jsontext

MOST_TOKENS = 2**31 - 1
"""The largest limit of tokens that the engine can take."""

_LIMITS = ("max_tokens", "max_completion_tokens")


class RelayJob(Struct, frozen=True):
    """A request with the changes that it needs."""

    body: dict[str, Any]  # as the engine gets it
    choice: RequiredCalls | None = None  # calls that were enforced
    tools: tuple[ToolSpec, ...] | None = None  # tools whose calls come as text; None where the engine finds them itself
    recoverable: bool = False  # a reply that the engine cannot parse can be had again

    def changing(self) -> Changing | None:
        """Return the changes of the stream; None if it is passed on unchanged."""
        if self.choice is not None:
            return Changing(EnforcedCalls())
        return Changing(TextCalls(self.tools)) if self.tools is not None else None

    def changed(self, answer: bytes) -> bytes:
        """Return the client's answer for the engine's, which is not a stream."""
        if self.choice is None and self.tools is None:
            return answer
        fields = cast("dict[str, Any]", jsontext.loads(answer))
        return jsontext.dumps({**fields, "choices": [self._choice(choice) for choice in fields.get("choices") or ()]})

    def recovered(self, reply: Recovered) -> Recovered:
        """Turn the enforced JSON of a recovered reply into calls."""
        if self.choice is None:
            return reply
        reader = CallReader()
        reader.feed(reply.content)
        calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in reader.whole)
        finish = "tool_calls" if calls and reply.finish == "stop" else reply.finish
        return Recovered("", reply.thinking, calls, finish, reply.usage)

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        message = cast("dict[str, Any]", choice.get("message") or {})
        text, finish = message.get("content"), str(choice.get("finish_reason") or "stop")
        if not isinstance(text, str) or not text or message.get("tool_calls"):
            return choice
        if self.tools is not None:
            reply = parsed(text, self.tools, finish, {})
            return {**choice, "message": {**message, **reply.message()}, "finish_reason": reply.finish}
        reader = CallReader()
        reader.feed(text)
        calls = [call_fields(call.id, call.name, call.arguments) for call in reader.whole]
        if calls:
            message = {**message, "content": None, "tool_calls": calls}
            return {**choice, "message": message, "finish_reason": "tool_calls" if finish == "stop" else finish}
        if finish == "length":  # half a call is not shown
            return {**choice, "message": {**message, "content": None}}
        return choice


def job_for(asked: RelayRequest, running: RunningModel) -> RelayJob:
    """Decide how a request is served; refuse one that its engine cannot serve."""
    body = {**asked.body, "model": running.model}
    if asked.route != "chat":
        return RelayJob(body)
    engine = running.entry.engine
    if engine == "upstream":
        return RelayJob(body)  # a server of its own: it decides, as it does for those who ask it directly
    body = _within(body)
    choice = choice_of(body)
    body = allowed_only(body)
    if engine == "transformers":
        _must_be_free(engine, choice, body)
        tools = tool_specs(body)
        return RelayJob(body, tools=tools or None)
    body = seeded(body)
    one = body.get("n") in (None, 1)
    if choice is not None:
        try:
            return RelayJob(enforced(body, choice), choice, recoverable=one)
        except RecursionError:
            raise BadRequest("the schema of a tool is nested too deeply", param="tools") from None
    return RelayJob(body, recoverable=one)


def _within(body: dict[str, Any]) -> dict[str, Any]:
    """Lower huge limits of tokens: the engine would take the lower 32 bits of a larger number."""
    limits = {name: MOST_TOKENS for name in _LIMITS if isinstance(body.get(name), int) and body[name] > MOST_TOKENS}
    return {**body, **limits} if limits else body


def _must_be_free(engine: Engine, choice: RequiredCalls | None, body: Mapping[str, Any]) -> None:
    form = cast("dict[str, Any]", body.get("response_format") or {}).get("type", "text")
    if choice is None and form == "text":
        return
    field = "tool_choice" if choice is not None else "response_format"
    raise BadRequest(
        f"'{field}' cannot be enforced: the engine {engine!r} has no grammars",
        param=field,
        code="not_supported",
        fix="use the model as a GGUF file, or leave the choice to it",
    )
