"""Encode: a ModelRequest as the JSON body of a chat completion.

`messages` comes last, so that within a conversation one body, up to its closing brackets, is a byte-exact beginning of
the next. Encoded messages are kept: a step costs the same at message 1,000 as at message 10.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from lmagent.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult
from lmagent.core.model import ModelRequest, ToolSpec
from lmagent.providers import jsontext

_KEPT = 4
"""Conversations whose encoding is kept: a session, its side calls and a few sub-agents."""
_BAD_NAME = re.compile(r"[^A-Za-z0-9_-]")
UNREADABLE = {"unreadable": "see the result"}
"""Replaces damaged arguments in the history: strict servers refuse arguments that are not JSON, and a model repeats
its own visible errors. The call's result quotes them."""


class _Conversation:
    """Encoded messages of one conversation, and the names of the tools by call id."""

    __slots__ = ("buffer", "ends", "keep_thinking", "messages", "names", "start", "system")

    def __init__(self, system: str, *, keep_thinking: bool) -> None:
        self.system = system
        self.keep_thinking = keep_thinking
        self.messages: list[Message] = []
        self.ends: list[int] = []
        self.names: dict[str, str] = {}
        self.buffer = bytearray()
        if system:
            self.buffer += jsontext.dumps({"role": "system", "content": system})
        self.start = len(self.buffer)

    def is_of(self, request: ModelRequest) -> bool:
        """Return whether the request continues this conversation, or branches off from it."""
        return (
            self.system == request.system
            and self.keep_thinking == request.keep_thinking
            and (not self.messages or (len(request.messages) > 0 and request.messages[0] is self.messages[0]))
        )


class BodyEncoder:
    """Encodes requests; keeps the encodings of the last few conversations."""

    def __init__(self) -> None:
        self._conversations: list[_Conversation] = []
        self._tools: tuple[ToolSpec, ...] = ()
        self._tool_block = b""

    def encode(
        self,
        request: ModelRequest,
        omit: Set[str] = frozenset(),
        *,
        model: str = "",
        extras: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the body.

        Args:
            omit: fields that the server does not know. With `max_tokens` in it, the limit is sent as
                `max_completion_tokens`, unless that is in it too.
            model: used if the request leaves the choice to the server.
            extras: fields that precede the others.
        """
        head = self.head(request, omit, request.model or model, extras or {})
        return b"".join((head, b'"messages":[', self._messages(request), b"]}"))

    def call_ids(self, request: ModelRequest) -> frozenset[str]:
        """Return the ids of all calls that were ever sent in the request's conversation; call it after `encode`."""
        return frozenset(self._conversation(request).names)

    def head(self, request: ModelRequest, omit: Set[str], model: str, extras: Mapping[str, Any]) -> bytes:
        limit = "max_completion_tokens" if "max_tokens" in omit else "max_tokens"
        fields: dict[str, Any] = {
            **extras,
            "model": model or None,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": request.temperature,
            **request.sampling.given(),
            limit: request.max_tokens,
        }
        head = [_field(key, value) for key, value in fields.items() if value is not None and key not in omit]
        constrained = None
        if request.constrain:
            from lmagent.providers.constrain import schema_for, thinks  # few models need it

            constrained = schema_for(request.tools, think=thinks(request.messages))
        if request.tools:
            if request.tools is not self._tools:
                self._tools, self._tool_block = request.tools, _field("tools", tool_block(request))
            head.append(self._tool_block)
            if (request.tool_choice != "auto" or constrained) and "tool_choice" not in omit:
                head.append(b'"tool_choice":"none",')  # a constrained call is the answer itself
        wanted = constrained or request.response_schema
        if wanted is not None and "response_format" not in omit:
            schema = {"name": "answer", "strict": True, "schema": wanted}
            head.append(_field("response_format", {"type": "json_schema", "json_schema": schema}))
        return b"{" + b"".join(head)

    def wire(self, message: Message, names: Mapping[str, str], *, keep_thinking: bool) -> list[dict[str, Any]]:
        """Return a message in the form of the API; `names` has the tools of the calls before it."""
        return wire_messages(message, keep_thinking=keep_thinking)

    def _messages(self, request: ModelRequest) -> bytearray:
        """Return the encoding of the messages; only new ones are encoded."""
        known, messages = self._conversation(request), request.messages
        same = len(known.messages)
        # Equality of lists compares by identity first, so this is one quick pass in C.
        if list(messages[:same]) != known.messages:
            same = _common(known.messages, messages)
            del known.messages[same:], known.ends[same:]
            del known.buffer[known.ends[-1] if same else known.start :]
        for message in messages[same:]:
            known.names.update((call.id, call.name) for call in message.tool_calls)
            for wire in self.wire(message, known.names, keep_thinking=known.keep_thinking):
                if known.buffer:
                    known.buffer += b","
                known.buffer += jsontext.dumps(wire)
            known.messages.append(message)
            known.ends.append(len(known.buffer))
        return known.buffer

    def _conversation(self, request: ModelRequest) -> _Conversation:
        for at, known in enumerate(self._conversations):
            if known.is_of(request):
                self._conversations.append(self._conversations.pop(at))
                return known
        fresh = _Conversation(request.system, keep_thinking=request.keep_thinking)
        self._conversations = [*self._conversations[1 - _KEPT :], fresh]
        return fresh


def tool_block(request: ModelRequest) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in request.tools
    ]


