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

from collections.abc import AsyncGenerator, AsyncIterator, Sequence, Set
from contextlib import aclosing
from typing import Any

import anyio

from lmagent.core.errors import BadReply, ContextOverflow
from lmagent.core.messages import Image, Message, Thinking, ToolCall, ToolResult
from lmagent.core.model import ModelRequest
from lmagent.core.ports import Clock
from lmagent.providers import jsontext
from lmagent.providers.assemble import Assembler
from lmagent.providers.concealed import hidden, shown
from lmagent.providers.constrain import schema_for, thinks
from lmagent.providers.dialects.base import RequestOptions, ServerFacts
from lmagent.providers.dialects.fields import entries, mapping, number, text
from lmagent.providers.dialects.ollama import choose_window, native_extras
from lmagent.providers.dialects.wirebody import tool_block
from lmagent.providers.encode import UNREADABLE, BodyEncoder
from lmagent.providers.openai_chat import DRAIN, OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import ErrorChunk, Timeouts, Transport, TransportError, TransportResponse
from lmagent.providers.urls import server_root

_KEPT = 4
"""Conversations whose encoding is kept."""
_LINE = 32 * 1024 * 1024
"""Bytes of the longest line."""


class OllamaChat(OpenAIChat):
    """An Ollama server by its native route.

    Args:
        base_url: base URL, with or without `/v1`.
        api_key: sent as a bearer token; empty sends none.
        facts: the result of the probe: the window to keep, whether the model thinks.
        window: tokens wanted; a larger loaded window is kept, and the model's maximum is not exceeded.
        options: thinking and `keep_alive`.
        transport: shared, and closed with this.

    Attributes:
        num_ctx: the window in every request.

    Raises:
        ConfigError: `base_url` is no URL.
    """

    def __init__(  # noqa: PLR0913 (settings by keyword)
        self,
        base_url: str,
        api_key: str = "",
        *,
        facts: ServerFacts,
        window: int,
        transport: Transport,
        clock: Clock,
        options: RequestOptions = RequestOptions(),  # noqa: B008  # frozen
        timeouts: Timeouts = Timeouts(),  # noqa: B008  # frozen
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008  # frozen
    ) -> None:
        super().__init__(base_url, api_key, transport=transport, clock=clock, timeouts=timeouts, retries=retries)
        self.url = f"{server_root(base_url)}/api/chat"
        self.num_ctx = choose_window(facts.model, window)
        self._encoder = NativeEncoder(self.num_ctx, facts, options)
        self._model = facts.model.id if facts.model is not None else ""

    async def _refused(self, request: ModelRequest, response: TransportResponse) -> None:
        try:
            await super()._refused(request, response)
        except ContextOverflow as overflow:
            overflow.window = overflow.window or self.num_ctx  # one of the two refusals has no figure
            raise

    def _batches(self, response: TransportResponse, assembler: Assembler) -> AsyncGenerator[list[bytes]]:
        return _chunks(response, assembler, self.url)


# --- the request --------------------------------------------------------------------------------------------------


