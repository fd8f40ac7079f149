"""Transformers chat: a request in OpenAI's words as what a transformers model is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from lmagent.modelserver.engine.transformers_model import Asked, RequestError

if TYPE_CHECKING:
    from lmagent.modelserver.engine.transformers_model import TransformersModel

_NO_GRAMMAR = "this engine keeps to no grammar or JSON schema; run the model as a GGUF file for that"


def asked_for(model: TransformersModel, body: Mapping[str, Any]) -> Asked:
    """What to generate for a request.

    Raises:
        RequestError: the request cannot be served.
    """
    _check(body)
    tools = body.get("tools") if body.get("tool_choice") != "none" else None
    try:
        messages = [_message(message) for message in body["messages"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"`messages` are not as OpenAI's API has them: {error!r}") from error
    tokens = model.prompt(messages, tools, part(body, "chat_template_kwargs"))
    room = (model.context or len(tokens) + 4096) - len(tokens)
    if room < 1:
        text = f"the prompt has {len(tokens)} tokens, and the window {model.context}"
        raise RequestError(f"{text}: it exceeds the available context size", "context_length_exceeded")
    limit = _number(body, "max_completion_tokens", _number(body, "max_tokens", room))
    stops = body.get("stop") or ()
    seed = body.get("seed")
    return Asked(
        tokens,
        max(1, min(int(limit if limit >= 0 else room), room)),
        temperature=_number(body, "temperature", 1.0),
        top_p=min(1.0, max(0.01, _number(body, "top_p", 1.0))),
        seed=seed if isinstance(seed, int) and seed >= 0 else None,
        stops=(stops,) if isinstance(stops, str) else tuple(str(stop) for stop in stops),
    )


def part(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field that is an object; empty where it is missing or something else."""
    value = body.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _check(body: Mapping[str, Any]) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("`messages` has to be a list with at least one message")
    if body.get("n") not in (None, 1):
        raise RequestError("`n` can only be 1")
    if part(body, "response_format").get("type", "text") != "text" or body.get("grammar"):
        raise RequestError(_NO_GRAMMAR, "not_supported")
    if body.get("tool_choice") not in (None, "auto", "none"):
        raise RequestError(f"`tool_choice` can be auto or none: {_NO_GRAMMAR}", "not_supported")


def _message(message: Any) -> dict[str, Any]:
    """As templates want it: the content one text, the arguments of calls an object."""
    if not isinstance(message, dict):
        raise RequestError("a message has to be an object")
    plain = dict(cast("dict[str, Any]", message))
    plain["content"] = _text(plain.get("content"))
    if calls := plain.get("tool_calls"):
        plain["tool_calls"] = [_call(call) for call in calls]
    return plain


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[str] = []
    for part in content:
        if part.get("type") not in ("text", "input_text"):
            raise RequestError(f"this engine reads text only, not {part.get('type')}", "not_supported")
        parts.append(str(part.get("text", "")))
    return "\n".join(parts)


def _call(call: Any) -> dict[str, Any]:
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        with suppress(ValueError):
            function["arguments"] = json.loads(function["arguments"] or "{}")
    return {**call, "function": function}


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"`{name}` has to be a number")
    return value
