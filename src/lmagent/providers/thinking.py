"""Thoughts inside the content: `<think>…</think>`, as models write them that their server does not parse.

A thought is what stands between tags at the very start of the content (closed, or unclosed: then all of it), and
whatever stands before a closing tag that was never opened (the template wrote the opening one). A tag quoted in
prose or code is text.
"""

from __future__ import annotations

from typing import Literal

_OPEN = ("<think>", "<thinking>")
_CLOSE = ("</think>", "</thinking>")
_LONGEST = max(map(len, _CLOSE))
_BLANK = " \t\r\n"

Piece = tuple[Literal["text", "thinking"], str]


def split_thoughts(content: str) -> tuple[str, str]:
    """(thought, text) of a whole content; the thought is stripped, the text as it was written behind the tags."""
    thoughts: list[str] = []
    rest = content
    while True:
        if opened := _opening(rest):
            rest = rest.lstrip(_BLANK)[len(opened) :]
            at, tag = _find(rest, _CLOSE)
        else:
            at, tag = (-1, "") if thoughts else _stray_close(rest)
            if at < 0:
                break
        thoughts.append(rest if at < 0 else rest[:at])
        rest = "" if at < 0 else _behind(rest[at + len(tag) :])
    return "\n".join(filter(None, (thought.strip() for thought in thoughts))), rest


class ThinkSplitter:
    """Splits content as it streams.

    What it shows is the same for every cut of the input. Only text that turns out to be a thought by a closing tag
    alone has been shown as text by then; `split_thoughts` of the whole content is what counts.
    """

    def __init__(self) -> None:
        self._mode: Literal["start", "think", "behind", "text"] = "start"
        self._held = ""
        self._shown: list[str] | None = []

    def feed(self, delta: str) -> list[Piece]:
        """What can be shown now."""
        if self._mode == "text" and not self._held and "<" not in delta:
            if self._shown is not None:
                self._shown.append(delta)
            return [("text", delta)] if delta else []
        self._held += delta
        pieces: list[Piece] = []
        while self._advance(pieces):
            pass
        return pieces

    def finish(self) -> list[Piece]:
        """What was held back in case it became a tag."""
        held, self._held = self._held, ""
        if self._mode == "behind":
            held = held.lstrip(_BLANK)
        if not held:
            return []
        return [("thinking" if self._mode == "think" else "text", held)]

    def _advance(self, pieces: list[Piece]) -> bool:
        """Take one step; False when more input is needed."""
        if not self._held:
            return False
        match self._mode:
            case "start" | "behind":
                return self._decide()
            case "think":
                at, tag = _find(self._held, _CLOSE)
                self._emit(pieces, "thinking", at)
                if at < 0:
                    return False
                self._held = self._held[len(tag) :]
                self._mode = "behind"
            case "text":
                at, tag = _find(self._held, _CLOSE)
                self._emit(pieces, "text", at)
                if at < 0:
                    return False
                self._stray(pieces, tag)
        return True

    def _decide(self) -> bool:
        body = self._held.lstrip(_BLANK)
        if body not in (*_OPEN, *_CLOSE) and any(tag.startswith(body) for tag in (*_OPEN, *_CLOSE)):
            return False  # blanks, or the beginning of a tag
        opened = _opening(body)
        closed = next((tag for tag in _CLOSE if body.startswith(tag)), "") if self._mode == "behind" else ""
        if opened:
            self._held, self._mode = body[len(opened) :], "think"
        elif closed:
            self._held = body[len(closed) :]
        else:
            if self._mode == "behind":
                self._held, self._shown = body, None
            self._mode = "text"
        return True

    def _emit(self, pieces: list[Piece], kind: Literal["text", "thinking"], at: int) -> None:
        """Show what stands before a tag at `at`, or, without one, all that cannot be the beginning of a tag."""
        end = at if at >= 0 else len(self._held) - _partial(self._held)
        if end:
            piece = self._held[:end]
            self._held = self._held[end:]
            pieces.append((kind, piece))
            if kind == "text" and self._shown is not None:
                self._shown.append(piece)

    def _stray(self, pieces: list[Piece], tag: str) -> None:
        """A closing tag in text ends a thought if none was closed before and it is not a quotation."""
        if self._shown is not None and not _quoted("".join(self._shown)):
            self._held = self._held[len(tag) :]
            self._mode, self._shown = "behind", None
            return
        self._held = self._held[len(tag) :]
        pieces.append(("text", tag))
        if self._shown is not None:
            self._shown.append(tag)


def _opening(content: str) -> str:
    body = content.lstrip(_BLANK)
    return next((tag for tag in _OPEN if body.startswith(tag)), "")


def _behind(rest: str) -> str:
    """What follows a thought, without blanks and leftover closing tags."""
    rest = rest.lstrip(_BLANK)
    while tag := next((tag for tag in _CLOSE if rest.startswith(tag)), ""):
        rest = rest[len(tag) :].lstrip(_BLANK)
    return rest


def _find(content: str, tags: tuple[str, ...], start: int = 0) -> tuple[int, str]:
    """The first of `tags` in `content`, or (-1, "")."""
    found = [(at, tag) for tag in tags if (at := content.find(tag, start)) >= 0]
    return min(found, default=(-1, ""))


def _stray_close(content: str) -> tuple[int, str]:
    at, tag = _find(content, _CLOSE)
    while at >= 0 and _quoted(content[:at]):
        at, tag = _find(content, _CLOSE, at + len(tag))
    return at, tag


def _quoted(before: str) -> bool:
    """Whether a closing tag behind `before` is a quotation: in code, in quotation marks, or after an opening tag."""
    if any(tag in before for tag in _OPEN) or before.count("```") % 2:
        return True
    line = before.rpartition("\n")[2].replace("```", "")
    return line.count("`") % 2 == 1 or line[-1:] in ("'", '"', "“", "«")


def _partial(content: str) -> int:
    """How many characters at the end may be the beginning of a closing tag."""
    at = content.rfind("<", max(0, len(content) - _LONGEST))
    return len(content) - at if at >= 0 and any(tag.startswith(content[at:]) for tag in _CLOSE) else 0
