"""Fitting: shorten the results in messages to a total size, each by as little as possible; small ones stay whole."""

from __future__ import annotations

from collections.abc import Sequence

from lmagent.core.messages import Message, ToolResult
from lmagent.engine import intake
from lmagent.engine.state import message_bytes

SMALLEST = 400
"""Texts below this many bytes are not shortened: less would tell nothing."""


MARK = 80
"""Bytes of the line about the missing part."""


def fitted(messages: Sequence[Message], size: int) -> list[Message]:
    """Return the messages within `size` bytes, as far as shorter results achieve that."""
    total = sum(map(message_bytes, messages))
    if total <= size:
        return list(messages)
    results = [len(_content(message).encode("utf-8", "replace")) for message in messages if message.role == "tool"]
    cap = level(results, size - total + sum(results))
    return [_shortened(message, cap) for message in messages]


def level(sizes: Sequence[int], room: int) -> int:
    """Return the cap on the largest sizes with which all of them fit; at least `SMALLEST`."""
    for position, size in enumerate(ordered := sorted(sizes)):
        share = room // (len(ordered) - position)
        if size > share:
            return max(SMALLEST, share - MARK)
        room -= size
    return max((SMALLEST, *sizes))


def _content(message: Message) -> str:
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    return result.content


def _shortened(message: Message, size: int) -> Message:
    if message.role != "tool":
        return message
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    return Message("tool", (ToolResult(result.call_id, result.status, intake.shorten(result.content, size)),))
