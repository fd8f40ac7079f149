"""Recover: a reply that the engine could not parse is written again as plain text, and parsed here.

The engine answers such a reply with 500 and throws it away. The same prompt (`/apply-template`) with the same seed
gives the same tokens again (`/completion`); `/detokenize` shows the special ones among them too, by which many models
mark their calls.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from lmagent.core.messages import ToolCall
from lmagent.core.model import ToolSpec
from lmagent.modelserver.errors import refused
from lmagent.modelserver.http.upstream import Upstream
from lmagent.modelserver.spec import RunningModel
from lmagent.providers import jsontext
from lmagent.providers.foundcalls import find_calls

UNPARSED = "does not match the expected"
"""Words of the engine's error (llama.cpp, `common_chat_peg_parse`)."""

_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "top_n_sigma", "stop", "seed", "logit_bias", "mirostat"),
    *("frequency_penalty", "presence_penalty", "repeat_penalty", "repeat_last_n", "dynatemp_range", "samplers"),
    *("dry_multiplier", "dry_base", "dry_allowed_length", "xtc_probability", "xtc_threshold", "id_slot"),
)
_END = re.compile(r"(?:<[|｜][^<>|｜]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>)\s*\Z")


class Recovered(Struct, frozen=True):
    """A reply that was parsed here."""

    content: str  # the answer
    thinking: str = ""  # the thoughts before it
    calls: tuple[ToolCall, ...] = ()  # whole calls
    finish: str = "stop"  # "stop", "tool_calls" or "length"
    usage: Mapping[str, int] = {}  # OpenAI's `usage`

    def completion(self, model: str, number: str) -> bytes:
        choice = {"index": 0, "message": self.message(), "finish_reason": self.finish}
        return jsontext.dumps(
            {
                "id": f"chatcmpl-{number}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": model,
                "choices": [choice],
                "usage": self.usage,
            }
        )

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.content or (None if self.calls else "")}
        if self.thinking:
            message["reasoning_content"] = self.thinking
        if self.calls:
            message["tool_calls"] = [call_fields(call.id, call.name, call.arguments) for call in self.calls]
        return message


def call_fields(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def seeded(body: dict[str, Any]) -> dict[str, Any]:
    """Add a seed to the request, so that its reply can be written again."""
    seed = body.get("seed")
    if isinstance(seed, int) and seed >= 0:
        return body
    return {**body, "seed": secrets.randbelow(1 << 31)}


def tool_specs(body: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    if body.get("tool_choice") == "none":
        return ()
    functions = [cast("dict[str, Any]", tool["function"]) for tool in body.get("tools") or ()]
    return tuple(
        ToolSpec(str(function["name"]), str(function.get("description") or ""), function.get("parameters") or {})
        for function in functions
    )


def parsed(text: str, tools: Sequence[ToolSpec], finish: str, usage: Mapping[str, int]) -> Recovered:
    """Parse a whole text, without a call that the limit of tokens cut off."""
    found = find_calls(text, tools, cut=finish == "length")
    calls = tuple(call for call in found.calls if call.id not in found.truncated)
    if finish != "length":
        finish = "tool_calls" if calls else "stop"
    return Recovered(found.content, found.thinking, calls, finish, usage)


async def written_again(upstream: Upstream, running: RunningModel, body: Mapping[str, Any]) -> Recovered:
    """Write a reply again that the engine could not parse, with the request that the engine got."""
    rendered = await _ask(upstream, running, "/apply-template", body)
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    request: dict[str, Any] = {name: body[name] for name in _SAMPLING if body.get(name) is not None}
    request |= {"prompt": rendered["prompt"], "return_tokens": True, "cache_prompt": True, "stream": False}
    if limit:
        request["n_predict"] = limit
    form = body.get("response_format")
    if isinstance(form, dict) and (schema := _schema_of(cast("dict[str, Any]", form))) is not None:
        request["json_schema"] = schema
    written = await _ask(upstream, running, "/completion", request)
    text = str(written.get("content") or "")
    if tokens := written.get("tokens"):
        shown = str((await _ask(upstream, running, "/detokenize", {"tokens": tokens})).get("content") or "")
        text = _without_end(shown, text) or text
    finish = "length" if written.get("stop_type") == "limit" else "stop"
    read, count = int(written.get("tokens_evaluated") or 0), int(written.get("tokens_predicted") or 0)
    usage = {"prompt_tokens": read, "completion_tokens": count, "total_tokens": read + count}
    return parsed(text, tool_specs(body), finish, usage)


def _schema_of(form: Mapping[str, Any]) -> Any:
    if form.get("type") == "json_schema":
        return cast("dict[str, Any]", form.get("json_schema") or {}).get("schema")
    return {"type": "object"} if form.get("type") == "json_object" else None


def _without_end(shown: str, plain: str) -> str:
    """Remove the special tokens that only end the text; `plain` is the text without any."""
    while (end := _END.search(shown)) and not plain.rstrip().endswith(end[0].rstrip()):
        shown = shown[: end.start()]
    return shown


async def _ask(upstream: Upstream, running: RunningModel, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    status, answer = await upstream.ask("POST", running.address + path, jsontext.dumps(body), running.key)
    if status >= 400:
        raise refused(status, answer, running.entry.name)
    return cast("dict[str, Any]", jsontext.loads(answer))