class _Conversation:
    """Encoded messages of one conversation, and the names of the tools by call id."""

    __slots__ = ("encoded", "keep_thinking", "messages", "names")

    def __init__(self, *, keep_thinking: bool) -> None:
        self.keep_thinking = keep_thinking
        self.messages: list[Message] = []
        self.encoded: list[bytes] = []
        self.names: dict[str, str] = {}

    def follow(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the encoding of `messages`; only new messages are encoded."""
        known = 0
        for mine, other in zip(self.messages, messages, strict=False):
            if mine is not other:
                break
            known += 1
        del self.messages[known:], self.encoded[known:]
        for message in messages[known:]:
            self.names |= {call.id: call.name for call in message.tool_calls}
            wired = _wire(message, self.names, keep_thinking=self.keep_thinking)
            self.encoded.append(b",".join(jsontext.dumps(wire) for wire in wired))
            self.messages.append(message)
        return [piece for piece in self.encoded if piece]


class NativeEncoder(BodyEncoder):
    """Encodes requests for `/api/chat`; `messages` come last, as on the common route."""

    def __init__(self, num_ctx: int, facts: ServerFacts, options: RequestOptions) -> None:
        super().__init__()
        self._num_ctx = num_ctx
        self._facts = facts
        self._options = options
        self._known: list[_Conversation] = []

    def encode(self, request: ModelRequest, omit: Set[str] = frozenset(), *, model: str = "") -> bytes:
        options: dict[str, Any] = {"num_ctx": self._num_ctx, **request.sampling.given()}
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if request.max_tokens is not None:
            options["num_predict"] = request.max_tokens
        head: dict[str, Any] = {"model": request.model or model, "stream": True, "options": options}
        head |= native_extras(request, self._facts, self._options)
        if request.constrain:  # a constrained call is the answer itself; there is no `tool_choice` to say so
            head["format"] = schema_for(request.tools, think=thinks(request.messages))
        if request.tools:
            head["tools"] = tool_block(request)
        system = [jsontext.dumps({"role": "system", "content": request.system})] if request.system else []
        messages = b",".join([*system, *self._of(request).follow(request.messages)])
        return jsontext.dumps(head)[:-1] + b',"messages":[' + messages + b"]}"

    def call_ids(self, request: ModelRequest) -> frozenset[str]:
        return frozenset(self._of(request).names)

    def _of(self, request: ModelRequest) -> _Conversation:
        """Return the conversation that the request continues or branches off from."""
        for at, known in enumerate(self._known):
            begins = known.messages and request.messages and known.messages[0] is request.messages[0]
            if begins and known.keep_thinking == request.keep_thinking:
                self._known.append(self._known.pop(at))
                return known
        fresh = _Conversation(keep_thinking=request.keep_thinking)
        self._known = [*self._known[1 - _KEPT :], fresh]
        return fresh


def _wire(message: Message, names: dict[str, str], *, keep_thinking: bool) -> list[dict[str, Any]]:
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
    thought = "\n".join(part.text for part in message.parts if isinstance(part, Thinking))
    if keep_thinking and thought:
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


# --- the reply ----------------------------------------------------------------------------------------------------


class NativeReader:
    """Converts the lines of one reply into chunks of the common API; `server` is its name in errors."""

    def __init__(self, server: str = "the model server") -> None:
        self._server = server
        self._calls = 0

    def chunks(self, line: bytes) -> list[bytes]:
        """Return the chunks of a line.

        Raises:
            ErrorChunk: it reports an error.
            BadReply: it is no JSON object.
        """
        try:
            said = jsontext.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            quoted = hidden(line[:200].decode("utf-8", "replace"))
            raise BadReply(
                f"the stream of {self._server} holds something that is not JSON: {quoted!r}",
                fix="look at the server's log, and whether a proxy is in between",
            )
        if error := mapping(said).get("error"):
            raise ErrorChunk(_unwrapped(error))
        message = mapping(said, "message")
        delta: dict[str, Any] = {"content": message.get("content"), "thinking": message.get("thinking")}
        if calls := entries(message, "tool_calls"):
            delta["tool_calls"] = [self._call(call) for call in calls]
        done = mapping(said).get("done") is True
        chunk: dict[str, Any] = {"choices": [{"delta": delta}], "model": text(said, "model")}
        if not done:
            return [jsontext.dumps(chunk)]
        chunk["choices"][0]["finish_reason"] = _finish(text(said, "done_reason"))
        usage = {"prompt_tokens": number(said, "prompt_eval_count"), "completion_tokens": number(said, "eval_count")}
        return [jsontext.dumps(chunk), jsontext.dumps({"choices": [], "usage": usage}), b"[DONE]"]

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        """Calls come whole, each once; some versions number all of them 0."""
        function = mapping(call, "function")
        numbered = {"id": text(call, "id"), "index": self._calls, "function": function}
        self._calls += 1
        return numbered


def _finish(reason: str) -> str:
    return reason if reason in ("length", "stop") else "stop"  # also `load` and `unload`: the reply is empty


def _unwrapped(error: Any) -> Any:
    """Return the engine's own error, which comes as JSON in the text of Ollama's."""
    if isinstance(error, str) and error.lstrip().startswith("{"):
        try:
            return jsontext.loads(error.encode("utf-8", "replace"))
        except ValueError:
            return error
    return error


async def _chunks(response: TransportResponse, assembler: Assembler, url: str) -> AsyncGenerator[list[bytes]]:
    reader = NativeReader(shown(url))
    prompt = _prompt(response.chunks, assembler)
    async with aclosing(_lines(prompt, url, response.headers.get("content-type", ""))) as batches:
        async for lines in batches:
            for line in lines:
                yield reader.chunks(line)


async def _prompt(chunks: AsyncIterator[bytes], assembler: Assembler) -> AsyncGenerator[bytes]:
    """Yield the body; after the reply is complete, only for a bounded time in all: blank lines do not prolong it."""
    until: float | None = None
    while True:
        chunk: bytes | None = None
        if assembler.done and until is None:
            until = anyio.current_time() + DRAIN
        try:
            with anyio.move_on_after(None if until is None else max(0.0, until - anyio.current_time())):
                chunk = await anext(chunks, None)
        except TransportError:
            if not assembler.done:  # the end of the connection no longer matters
                raise
        if chunk is None:
            return
        yield chunk


async def _lines(chunks: AsyncIterator[bytes], url: str, content_type: str) -> AsyncGenerator[list[bytes]]:
    held = b""
    begun = False
    async for chunk in chunks:
        held += chunk
        if not begun and held.lstrip():
            begun = True
            if held.lstrip()[:1] != b"{":
                raise _no_reply(held, content_type, url)
        *whole, held = held.split(b"\n")
        if len(held) > _LINE:
            raise BadReply("the server's stream holds a line that does not end", fix="look at the server's log")
        yield [line for line in whole if line.strip()]
    if not begun:
        raise _no_reply(held, content_type, url)
    if held.strip() and jsontext.is_object(held.decode("utf-8", "replace")):
        yield [held]  # the last line needs no line end; half a line is not JSON


def _no_reply(body: bytes, content_type: str, url: str) -> BadReply:
    from lmagent.providers import failures

    return failures.not_a_reply(body, content_type, url=url)
