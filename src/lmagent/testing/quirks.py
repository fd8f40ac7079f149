"""Quirks: the oddities of real servers, by name.

A quirk turns a reply into one of the form in which such a server would send it. All but the last are harmless: a
client must read exactly the content of the plain reply. They combine: `crlf(think_tags(say("hi")))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lmagent.testing.script import Reply

Quirk = Callable[[Reply], Reply]


class StyleQuirk:
    """A quirk that only changes the style of a reply."""

    def __init__(self, **style: Any) -> None:
        self._style = style

    def __call__(self, reply: Reply) -> Reply:
        """Return the reply in this style."""
        return replace(reply, style=replace(reply.style, **self._style))


def tiny_fragments(reply: Reply) -> Reply:
    """Arguments come a character or two at a time."""
    longest = max((len(call.arguments) for call in reply.calls), default=1)
    return StyleQuirk(pieces=longest)(reply)


def stop_with_calls(reply: Reply) -> Reply:
    """The finish reason is `stop` although there are calls."""
    return replace(reply, finish="stop")


def prefill_progress(reply: Reply) -> Reply:
    """`prompt_progress` chunks come before the first token (llama.cpp)."""
    return replace(reply, prefill=(0.0, 0.5, 1.0))


# Every call has index 0 and an id of its own; each comes whole (Ollama).
ollama_index_zero = StyleQuirk(index="zero")
# Fragments carry no index: one without an id belongs to the call before it.
missing_index = StyleQuirk(index="none")
# Calls have no id.
missing_ids = StyleQuirk(ids="none")
# All calls have one and the same id and differ in index; each comes whole.
same_ids = StyleQuirk(ids="same")
# Arguments are a JSON object instead of its text.
arguments_as_object = StyleQuirk(arguments="object")
# Fragments of several calls alternate and differ in their index.
interleaved_calls = StyleQuirk(interleave=True, pieces=3)
# Every fragment repeats role, id and name.
repeated_heads = StyleQuirk(heads=True)
# Each call comes once more, whole, when it is complete; the finish and usage chunks come twice.
duplicate_deltas = StyleQuirk(duplicates=True)
# Empty deltas, null fields and chunks without choices are strewn in.
empty_deltas = StyleQuirk(empties=True)
# Comment lines come before every chunk (OpenRouter, LM Studio).
keepalive_comments = StyleQuirk(comments=True)
# The data is mixed with `event:`, `id:` and `retry:` lines.
event_lines = StyleQuirk(event_lines=True)
# Lines end with CR LF.
crlf = StyleQuirk(newline=b"\r\n")
# Lines end with CR alone, which the event stream format allows.
cr_only = StyleQuirk(newline=b"\r")
# No space after `data:`.
no_space = StyleQuirk(space=False)
# The stream ends without `[DONE]`.
no_done = StyleQuirk(done=False)
# No finish reason is ever sent, only `[DONE]`.
no_finish_reason = StyleQuirk(finish=False)
# The body arrives byte by byte.
one_byte_pieces = StyleQuirk(split=1)
# The body is cut into pieces of three bytes, in the middle of characters, line ends and events.
split_utf8 = StyleQuirk(split=3)
# The whole stream arrives at once.
one_piece = StyleQuirk(split=1 << 24)
# The end of the connection is the end of the body (HTTP/1.0 style).
closing_connection = StyleQuirk(framing="close")
# The event stream calls itself text/plain.
wrong_content_type = StyleQuirk(content_type="text/plain; charset=utf-8")
# Usage is sent whether it was asked for or not.
usage_always = StyleQuirk(usage="always")
# Usage is in the chunk with the finish reason.
usage_in_last_chunk = StyleQuirk(usage="last")
# Thought is in `reasoning_content` (llama.cpp, vLLM, LM Studio).
reasoning_content = StyleQuirk(thinking="reasoning_content")
# Thought is in `reasoning` (OpenRouter, Ollama).
reasoning_field = StyleQuirk(thinking="reasoning")
# Thought is in the text between `<think>` and `</think>`.
think_tags = StyleQuirk(thinking="tags")
# Thought is in the text before a `</think>` whose opening the template swallowed.
closing_tag_only = StyleQuirk(thinking="closing")

HARMLESS: Mapping[str, Quirk] = {name: value for name, value in globals().items() if isinstance(value, StyleQuirk)} | {
    quirk.__name__: quirk for quirk in (tiny_fragments, stop_with_calls, prefill_progress)
}
"""Quirks under which a reply reads exactly as without them (call ids apart)."""

# All usage figures are zero.
usage_zero = StyleQuirk(usage="zero")
# Usage is never sent.
usage_missing = StyleQuirk(usage="never")
# Thought begins with `<think>` and never ends: all the text belongs to it.
unclosed_think = StyleQuirk(thinking="unclosed")

LOSSY: Mapping[str, Quirk] = {
    "usage_zero": usage_zero,
    "usage_missing": usage_missing,
    "unclosed_think": unclosed_think,
}
"""Quirks that lose a part of the reply: the figures, or the border between thought and text."""
