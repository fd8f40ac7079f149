"""Intake: a tool's output becomes what the model is told. It is capped once, here, and never again."""

from __future__ import annotations

from lmagent.engine.state import BYTES_PER_TOKEN

HEAD_SHARE = 0.7
"""Share of a capped result that shows its beginning; the rest shows its end."""


def fits(text: str, tokens: int) -> bool:
    """Whether `text` is within `tokens`, at 4 bytes a token."""
    budget = tokens * BYTES_PER_TOKEN
    return len(text) <= budget and (text.isascii() or len(text.encode("utf-8", "replace")) <= budget)


def cap(text: str, tokens: int, artifact: str) -> str:
    """Head and tail of `text` within `tokens`, with the handle under which the whole can be read.

    Args:
        text: the output.
        tokens: the cap, at 4 bytes a token.
        artifact: handle of the whole output (the first digits of its SHA-256).
    """
    if fits(text, tokens):
        return f"{text}\n[the whole is artifact:{artifact}]"
    budget = tokens * BYTES_PER_TOKEN
    raw = text.encode("utf-8", "replace")
    head_size = int(budget * HEAD_SHARE)
    head = _whole_lines(raw[:head_size], keep_start=True)
    tail = _whole_lines(raw[len(raw) - (budget - head_size) :], keep_start=False)
    line = head.count(b"\n") + 1
    note = (
        f"\n[… {len(raw) - len(head) - len(tail)} bytes left out; the whole is artifact:{artifact}, "
        f'read on with read_artifact(id="{artifact}", offset={line}) …]\n'
    )
    return head.decode("utf-8", "ignore") + note + tail.decode("utf-8", "ignore")


def shorten(text: str, size: int) -> str:
    """Head and tail of a text within about `size` bytes; what is left out stays on record."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= size:
        return text
    head_size = int(size * HEAD_SHARE)
    head = raw[:head_size].decode("utf-8", "ignore")
    tail = raw[len(raw) - (size - head_size) :].decode("utf-8", "ignore")
    return f"{head}\n[… {len(raw) - size} bytes left out for want of room; recall finds them …]\n{tail}"


def _whole_lines(piece: bytes, *, keep_start: bool) -> bytes:
    """Cut a piece at a line end where one is near, so that no line is shown in half."""
    if keep_start:
        at = piece.rfind(b"\n")
        return piece[: at + 1] if at > len(piece) // 2 else piece
    at = piece.find(b"\n")
    return piece[at + 1 :] if 0 <= at < len(piece) // 2 else piece
