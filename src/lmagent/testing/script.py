"""Script: a test's instructions to the model server.

    say("hello")                                 a text answer
    call("read", path="a.txt")                   a tool call (`call_raw` for arguments as raw text)
    calls(tool("read", path="a"), tool("ls"))    several calls in one reply
    think("hm", say("hello"))                    a thought before a reply
    reply(text=…, thinking=…, calls=…, finish=…, usage=…)

    slow(reply, first=1.0, each=0.05)            delays; `keepalive` and `prefill` show life during them
    cut(reply, chunks=3), hang(reply, chunks=3)  the stream breaks off, or pauses forever
    status(429, headers={"Retry-After": "2"})    an HTTP error; `lmagent.testing.faults` has the servers' own wordings
    error_in_stream("out of memory", say("par")) an error inside a 200
    raw([b"data: …"])                            anything at all

An odd but allowed form of a reply is a `WireStyle`; `lmagent.testing.quirks` names the oddities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from lmagent.testing.loopback import Drop, Framing, Hang, Pause, Received


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call. `arguments` is sent unchanged; an empty `id` is numbered by the server."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """Usage figures, instead of the server's own (canonical bytes / 4)."""

    prompt: int
    completion: int
    cached: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WireStyle:
    """The form of a reply on the wire. The defaults are OpenAI's; the other values occur in real servers."""

    newline: bytes = b"\n"  # line end of the event stream
    space: bool = True  # a space after `data:`
    event_lines: bool = False  # `event:`, `id:` and `retry:` lines beside the data
    done: bool = True  # the stream ends with `[DONE]`
    # the field that holds thought, or the way it is tagged in the text
    thinking: Literal["reasoning_content", "reasoning", "tags", "unclosed", "closing"] = "reasoning_content"
    # how the calls of one reply are numbered: `count`, always `zero`, or `none`
    index: Literal["count", "zero", "none"] = "count"
    ids: Literal["own", "none", "same"] = "own"  # calls have ids of their own, `none`, or the `same` one
    arguments: Literal["text", "object"] = "text"  # as JSON `text`, or as an `object`
    pieces: int = 2  # fragments of a call's arguments; with `interleave`, those of several calls alternate
    interleave: bool = False  # see `pieces`
    heads: bool = False  # id, name and role are repeated with every fragment
    duplicates: bool = False  # finished calls, the finish chunk and the usage chunk are sent twice
    empties: bool = False  # empty deltas, null deltas and chunks without choices are strewn in
    comments: bool = False  # a comment line before every chunk
    finish: bool = True  # the finish reason is sent; without it the stream just ends
    # `asked` (when the request asks for it), `always`, `zero`, `never`, or `last` (in the finish chunk)
    usage: Literal["asked", "always", "zero", "never", "last"] = "asked"
    # the byte stream is divided into pieces of this many bytes, whatever they hold; 0 leaves events whole
    split: int = 0
    framing: Framing = "chunked"  # how the end of the body is marked
    content_type: str = "text/event-stream"  # the answer's content type


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's reply."""

    text: str = ""  # the answer
    thinking: str = ""  # the thought before it
    calls: tuple[ScriptedCall, ...] = ()  # tool calls
    finish: str = ""  # finish reason; empty is `tool_calls` with calls and `stop` without
    usage: Counts | None = None  # figures to report; None lets the server count
    chunk: int = 16  # characters of text in one delta
    style: WireStyle = field(default_factory=WireStyle)  # how it looks on the wire
    before_head: float = 0.0  # seconds before the status line
    first: float = 0.0  # seconds between the status line and the first event
    each: float = 0.0  # seconds between events
    keepalive: int = 0  # comment lines spread over the time of `first`
    # fractions reported by `prompt_progress` events (llama.cpp), spread over the time of `first`
    prefill: tuple[float, ...] = ()
    stop_chunks: int | None = None  # break the stream off after this many events; None lets it end
    stop_bytes: int | None = None  # break the stream off after this many bytes of body; None lets it end
    stop: Drop | Hang = field(default_factory=Drop)  # how it breaks off
    error: str = ""  # the text of an error chunk that ends the stream


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """An answer that is no reply: an error, a page, or bytes of any kind."""

    chunks: tuple[bytes | Pause | Drop | Hang, ...]  # pieces of the body, with pauses and ends between them
    code: int = 200  # HTTP status
    headers: Mapping[str, str] = field(default_factory=dict[str, str])  # header fields
    framing: Framing = "length"  # how the end of the body is marked
    before_head: tuple[Pause | Drop | Hang, ...] = ()  # what happens before the status line


