"""Intake: a tool's output becomes the model's text. It is capped once, here; only a cut shortens it again.

Lines are counted in one way everywhere: they end at a line feed. A cut names the missing lines and the call that shows
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmagent.core.messages import Message, ToolResult
from lmagent.engine.state import message_bytes

HEAD_SHARE = 0.7
"""Share of a capped result that shows its beginning; the rest shows its end."""

NOTE = 200
"""Bytes that the line about a cut may take."""


SMALLEST, MARK = 400, 80
"""Bytes of a text that is not shortened further, since less would tell nothing; of the line about the missing part."""


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def fits(text: str, size: int) -> bool:
    return len(text) <= size and size_of(text) <= size


def cap(text: str, size: int, artifact: str) -> str:
    """Return head and tail of `text` within `size` bytes, with a call that reads the rest.

    `artifact` is the first digits of the whole output's SHA-256.
    """
    if fits(text, size):
        return f'{text}\n[the whole result: read_artifact(id="{artifact}")]'
    raw = text.encode("utf-8", "replace")
    head, tail, gap, line = ends(raw, raw, (len(raw), lines_of(raw)), max(0, size - NOTE))
    call = f'read_artifact(id="{artifact}", offset={line})'
    return f"{head}\n[… {gap} left out; read on with {call} …]\n{tail}"


def shorten(text: str, size: int) -> str:
    """Return head and tail of a text within about `size` bytes; the whole is on record already."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= size:
        return text
    head, tail, gap, _ = ends(raw, raw, (len(raw), lines_of(raw)), size)
    return f"{head}\n[… {gap} left out for want of room; recall finds them …]\n{tail}"


def lines_of(raw: bytes) -> int:
    """Return the number of lines; a last line without an end counts."""
    return raw.count(b"\n") + (not raw.endswith(b"\n") and raw != b"")


def ends(start: bytes, end: bytes, whole: tuple[int, int], size: int) -> tuple[str, str, str, int]:
    """Return the beginning and the end of a long text in `size` bytes, in whole lines unless they are too long.

    Args:
        start: the text, or more of its beginning than needed.
        end: the text, or more of its end than needed.
        whole: bytes and lines of the text.

    Returns:
        Beginning, end, the gap as a phrase, and the number of its first line.
    """
    head_size = int(size * HEAD_SHARE)
    head = _whole_lines(start[:head_size], keep_start=True)
    tail = _whole_lines(end[max(0, len(end) - (size - head_size)) :], keep_start=False)
    length, total = whole
    first = head.count(b"\n") + 1
    in_lines = head.endswith(b"\n") and end[: len(end) - len(tail)].endswith(b"\n")
    last = total - lines_of(tail) + (not end[: len(end) - len(tail)].endswith(b"\n"))
    gap = f"lines {first}-{last} of {total}"
    if not in_lines or first > last:
        gap = f"{length - len(head) - len(tail)} bytes in {gap if last > first else f'line {first} of {total}'}"
    shown = head.decode("utf-8", "ignore")
    return shown.removesuffix("\n"), tail.decode("utf-8", "ignore"), gap, first


def _whole_lines(piece: bytes, *, keep_start: bool) -> bytes:
    """Cut a piece at a line end if one is near, so that no line is shown in half."""
    if keep_start:
        at = piece.rfind(b"\n")
        return piece[: at + 1] if at > len(piece) // 2 else piece
    at = piece.find(b"\n")
    return piece[at + 1 :] if 0 <= at < len(piece) // 2 else piece


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
    return Message("tool", (ToolResult(result.call_id, result.status, shorten(result.content, size)),))
