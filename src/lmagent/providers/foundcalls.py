"""Found calls: calls that a reply's text holds, in the shape of those that a server understood itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from lmagent.core.ids import new_id
from lmagent.core.messages import ToolCall
from lmagent.core.model import ToolSpec
from lmagent.providers import jsontext
from lmagent.providers.formats.thoughts import unbalanced
from lmagent.providers.textcalls import TextCall, parse_text

_CLOSED = re.compile(r"[>\]]")
"""What the markup that closes a call ends with."""
_MORE = (" It goes on.", "\n\nIt goes on.")
"""How a text may go on: in its line, and below."""


class FoundCalls(Struct, frozen=True):
    """What a text holds.

    Attributes:
        content: what a person should see.
        thinking: thoughts in it.
        calls: its calls. Their ids are ours: some formats number them anew in every reply.
        truncated: ids of those that the reply cut off.
        format: the format of the first one.
    """

    content: str
    thinking: str
    calls: tuple[ToolCall, ...]
    truncated: frozenset[str]
    format: str = ""


def find_calls(text: str, tools: Sequence[ToolSpec], *, cut: bool) -> FoundCalls:
    """The calls in a whole text.

    Args:
        text: as the model wrote it.
        tools: what may be called.
        cut: the token limit ended it, so a call at its very end is not to be trusted.
    """
    parsed = parse_text(text, tools)
    calls = [ToolCall(f"call_{new_id()}", call.name, _arguments(call)) for call in parsed.calls]
    truncated: list[str] = []
    if cut and parsed.calls:
        whole = _whatever_follows(text, tools, parsed.calls)
        truncated += [call.id for call, known in zip(calls, whole, strict=True) if not known]
    # A call that was begun and not named, behind whole ones, is a doubled tag more often than a call.
    if parsed.cut or (parsed.cut is not None and (cut or not calls)):
        calls.append(ToolCall(f"call_{new_id()}", parsed.cut or "unreadable", ""))
        truncated.append(calls[-1].id)
    form = parsed.calls[0].format if parsed.calls else ""
    return FoundCalls(parsed.content, parsed.thinking, tuple(calls), frozenset(truncated), form)


def _arguments(call: TextCall) -> str:
    """The arguments of a call as JSON; of one that must not run as text that is none, with the reason."""
    text = jsontext.mend(call.arguments_text)
    return f"({call.fault}) {text}" if call.fault and (not text.strip() or jsontext.is_object(text)) else text


def _whatever_follows(text: str, tools: Sequence[ToolSpec], calls: Sequence[TextCall]) -> list[bool]:
    """Which calls in a text that the token limit ended are the same calls, however it would have gone on."""
    if unbalanced(text):
        return [False] * len(calls)  # they may stand in a thought that was not closed any more
    known = [all(call.sure for call in calls[: number + 1]) for number in range(len(calls))]
    for more in _MORE:
        found = parse_text(text + more, tools).calls
        for number, call in enumerate(calls):
            same = number < len(found) and (found[number].name, found[number].arguments) == (call.name, call.arguments)
            known[number] = known[number] and same
    raw = calls[-1].raw.rstrip()
    behind = text.rfind(raw) + len(raw)
    if not _CLOSED.search(text, behind):
        known[-1] = False  # nothing has closed it
    return known
