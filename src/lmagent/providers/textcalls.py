"""Text calls: finds the tool calls and the thoughts in a model's text if its server did not.

`parse_text` reads a whole reply, `TextCallParser` one that is still arriving; both agree, however the reply is split.
docs/text-tool-calls.md describes which text counts as a call; the formats are in `formats/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.ids import new_id
from lmagent.core.model import ToolSpec
from lmagent.providers.formats.base import FoundCall, Toolset
from lmagent.providers.formats.live import LiveText, Piece
from lmagent.providers.formats.scan import Scanner
from lmagent.providers.formats.thoughts import unbalanced

__all__ = ["FoundCall", "ParsedText", "Piece", "TextCallParser", "find_calls", "parse_text"]

_CLOSED = re.compile(r"[>\]]")
"""The end of markup that closes a call."""
_MORE = (" It continues.", "\n\nIt continues.")
"""Two ways in which a text may continue: in its line, and below."""


class ParsedText(Struct, frozen=True):
    """A parsed reply.

    Attributes:
        content: the text for the user: no markup, no thoughts, no calls.
        calls: the complete calls, in order.
        cut: the name of a call that the end of the text cut off (empty if even that is missing), which must not
            run and is not among the calls; None if none was cut off.
        thinking: the thoughts inside the text.
    """

    content: str
    calls: tuple[FoundCall, ...] = ()
    cut: str | None = None
    thinking: str = ""


def parse_text(text: str, tools: Iterable[Any], *, calls: bool = True) -> ParsedText:
    """Parse a whole reply; without `calls`, only thoughts are taken out."""
    return _parsed(text, Toolset(tools), calls=calls)


class TextCallParser:
    """Parses a reply while it arrives; the arguments are those of `parse_text`.

    The texts that `feed` returns, joined, are the beginning of the final content; the rest of it is `rest` after
    `finish`. One exception: text before a closing thought tag that was never opened is already shown by then, and is
    not in the final content.
    """

    def __init__(self, tools: Iterable[Any], *, calls: bool = True) -> None:
        self.rest = ""
        """After `finish`: the content that `feed` has not returned."""
        self.rest_of_thought = ""
        """After `finish`: the thoughts that `read` has not returned."""
        self._tools = Toolset(tools)
        self._calls = calls
        self._live = LiveText(self._tools, calls=calls)
        self._chunks: list[str] = []
        self._shown: list[Piece] = []

    def feed(self, delta: str) -> str:
        return "".join(text for kind, text in self.read(delta) if kind == "text")

    def read(self, delta: str) -> list[Piece]:
        if not delta:
            return []
        self._chunks.append(delta)
        pieces = self._live.read(delta)
        self._shown += pieces
        return pieces

    def finish(self) -> ParsedText:
        """Return the same result as `parse_text` for the whole reply."""
        parsed = _parsed("".join(self._chunks), self._tools, calls=self._calls)
        text, thought = (
            "".join(text for kind, text in self._shown if kind == wanted) for wanted in ("text", "thinking")
        )
        self.rest = parsed.content.removeprefix(text)
        if parsed.content.startswith(text):
            known = len("".join(thought.split()))  # blanks at the ends of thoughts are not kept
            ends = (place.end() for place in re.finditer(r"\S", parsed.thinking))
            rest = parsed.thinking[next(islice(ends, known - 1, None), 0) if known else 0 :]
            self.rest_of_thought = rest.lstrip() if thought[-1:].isspace() else rest
        return parsed


def _parsed(text: str, tools: Toolset, *, calls: bool = True) -> ParsedText:
    scanner = Scanner(text, tools, calls=calls)
    scanner.read()
    thinking = "\n".join(filter(None, (thought.strip() for thought in scanner.thoughts)))
    return ParsedText(scanner.content.whole(), tuple(scanner.calls), scanner.cut, thinking)


def find_calls(text: str, tools: Sequence[ToolSpec], *, cut: bool, parsed: ParsedText | None = None) -> ParsedText:
    """Return a whole parsed text: its calls with new ids, and a call that was cut off as the last of them.

    Args:
        tools: the callable tools.
        cut: the token limit ended the text, so a call at its very end is not to be trusted.
        parsed: the text, if it was parsed before.
    """
    parsed = parsed or parse_text(text, tools)
    calls = list(parsed.calls)
    if cut and calls:
        for call, same in zip(calls, _whatever_follows(text, tools, calls), strict=True):
            call.truncated = not same
    # A begun call without a name, after whole ones, is a doubled tag more often than a call.
    if parsed.cut or (parsed.cut is not None and (cut or not calls)):
        form = calls[0].format if calls else ""
        name = parsed.cut or "unreadable"
        calls.append(FoundCall(name=name, arguments="", format=form, truncated=True, at=len(text)))
    for call in calls:
        call.id = f"call_{new_id()}"  # some formats number their calls from 0 in every reply
    return replace(parsed, calls=tuple(calls))


def _whatever_follows(text: str, tools: Sequence[ToolSpec], calls: Sequence[FoundCall]) -> list[bool]:
    """Return which calls in a text that the token limit ended would be the same calls for every continuation."""
    if unbalanced(text):
        return [False] * len(calls)  # they may be in a thought that was not closed before the limit
    known = [all(call.sure for call in calls[: number + 1]) for number in range(len(calls))]
    for more in _MORE:
        found = parse_text(text + more, tools).calls
        for number, call in enumerate(calls):
            same = number < len(found) and (found[number].name, found[number].arguments) == (call.name, call.arguments)
            known[number] = known[number] and same
    raw = calls[-1].raw.rstrip()
    after = text.rfind(raw) + len(raw)
    if not _CLOSED.search(text, after):
        known[-1] = False  # it has no closing markup
    return known