def chat_body(request: ModelRequest) -> dict[str, Any]:
    """Return the part of a request that becomes the prompt, for routes that count or render it."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        messages += wire_messages(message, keep_thinking=request.keep_thinking)
    return {"messages": messages, **({"tools": tool_block(request)} if request.tools else {})}


def wire_messages(message: Message, *, keep_thinking: bool) -> list[dict[str, Any]]:
    """Return a message in the form of the API; a `tool` message gives one for each result."""
    match message.role:
        case "user":
            return [{"role": "user", "content": _user_content(message)}]
        case "assistant":
            return [_assistant(message, keep_thinking=keep_thinking)]
        case "tool":
            return [
                {"role": "tool", "tool_call_id": part.call_id, "content": part.content}
                for part in message.parts
                if isinstance(part, ToolResult)
            ]


def _user_content(message: Message) -> str | list[dict[str, Any]]:
    """Return plain text if possible: some servers do not take a list of parts."""
    if not any(isinstance(part, Image) for part in message.parts):
        return message.text
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Image):
            url = f"data:{part.media_type};base64,{part.data}"
            content.append({"type": "image_url", "image_url": {"url": url}})
    return content


def _assistant(message: Message, *, keep_thinking: bool) -> dict[str, Any]:
    calls = message.tool_calls
    # Beside calls, an empty text is an error for some servers and templates; null is an error for none.
    wire: dict[str, Any] = {"role": "assistant", "content": message.text or (None if calls else "")}
    if keep_thinking and (thought := thought_of(message)):
        wire["reasoning_content"] = thought
    if calls:
        wire["tool_calls"] = [_call(call) for call in calls]
    return wire


def thought_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Thinking))


def _call(call: ToolCall) -> dict[str, Any]:
    name = _BAD_NAME.sub("_", call.name)[:64] or "unnamed"
    return {"id": call.id, "type": "function", "function": {"name": name, "arguments": _arguments(call.arguments)}}


def _arguments(raw: str) -> str:
    if jsontext.is_object(raw):
        return raw
    return jsontext.dumps(UNREADABLE).decode() if raw.strip() else "{}"


def _field(key: str, value: Any) -> bytes:
    return b'"%s":%s,' % (key.encode(), jsontext.dumps(value))


def _common(ours: Sequence[Message], theirs: Sequence[Message]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((at for at, (mine, other) in pairs if mine is not other), min(len(ours), len(theirs)))
