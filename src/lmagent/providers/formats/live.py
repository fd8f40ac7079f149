"""Live: the part of a growing reply that is certain before the whole is read.

Text is certain up to markup that may be a call or a thought; from there on all waits for the end. A thought at the
beginning is certain up to a tag in it. So nothing is decided twice: calls are found in the whole text only.
"""

from __future__ import annotations

import re
from typing import Literal

from lmagent.providers.formats import fences
from lmagent.providers.formats.base import Toolset
from lmagent.providers.formats.markup import (
    CALLS_AND_THOUGHTS,
    HERE,
    INSIDE,
    LINES,
    OPEN_LINE,
    THOUGHTS,
    may_hold_markup,
    unfinished,
)
from lmagent.providers.formats.thoughts import CLOSES, MARKS, OPENS, TAG, is_open_quotation

Piece = tuple[Literal["text", "thinking"], str]


class LiveText:
    """Shows one reply while it arrives; the arguments are those of `Scanner`."""

    def __init__(self, tools: Toolset, *, calls: bool) -> None:
        self._tools = tools
        self._calls = calls
        self._event = (CALLS_AND_THOUGHTS if calls else THOUGHTS)[1]
        self._chunks: list[str] = []
        self._size = self._wanted = 0
        self._rest = ""
        self._from = 0  # 1 if the rest begins with the last character that was shown, 0 if a line begins
        self._held = self._plain = False
        self._opened = ""
        self._thought: list[str] = []
        self._fence: re.Pattern[str] | None = None

    def read(self, delta: str) -> list[Piece]:
        """Return the new text and thoughts that are certain."""
        if self._held:
            return []
        self._chunks.append(delta)
        self._size += len(delta)
        if self._size < self._wanted:
            return []  # text that waits is read again only after it has grown by a share: linear in the whole
        self._rest += "".join(self._chunks)
        self._chunks.clear()
        pieces: list[Piece] = []
        while not (self._held or self._from):
            if not self._opened and not self._begins_thought():
                break
            if not self._think(pieces):
                break
        if not (self._held or self._opened):
            self._say(self._certain(), pieces)
        self._size = len(self._rest)
        self._wanted = self._size + self._size // 8
        return pieces

    def _begins_thought(self) -> bool:
        text = self._rest.lstrip()
        self._plain = not self._calls and text.startswith("{")  # requested JSON: tags in its strings are text
        tag = TAG.match(text) if may_hold_markup(text[:1]) else None
        if tag is not None and tag[0] in OPENS:
            self._opened, self._rest = tag[0], text[tag.end() :]
        elif self._thought:
            self._rest = text
        return bool(self._opened)

    def _think(self, pieces: list[Piece]) -> bool:
        """Show the thought that is open; return whether it ends."""
        tag = TAG.search(self._rest)
        end = tag.start() if tag else len(self._rest) - unfinished(self._rest)
        if end:
            pieces.append(("thinking", self._rest[:end]))
            self._thought.append(self._rest[:end])
            self._rest = self._rest[end:]
        if tag is None or (tag[0] == self._rest and self._thought and self._thought[-1][-1] in MARKS):
            return False
        self._rest = self._rest[len(tag[0]) :]
        closes = CLOSES.get(tag[0]) == OPENS[self._opened]
        self._held = not closes or is_open_quotation("".join(self._thought), self._rest)
        self._opened = ""
        return not self._held

    def _say(self, end: int, pieces: list[Piece]) -> None:
        """Show the text up to `end`, without blanks at its end."""
        if shown := self._rest[self._from : end].rstrip():
            pieces.append(("text", shown))
            self._rest = self._rest[self._from + len(shown) - 1 :]
            self._from = 1

    def _certain(self) -> int:
        """Return the end of the text that is certain; hold the rest if it may be a call."""
        text, at = self._rest, self._from
        line = text.rfind("\n") + 1
        begins = line > 0 or at == 0
        stop = line if begins and OPEN_LINE.match(text, line) else len(text) - unfinished(text)
        if self._calls and self._fence is None:
            stop = len(text[:stop].rstrip("[ \t\r\n"))  # a bracket may begin a list of calls
        while at < stop and not self._plain and (self._fence is not None or may_hold_markup(text)):
            if self._fence is not None:
                closed = self._fence.search(text, at, line)
                if closed is None:
                    return max(at, line)
                self._fence, at = None, closed.end()
                continue
            found = self._event.search(text, at)
            if found is None or found.start() >= stop:
                break
            kind = found.lastgroup or ""
            if kind == "fence":
                at = self._open_fence(found, line)
            elif kind in ("code", "quote", "item"):
                self._held = any(word[0] != "`" for word in INSIDE.findall(found[0]))
                self._fence = fences.in_item(found[0])
                at = found.end()
            elif kind == "mark":
                self._held = found[0][0] != "`"
                at = found.end()
            elif found.end() >= len(text):
                return found.start()
            else:
                format = LINES[int(kind[1:])]
                self._held = format.name != "python" or self._tools.known(found[kind].rstrip("("))
                at = found.end()
            if self._held or at < 0:
                return found.start()
        return stop

    def _open_fence(self, found: re.Match[str], line: int) -> int:
        """Return the place after the line that opens a fence, or -1 if its first line has not arrived."""
        text = self._rest
        head = fences.opening(text, found.end() - len(found["fence"].lstrip()))
        if head is None:
            return found.end()  # inline code
        body = head.end() + len(text[head.end() :]) - len(text[head.end() :].lstrip())
        if self._calls and body >= line:
            return -1
        alone = not (self._from or text[: found.start()].strip())
        called = fences.may_call(head, text[body : body + 1]) or (alone and HERE.match(text, body))
        opened = INSIDE.match(text, body) if alone else None
        self._held = self._calls and bool(called or (opened and opened[0][0] != "`"))
        self._fence = fences.closing(head["marks"])
        return head.end()
