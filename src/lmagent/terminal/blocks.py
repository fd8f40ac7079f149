"""Blocks: streamed Markdown divided into finished pieces, so that each is printed once."""

from __future__ import annotations

import re

_HEADING = re.compile(r"#{1,6}[ \t]")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


class BlockStream:
    """Takes text as it comes and returns whole blocks: paragraphs, lists, fenced code.

    A block ends at a blank line outside a fence. A heading and code that is not indented are blocks of their own,
    also without a blank line around them. The unfinished rest is in `tail`.
    """

    def __init__(self) -> None:
        self.tail = ""

    def feed(self, text: str) -> list[str]:
        """Add text; returns the blocks that it finished."""
        self.tail += text
        if "\n" not in text:
            return []
        done: list[str] = []
        while (end := _block_end(self.tail)) is not None:
            block, self.tail = self.tail[:end], self.tail[end:].lstrip("\n")
            if block.strip():
                done.append(block.rstrip())
        return done

    def finish(self) -> list[str]:
        rest, self.tail = self.tail, ""
        return [rest.rstrip()] if rest.strip() else []

    def drop(self) -> None:
        """Forget the tail: the reply broke off and comes again."""
        self.tail = ""


def _block_end(text: str) -> int | None:
    """Return where the first block ends: after a blank line, a heading or the end of a fence, or before the next."""
    fence = ""
    position = 0
    while (newline := text.find("\n", position)) >= 0:
        line = text[position:newline]
        alone = line[:1] in "#`~" and (_HEADING.match(line) or _FENCE.match(line))
        if alone and not fence and position and text[:position].strip():
            return position
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                return newline + 1
        elif mark:
            fence = mark[1]
        elif not line.strip() or _HEADING.match(line):
            return newline + 1
        position = newline + 1
    return None
