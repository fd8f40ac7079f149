"""Thoughts inside the content: `<think>…</think>`, as models write them that their server does not parse.

A thought is what stands between tags at the very start of the content (closed, or unclosed: then all of it), and
whatever stands before a closing tag that was never opened (the template wrote the opening one). A tag quoted in
prose, code or a JSON object, or one that is a word of a sentence, is text.
"""

from __future__ import annotations

import re
from typing import Literal

_OPEN = re.compile(r"<think(?:ing)?>")
_CLOSE = re.compile(r"</think(?:ing)?>")
_TAGS = ("<think>", "<thinking>", "</think>", "</thinking>")
_LONGEST = max(map(len, _TAGS))
_BLANK = " \t\r\n"
_BLANKS = re.compile(r"[ \t\r\n]*")
_LEFTOVER = re.compile(r"[ \t\r\n]*(?:</think(?:ing)?>[ \t\r\n]*)*")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_GOES_ON = re.compile(r" [a-z]|[,;:.?!)]")
_AHEAD = 2
"""Characters behind a tag that tell whether its sentence goes on."""
_NEAR = 240
"""Characters of a line that tell whether a sentence in it has ended."""

Piece = tuple[Literal["text", "thinking"], str]


def split_thoughts(content: str) -> tuple[str, str]:
    """(thought, text) of a whole content; the thought is stripped, the text as it was written behind the tags."""
    thoughts: list[str] = []
    at = 0
    while True:
        opened = _OPEN.match(content, _end(_BLANKS, content, at))
        if opened:
            begin, closed = opened.end(), _CLOSE.search(content, opened.end())
        else:
            begin, closed = at, None if thoughts else _stray_close(content)
            if closed is None:
                break
        thoughts.append(content[begin : closed.start() if closed else len(content)])
        at = _end(_LEFTOVER, content, closed.end()) if closed else len(content)
    return "\n".join(filter(None, (thought.strip() for thought in thoughts))), content[at:]


def _end(pattern: re.Pattern[str], content: str, at: int) -> int:
    """Where what matches at a place ends; the patterns match nothing as well."""
    found = pattern.match(content, at)
    return found.end() if found else at


def _stray_close(content: str) -> re.Match[str] | None:
    """The first closing tag that is none of the text."""
    before, known = _Before(), 0
    for tag in _CLOSE.finditer(content):
        before.add(content[known : tag.start()])
        if not before.quotes() and not before.mentions(content[tag.end() : tag.end() + _AHEAD]):
            return tag
        before.add(tag[0])
        known = tag.end()
    return None


class _Before:
    """What stands before a place in a text: as much of it as tells whether a closing tag there belongs to the text.

    Each part of the text is looked at once, so that many tags cost no more than their text.
    """

    def __init__(self) -> None:
        self._blank = True
        self._object = False
        self._in_string = False
        self._opened = False
        self._fenced = False
        self._ticks = 0
        self._line = ""

    def add(self, text: str) -> None:
        """The text goes on; no tag, and no run of backticks, is cut by where it stops."""
        if self._blank and (first := text.lstrip(_BLANK)[:1]):
            self._blank, self._object = False, first == "{"
        if self._object and _ESCAPED.sub("", text).count('"') % 2:
            self._in_string = not self._in_string
        self._opened = self._opened or _OPEN.search(text) is not None
        self._fenced ^= text.count("```") % 2 == 1
        line = text.rfind("\n")
        if line >= 0:
            self._line, self._ticks = "", 0
        words = text[line + 1 :].replace("```", "")
        self._ticks += words.count("`")
        self._line = (self._line + words)[-_NEAR:]

    def quotes(self) -> bool:
        """Whether a tag is a quotation: in code, in quotation marks, in a string of JSON, or after an opening tag."""
        marked = self._ticks % 2 == 1 or self._line[-1:] in ("'", '"', "“", "«")
        return marked or self._opened or self._fenced or self._in_string

    def may_mention(self) -> bool:
        """Whether a tag may be a word of a sentence here, by what stands before it."""
        if self._line[-1:] != " " or not self._line.strip():
            return False
        from lmagent.providers.formats.place import Place  # few texts have such a tag

        return not Place.ended(self._line)

    def mentions(self, behind: str) -> bool:
        """Whether a tag is a word of a sentence here; `behind` is what follows it."""
        return bool(_GOES_ON.match(behind)) and self.may_mention()


