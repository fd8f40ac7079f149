"""Found calls: calls that a reply's text holds, in the shape of those that a server understood itself."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lmagent.core.ids import new_id
from lmagent.core.messages import ToolCall
from lmagent.core.model import ToolSpec
from lmagent.providers import jsontext
from lmagent.providers.textcalls import parse_text


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
    calls = [ToolCall(f"call_{new_id()}", call.name, jsontext.mend(call.arguments_text)) for call in parsed.calls]
    truncated: list[str] = []
    if cut and parsed.calls and text.rstrip().endswith(parsed.calls[-1].raw.rstrip()):
        truncated.append(calls[-1].id)
    # A call that was begun and not named, behind whole ones, is a doubled tag more often than a call.
    if parsed.cut or (parsed.cut is not None and (cut or not calls)):
        calls.append(ToolCall(f"call_{new_id()}", parsed.cut or "unreadable", ""))
        truncated.append(calls[-1].id)
    form = parsed.calls[0].format if parsed.calls else ""
    return FoundCalls(parsed.content, parsed.thinking, tuple(calls), frozenset(truncated), form)
