"""Text calls: finds the tool calls in a model's text when its server did not.

`parse_text` reads a whole reply, `TextCallParser` one that is still coming; both agree, whatever the pieces. What
counts as a call and what does not is told in docs/text-tool-calls.md; the formats are in `formats/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from lmagent.providers import jsontext
from lmagent.providers.formats.base import Call, Toolset
from lmagent.providers.formats.scan import Scanner, read_all

__all__ = ["ParsedText", "TextCall", "TextCallParser", "parse_text"]


class TextCall(Struct, frozen=True):
    """A call that was found in text.

    Attributes:
        name: the tool, as the model wrote it; it may be none of the request's.
        arguments: an object; where it could not be read, its text as it came.
        raw: the text that the call was read from.
        format: the format that it was recognised as.
        id: the id that the format carries, empty if it has none. Not unique: models count from 0 in each reply.
        fault: why it must not run: what is wrong with arguments that could not be read, and where, or that it may be
            a part of a damaged call before it; empty if nothing is.
        sure: its markup was complete; one that is not must not run if the token limit ended the reply.
    """

    name: str
    arguments: dict[str, Any] | str
    raw: str = ""
    format: str = ""
    id: str = ""
    fault: str = ""
    sure: bool = True

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text, for a `ToolCall`; damaged ones as they came."""
        if isinstance(self.arguments, str):
            return self.arguments
        return jsontext.dumps(self.arguments).decode()


class ParsedText(Struct, frozen=True):
    """A reply, taken apart.

    Attributes:
        content: what a person should see: no markup, no thoughts, no calls.
        calls: the complete calls, in order.
        cut: the name of a call that the end of the text cut off (empty where even that is missing), which must not
            run and is not among the calls; None if none was cut off.
        thinking: the thoughts inside the text.
    """

    content: str
    calls: tuple[TextCall, ...] = ()
    cut: str | None = None
    thinking: str = ""


def parse_text(text: str, tools: Iterable[Any]) -> ParsedText:
    """Take a whole reply apart.

    Args:
        text: what the model wrote.
        tools: the tools of the request: `ToolSpec`s, tools, or objects in OpenAI's shape; with `aliases`, those too.
    """
    return _parsed(text, Toolset(tools))


class TextCallParser:
    """Takes a reply apart while it comes.

    The pieces that `feed` returns, joined, are the beginning of the final content; what is missing of it is `rest`
    after `finish`. One exception: text before a closing thought tag that was never opened has been shown by then, and
    is not in the final content.

    Args:
        tools: see `parse_text`.
    """

    def __init__(self, tools: Iterable[Any]) -> None:
        self.rest = ""
        """After `finish`: what of the content `feed` has not returned."""
        self._tools = Toolset(tools)
        self._scanner = Scanner(self._tools)
        self._chunks: list[str] = []
        self._pending: list[str] = []
        self._size = 0
        self._wanted = 0
        self._prefix: list[str] = []

    def feed(self, delta: str) -> str:
        """Take a piece and return what can be shown now."""
        if not delta:
            return ""
        self._chunks.append(delta)
        self._pending.append(delta)
        self._size += len(delta)
        if self._size < self._wanted:
            return ""  # what is held back is read again only when it has grown by a share: linear in the whole
        text = "".join(self._pending)
        self._scanner.read(text, final=False)
        self._wanted = len(text) + self._scanner.waiting // 8
        dropped = self._scanner.trim()
        self._pending = [text[dropped:]]
        self._size -= dropped
        self._wanted -= dropped
        shown = self._scanner.content.take()
        self._prefix.append(shown)
        return shown

    def finish(self) -> ParsedText:
        """The reply, as `parse_text` takes the whole of it apart."""
        parsed = _parsed("".join(self._chunks), self._tools)
        shown = "".join(self._prefix)
        self.rest = parsed.content[len(shown) :] if parsed.content.startswith(shown) else ""
        return parsed


def _parsed(text: str, tools: Toolset) -> ParsedText:
    scanner = read_all(text, tools)
    calls = tuple(_call(call) for call in scanner.calls)
    thinking = "\n".join(filter(None, (thought.strip() for thought in scanner.thoughts)))
    return ParsedText(scanner.content.whole(), calls, scanner.cut, thinking)


def _call(call: Call) -> TextCall:
    return TextCall(call.name, call.arguments, call.raw, call.format, call.id, call.fault, call.sure)
