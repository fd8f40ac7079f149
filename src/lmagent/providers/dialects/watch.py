"""Watch: the counts of the conversations of one session, each with a meter of its own.

A conversation is identified by its beginning, and by all that changes the token count of the same messages: another
model has another tokenizer, and some templates leave out tools that may not be called.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from lmagent.core.messages import Message, Text, Thinking, ToolCall, ToolResult
from lmagent.core.model import ModelRequest, Usage
from lmagent.providers.dialects.truth import TruthMeter

_KEPT = 8
"""Conversations whose counts are watched."""


class ModelWatch(Struct):
    """The counts of one conversation; the size of the seen part is kept, not summed up at each step.

    Attributes:
        kind: its other distinguishing features.
        suspected: a cut was suspected once, without proof.
    """

    first: Message | None
    kind: tuple[object, ...]
    meter: TruthMeter
    suspected: bool = False
    seen: list[Message] = field(default_factory=list[Message])
    bytes: int = 0
    thoughts: int = 0

    def size(self, request: ModelRequest) -> int:
        """Return the bytes of system text and messages.

        Of the thoughts, only those after the user's last message count: templates leave out the others.
        """
        known = len(self.seen)
        if list(request.messages[:known]) != self.seen:  # an aside preceded this request, or the tail was joined
            self.seen, self.bytes, self.thoughts, known = [], 0, 0, 0
        for message in request.messages[known:]:
            self.seen.append(message)
            self.bytes += _size(message)
            self.thoughts = 0 if message.role == "user" else self.thoughts + _thoughts(message)
        thoughts = self.thoughts if request.keep_thinking else 0
        return _length(request.system) + self.bytes + thoughts

    def corrected(self, usage: Usage, size: int) -> Usage:
        """Return the counts with the corrected size of the prompt, or our estimate if the server's figure has no
        meaning."""
        counted = self.meter.counted
        if usage.estimated or counted == usage.prompt_tokens:
            return usage
        if counted > 0:
            return replace(usage, prompt_tokens=counted)
        return replace(usage, prompt_tokens=max(1, self.meter.estimate(size)), estimated=True)


class Watches:
    def __init__(self) -> None:
        self._known: list[ModelWatch] = []

    def of(self, request: ModelRequest) -> ModelWatch:
        first = request.messages[0] if request.messages else None
        kind = (request.system, request.model, request.tool_choice, request.constrain)
        for at, known in enumerate(self._known):
            if known.first is first and known.kind == kind:
                self._known.append(self._known.pop(at))
                return known
        fresh = ModelWatch(first, kind, TruthMeter())
        self._known = [*self._known[1 - _KEPT :], fresh]
        return fresh


def _size(message: Message) -> int:
    texts: Sequence[str] = [
        text
        for part in message.parts
        for text in (
            (part.text,)
            if isinstance(part, Text)
            else (part.name, part.arguments)
            if isinstance(part, ToolCall)
            else (part.content,)
            if isinstance(part, ToolResult)
            else ()
        )
    ]
    return sum(map(_length, texts))


def _thoughts(message: Message) -> int:
    return sum(_length(part.text) for part in message.parts if isinstance(part, Thinking))


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