class ThinkSplitter:
    """Splits content as it streams.

    What it shows is the same for every cut of the input. Only text that turns out to be a thought by a closing tag
    alone has been shown as text by then; `split_thoughts` of the whole content is what counts.
    """

    def __init__(self) -> None:
        self._mode: Literal["start", "think", "behind", "text"] = "start"
        self._held = ""
        self._blanks: list[str] = []
        self._before: _Before | None = _Before()
        self._shown: list[str] = []

    def feed(self, delta: str) -> list[Piece]:
        """What can be shown now."""
        if self._mode == "text" and not self._held and "<" not in delta:
            if self._before is not None:
                self._shown.append(delta)
            return [("text", delta)] if delta else []
        return self._read(self._held + delta, final=False)

    def finish(self) -> list[Piece]:
        """What was held back in case it became a tag."""
        return self._read(self._held, final=True)

    def _read(self, text: str, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        at = 0
        while at < len(text):
            begun = (self._mode, at)
            step = self._decide if self._mode in ("start", "behind") else self._inside
            at = step(text, at, pieces, final=final)
            if (self._mode, at) == begun:
                break  # more is needed
        self._held = text[at:]
        if final and self._mode == "start":
            self._show(pieces, "text", "".join(self._blanks))
            self._blanks.clear()
        return pieces

    def _decide(self, text: str, at: int, pieces: list[Piece], *, final: bool) -> int:
        """Read on where a thought may begin; returns up to where."""
        begin = _end(_BLANKS, text, at)
        if self._mode == "start":
            self._blanks.append(text[at:begin])
        rest = text[begin : begin + _LONGEST]
        if not final and rest not in _TAGS and any(tag.startswith(rest) for tag in _TAGS):
            return begin  # blanks, or the beginning of a tag
        if opened := _OPEN.match(text, begin):
            self._mode = "think"
            self._blanks.clear()
            return opened.end()
        if self._mode == "behind":
            if closed := _CLOSE.match(text, begin):
                return closed.end()
            self._before = None
        blanks = "".join(self._blanks)
        self._blanks.clear()
        self._mode = "text"
        self._show(pieces, "text", blanks)
        return begin

    def _inside(self, text: str, at: int, pieces: list[Piece], *, final: bool) -> int:
        """Read on in a thought or in text; returns up to where."""
        kind: Literal["text", "thinking"] = "thinking" if self._mode == "think" else "text"
        tag = _CLOSE.search(text, at)
        if tag is None:
            end = len(text) if final else len(text) - _partial(text, at)
            self._show(pieces, kind, text[at:end])
            return end
        self._show(pieces, kind, text[at : tag.start()])
        if kind == "thinking":
            self._mode = "behind"
            return tag.end()
        before = self._before
        if before is not None:
            before.add("".join(self._shown))
            self._shown.clear()
            if not before.quotes():
                behind = text[tag.end() : tag.end() + _AHEAD]
                if not final and len(behind) < _AHEAD and before.may_mention():
                    return tag.start()  # what follows decides
                if not before.mentions(behind):
                    self._mode, self._before = "behind", None
                    return tag.end()
        self._show(pieces, "text", tag[0])
        return tag.end()

    def _show(self, pieces: list[Piece], kind: Literal["text", "thinking"], piece: str) -> None:
        if piece:
            pieces.append((kind, piece))
            if kind == "text" and self._before is not None:
                self._shown.append(piece)


def _partial(content: str, start: int) -> int:
    """How many characters at the end may be the beginning of a closing tag."""
    at = content.rfind("<", max(start, len(content) - _LONGEST))
    return len(content) - at if at >= 0 and any(tag.startswith(content[at:]) for tag in _TAGS[2:]) else 0
