"""Quirks: the oddities of real servers, by name.

Each function returns a reply in the form in which such a server would send it. All but the last group are
harmless: a client must read exactly the content of the plain reply. They combine: `crlf(think_tags(say("hi")))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lmagent.testing.script import Reply

Quirk = Callable[[Reply], Reply]


def _with(reply: Reply, **changes: Any) -> Reply:
    return replace(reply, style=replace(reply.style, **changes))


# --- calls --------------------------------------------------------------------------------------------------------


def ollama_index_zero(reply: Reply) -> Reply:
    """Every call has index 0 and an id of its own; each comes whole (Ollama)."""
    return _with(reply, index="zero")


def missing_index(reply: Reply) -> Reply:
    """Fragments carry no index: one without an id belongs to the call before it."""
    return _with(reply, index="none")


def missing_ids(reply: Reply) -> Reply:
    """Calls have no id."""
    return _with(reply, ids="none")


def same_ids(reply: Reply) -> Reply:
    """All calls have one and the same id and differ in index; each comes whole."""
    return _with(reply, ids="same")


def arguments_as_object(reply: Reply) -> Reply:
    """Arguments are a JSON object instead of its text."""
    return _with(reply, arguments="object")


def interleaved_calls(reply: Reply) -> Reply:
    """Fragments of several calls alternate and differ in their index."""
    return _with(reply, interleave=True, pieces=3)


def tiny_fragments(reply: Reply) -> Reply:
    """Arguments come a character or two at a time."""
    longest = max((len(call.arguments) for call in reply.calls), default=1)
    return _with(reply, pieces=longest)


def repeated_heads(reply: Reply) -> Reply:
    """Every fragment repeats role, id and name."""
    return _with(reply, heads=True)


def duplicate_deltas(reply: Reply) -> Reply:
    """Each call comes once more, whole, when it is complete; the finish and usage chunks come twice."""
    return _with(reply, duplicates=True)


def stop_with_calls(reply: Reply) -> Reply:
    """The finish reason is `stop` although there are calls."""
    return replace(reply, finish="stop")


# --- the stream ---------------------------------------------------------------------------------------------------


def empty_deltas(reply: Reply) -> Reply:
    """Empty deltas, null fields and chunks without choices are strewn in."""
    return _with(reply, empties=True)


def keepalive_comments(reply: Reply) -> Reply:
    """Comment lines come before every chunk (OpenRouter, LM Studio)."""
    return _with(reply, comments=True)


def prefill_progress(reply: Reply) -> Reply:
    """`prompt_progress` chunks come before the first token (llama.cpp)."""
    return replace(reply, prefill=(0.0, 0.5, 1.0))


def event_lines(reply: Reply) -> Reply:
    """The data is mixed with `event:`, `id:` and `retry:` lines."""
    return _with(reply, event_lines=True)


def crlf(reply: Reply) -> Reply:
    """Lines end with CR LF."""
    return _with(reply, newline=b"\r\n")


def cr_only(reply: Reply) -> Reply:
    """Lines end with CR alone, which the event stream format allows."""
    return _with(reply, newline=b"\r")


def no_space(reply: Reply) -> Reply:
    """No space after `data:`."""
    return _with(reply, space=False)


def no_done(reply: Reply) -> Reply:
    """The stream ends without `[DONE]`."""
    return _with(reply, done=False)


def no_finish_reason(reply: Reply) -> Reply:
    """No finish reason is ever sent, only `[DONE]`."""
    return _with(reply, finish=False)


def one_byte_pieces(reply: Reply) -> Reply:
    """The body arrives byte by byte."""
    return _with(reply, split=1)


def split_utf8(reply: Reply) -> Reply:
    """The body is cut into pieces of three bytes, in the middle of characters, line ends and events."""
    return _with(reply, split=3)


def one_piece(reply: Reply) -> Reply:
    """The whole stream arrives at once."""
    return _with(reply, split=1 << 24)


def closing_connection(reply: Reply) -> Reply:
    """The end of the connection is the end of the body (HTTP/1.0 style)."""
    return _with(reply, framing="close")


def wrong_content_type(reply: Reply) -> Reply:
    """The event stream calls itself text/plain."""
    return _with(reply, content_type="text/plain; charset=utf-8")


# --- usage --------------------------------------------------------------------------------------------------------


def usage_always(reply: Reply) -> Reply:
    """Usage is sent whether it was asked for or not."""
    return _with(reply, usage="always")


def usage_in_last_chunk(reply: Reply) -> Reply:
    """Usage is in the chunk with the finish reason."""
    return _with(reply, usage="last")


def usage_zero(reply: Reply) -> Reply:
    """All usage figures are zero."""
    return _with(reply, usage="zero")


def usage_missing(reply: Reply) -> Reply:
    """Usage is never sent."""
    return _with(reply, usage="never")


# --- thought ------------------------------------------------------------------------------------------------------


def reasoning_content(reply: Reply) -> Reply:
    """Thought is in `reasoning_content` (llama.cpp, vLLM, LM Studio)."""
    return _with(reply, thinking="reasoning_content")


def reasoning_field(reply: Reply) -> Reply:
    """Thought is in `reasoning` (OpenRouter, Ollama)."""
    return _with(reply, thinking="reasoning")


def think_tags(reply: Reply) -> Reply:
    """Thought is in the text between `<think>` and `</think>`."""
    return _with(reply, thinking="tags")


def closing_tag_only(reply: Reply) -> Reply:
    """Thought is in the text before a `</think>` whose opening the template swallowed."""
    return _with(reply, thinking="closing")


def unclosed_think(reply: Reply) -> Reply:
    """Thought begins with `<think>` and never ends: all the text belongs to it."""
    return _with(reply, thinking="unclosed")


HARMLESS: Mapping[str, Quirk] = {
    quirk.__name__: quirk
    for quirk in (
        ollama_index_zero,
        missing_index,
        missing_ids,
        same_ids,
        arguments_as_object,
        interleaved_calls,
        tiny_fragments,
        repeated_heads,
        duplicate_deltas,
        stop_with_calls,
        empty_deltas,
        keepalive_comments,
        prefill_progress,
        event_lines,
        crlf,
        cr_only,
        no_space,
        no_done,
        no_finish_reason,
        one_byte_pieces,
        split_utf8,
        one_piece,
        closing_connection,
        wrong_content_type,
        usage_always,
        usage_in_last_chunk,
        reasoning_content,
        reasoning_field,
        think_tags,
        closing_tag_only,
    )
}
"""Quirks under which a reply reads exactly as without them (call ids apart)."""

LOSSY: Mapping[str, Quirk] = {quirk.__name__: quirk for quirk in (usage_zero, usage_missing, unclosed_think)}
"""Quirks that lose a part of the reply: the figures, or the border between thought and text."""
