"""Message: the model's conversation, in no provider's dialect.

The system text is not a message: it is fixed for the life of a session (`events.SessionCreated`).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Role = Literal["user", "assistant", "tool"]
ToolStatus = Literal["ok", "error", "denied", "interrupted"]

NO_WORDS = "(no reply)"
"""Replaces an empty reply: an empty assistant message is an error in many chat templates."""

CUT_OFF = "[cut off: this reply did not end]"
"""Follows the beginning of a reply that was cut off because it did not end."""

STOPPED = "\n[interrupted here]"
"""Follows the beginning of a reply whose turn was stopped. The model reads it; users see a notice instead."""


class Text(Struct, frozen=True, tag_field="type", tag="text"):
    """Text of the user or the model."""

    text: str


class Image(Struct, frozen=True, tag_field="type", tag="image"):
    """An image.

    Attributes:
        media_type: for example `image/png`.
        data: its bytes in base64.
    """

    media_type: str
    data: str


class Thinking(Struct, frozen=True, tag_field="type", tag="thinking"):
    """The model's thought. Kept in the log; sent back only where the model's rule asks for it."""

    text: str


class ToolCall(Struct, frozen=True, tag_field="type", tag="tool_call"):
    """A call that the model asked for.

    Attributes:
        id: unique within the session; ours if the server gave none or one used before.
        name: as the model wrote it.
        arguments: the JSON text exactly as the model wrote it; it may be damaged.
    """

    id: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True, tag_field="type", tag="tool_result"):
    """The result of a call; `content` is capped once, when it is recorded."""

    call_id: str
    status: ToolStatus
    content: str


Part = Text | Image | Thinking | ToolCall | ToolResult


class Message(Struct, frozen=True):
    """One message. A `tool` message holds exactly one ToolResult."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All its text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Its tool calls, in the model's order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def user(text: str) -> Message:
    """A user message of plain text."""
    return Message("user", (Text(text),))


def assistant(text: str) -> Message:
    """An assistant message of plain text."""
    return Message("assistant", (Text(text),))