Behaviour = Reply | PlainAnswer
Scripted = Behaviour | Callable[[Received], Behaviour]
Script = Sequence[Scripted] | Callable[[Received], Behaviour]


def say(text: str, *, chunk: int = 16) -> Reply:
    """A text answer, streamed in deltas of `chunk` characters."""
    return Reply(text=text, chunk=chunk)


def tool(name: str, /, **arguments: Any) -> ScriptedCall:
    """A call, to be put into `calls` or `reply`."""
    return ScriptedCall(name, msgspec.json.encode(arguments).decode())


def call(name: str, /, **arguments: Any) -> Reply:
    """A reply that is one tool call."""
    return Reply(calls=(tool(name, **arguments),))


def call_raw(name: str, arguments: str, *, id: str = "") -> Reply:
    """A reply that is one tool call whose arguments are this text, damaged or not."""
    return Reply(calls=(ScriptedCall(name, arguments, id),))


def calls(*wanted: ScriptedCall, text: str = "") -> Reply:
    """A reply with several tool calls."""
    return Reply(text=text, calls=wanted)


def think(thought: str, then: Reply | None = None) -> Reply:
    """A thought, and the reply that follows it."""
    return replace(then or Reply(), thinking=thought)


def reply(
    *,
    text: str = "",
    thinking: str = "",
    calls: Sequence[ScriptedCall] = (),
    finish: str = "",
    usage: Counts | None = None,
) -> Reply:
    """A reply, part by part."""
    return Reply(text=text, thinking=thinking, calls=tuple(calls), finish=finish, usage=usage)


def slow(
    then: Reply,
    *,
    before_head: float = 0.0,
    first: float = 0.0,
    each: float = 0.0,
    keepalive: int = 0,
    prefill: Sequence[float] = (),
) -> Reply:
    """The reply with delays in seconds; `keepalive` comments and `prefill` fractions are spread over `first`."""
    return replace(then, before_head=before_head, first=first, each=each, keepalive=keepalive, prefill=tuple(prefill))


def cut(then: Reply, *, chunks: int | None = None, bytes: int | None = None, reset: bool = False) -> Reply:
    """The reply, broken off after so many events or bytes."""
    return replace(then, stop_chunks=chunks, stop_bytes=bytes, stop=Drop(reset))


def hang(then: Reply | None = None, *, chunks: int = 0) -> Behaviour:
    """Never answer; with a reply, fall silent after so many of its events."""
    if then is None:
        return PlainAnswer((), before_head=(Hang(),))
    return replace(then, stop_chunks=chunks, stop=Hang())


def refuse() -> PlainAnswer:
    """Close the connection without an answer."""
    return PlainAnswer((), before_head=(Drop(),))


def status(code: int, body: object = None, headers: Mapping[str, str] | None = None) -> PlainAnswer:
    """Answer with an HTTP status.

    `body` is sent as JSON, as text (str) or unchanged (bytes); the default is OpenAI's shape.
    """
    fields = {"Content-Type": "application/json"}
    if body is None:
        body = {"error": {"message": f"scripted status {code}", "type": "scripted", "code": code}}
    if isinstance(body, str):
        fields, data = {"Content-Type": "text/plain; charset=utf-8"}, body.encode()
    else:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return PlainAnswer((data,), code, fields | dict(headers or {}))


def error_in_stream(message: str, then: Reply | None = None) -> Reply:
    """A 200 whose stream ends with an error chunk, after the reply's own chunks."""
    return replace(then or Reply(), error=message)


def raw(
    chunks: Sequence[bytes | Pause | Drop | Hang],
    *,
    code: int = 200,
    content_type: str = "text/event-stream",
    framing: Framing = "chunked",
) -> PlainAnswer:
    """Any bytes at all."""
    return PlainAnswer(tuple(chunks), code, {"Content-Type": content_type}, framing)
