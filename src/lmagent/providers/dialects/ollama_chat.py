"""OllamaChat: the Provider for Ollama's own chat route, `POST /api/chat`, the only one that obeys `num_ctx`.

Its stream has one JSON object in each line. Each gets the shape of a chunk of the common API, so that the same code
assembles thoughts, calls and usage. Differences from the common API:

- Arguments of calls are objects in both directions; results name their tool; images are bare base64.
- `options` hold `num_ctx`, `temperature` and `num_predict`. Another `num_ctx` than the loaded one reloads the model, so
it is constant for the life of this object.
- `truncate` and `shift` set to false make it refuse a prompt that does not fit, with the figures in the refusal.
- It has no `tool_choice`: "none" is not possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from lmagent.core.errors import ContextOverflow
from lmagent.core.messages import Image, Message, ToolCall, ToolResult
from lmagent.core.model import ModelRequest
from lmagent.providers import jsontext
from lmagent.providers.constrain import schema_for, thinks
from lmagent.providers.dialects.base import ModelFacts
from lmagent.providers.dialects.fields import entries, mapping, number, text
from lmagent.providers.dialects.ollama import choose_window
from lmagent.providers.encode import UNREADABLE, BodyEncoder, thought_of, tool_block
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.sse import LineReader
from lmagent.providers.transport import TransportResponse
from lmagent.providers.urls import server_root


class OllamaChat(OpenAIChat):
    """An Ollama server by its native route.

    Args:
        window: tokens wanted; a larger loaded window is kept, and the model's maximum is not exceeded.
        facts: the model for requests without one.
        settings: see `OpenAIChat`.
    """

    def __init__(
        self, base_url: str, api_key: str = "", *, window: int, facts: ModelFacts | None = None, **settings: Any
    ) -> None:
        super().__init__(base_url, api_key, model=facts.id if facts is not None else "", **settings)
        self.url = f"{server_root(base_url)}/api/chat"
        self.num_ctx = choose_window(facts, window)
        self._encoder = NativeEncoder(self.num_ctx)

    async def _refused(self, request: ModelRequest, body: bytes, response: TransportResponse) -> None:
        try:
            await super()._refused(request, body, response)
        except ContextOverflow as overflow:
            overflow.window = overflow.window or self.num_ctx  # one of the two refusals has no figure
            raise

    def _reader(self, begin: bytes) -> LineReader | None:
        return NativeReader() if begin == b"{" else None


class NativeEncoder(BodyEncoder):
    def __init__(self, num_ctx: int) -> None:
        super().__init__()
        self._num_ctx = num_ctx

    def head(self, request: ModelRequest, omit: Set[str], model: str, extras: Mapping[str, Any]) -> bytes:
        options: dict[str, Any] = {"num_ctx": self._num_ctx, **request.sampling.given()}
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if request.max_tokens is not None:
            options["num_predict"] = request.max_tokens
        head: dict[str, Any] = {"model": model, "stream": True, "options": options, "truncate": False, "shift": False}
        if request.constrain:  # a constrained call is the answer itself; there is no `tool_choice` to say so
            head["format"] = schema_for(request.tools, think=thinks(request.messages))
        elif request.response_schema is not None:
            head["format"] = request.response_schema
        if request.tools:
            head["tools"] = tool_block(request)
        return jsontext.dumps(head)[:-1] + b","

    def wire(self, message: Message, names: Mapping[str, str], *, keep_thinking: bool) -> list[dict[str, Any]]:
        if message.role == "tool":
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            return [
                {
                    "role": "tool",
                    "content": part.content,
                    "tool_name": names.get(part.call_id, ""),
                    "tool_call_id": part.call_id,
                }
                for part in results
            ]
        wire: dict[str, Any] = {"role": message.role, "content": message.text}
        if images := [part.data for part in message.parts if isinstance(part, Image)]:
            wire["images"] = images
        if keep_thinking and (thought := thought_of(message)):
            wire["thinking"] = thought
        if message.tool_calls:
            wire["tool_calls"] = [_call(call) for call in message.tool_calls]
        return [wire]


def _call(call: ToolCall) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if jsontext.is_object(call.arguments):
        arguments = jsontext.loads(call.arguments.encode())
    elif call.arguments.strip():
        arguments = dict(UNREADABLE)
    return {"id": call.id, "function": {"name": call.name, "arguments": arguments}}


class NativeReader(LineReader):
    """Converts the lines of one reply into chunks of the common API; the assembler rejects other lines."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def take(self, line: bytes) -> list[bytes]:
        try:
            said = mapping(jsontext.loads(line))
        except ValueError:
            return [line]
        if error := said.get("error"):
            return [jsontext.dumps({"error": _unwrapped(error)})]
        message = mapping(said, "message")
        delta: dict[str, Any] = {"content": message.get("content"), "thinking": message.get("thinking")}
        if calls := entries(message, "tool_calls"):
            delta["tool_calls"] = [self._call(call) for call in calls]
        chunk: dict[str, Any] = {"choices": [{"delta": delta}], "model": text(said, "model")}
        if said.get("done") is not True:
            return [jsontext.dumps(chunk)]
        cut = text(said, "done_reason") == "length"  # also `load` and `unload`: the reply is empty
        chunk["choices"][0]["finish_reason"] = "length" if cut else "stop"
        usage = {"prompt_tokens": number(said, "prompt_eval_count"), "completion_tokens": number(said, "eval_count")}
        return [jsontext.dumps(chunk), jsontext.dumps({"choices": [], "usage": usage}), b"[DONE]"]

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        """Number a call: calls come whole, each once; some versions number all of them 0."""
        self._calls += 1
        return {"id": text(call, "id"), "index": self._calls, "function": mapping(call, "function")}


def _unwrapped(error: Any) -> Any:
    """Return the engine's own error, which comes as JSON in the text of Ollama's."""
    try:
        return jsontext.loads(error.encode("utf-8", "replace")) if isinstance(error, str) else error
    except ValueError:
        return error
