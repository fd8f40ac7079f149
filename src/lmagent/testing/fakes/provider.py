"""FakeProvider: a model with scripted replies, without a server.

It takes the same replies as `ScriptedServer`, so a test can move from one to the other; settings of the wire
(styles, delays, comments) are left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import cast, get_args

import anyio
import anyio.lowlevel
import msgspec

from lmagent.core import errors
from lmagent.core.messages import Message, Part, Text, Thinking, ToolCall
from lmagent.core.model import (
    FinishReason,
    ModelEvent,
    ModelReply,
    ModelRequest,
    Progress,
    TextChunk,
    ThinkingChunk,
    Usage,
)
from lmagent.core.repair import read_arguments
from lmagent.providers import failures, jsontext
from lmagent.testing.loopback import Hang
from lmagent.testing.script import Behaviour, PlainAnswer, Reply
from lmagent.testing.wire import finish_reason

URL = "http://fake/v1"

Scripted = Behaviour | Sequence[ModelEvent] | errors.ProviderError
Script = Sequence[Scripted | Callable[[ModelRequest], Scripted]] | Callable[[ModelRequest], Scripted]


class FakeProvider:
    """Gives out scripted replies, one a request.

    Args:
        script: replies: values of `lmagent.testing.script`, lists of model events that end with a Reply, or errors
            to raise; an item may be a function of the request. Or one function for all requests. After the last
            reply a request fails as a ServerFailure that says so.

    Attributes:
        requests: every request, with its messages at that moment.
        closed: whether `aclose` was called.
    """

    def __init__(self, script: Script = ()) -> None:
        self.requests: list[ModelRequest] = []
        self.closed = False
        self._script = script
        self._position = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(msgspec.structs.replace(request, messages=tuple(request.messages)))
        item = self._next(request)
        await anyio.lowlevel.checkpoint()
        if isinstance(item, errors.ProviderError):
            raise item
        if isinstance(item, PlainAnswer):
            if any(isinstance(step, Hang) for step in item.before_head):
                await anyio.sleep_forever()
            raise _refusal(item)
        hangs = isinstance(item, Reply) and isinstance(item.stop, Hang) and item.stop_chunks is not None
        events = _cut_events(item, len(self.requests)) if isinstance(item, Reply) else item
        for event in events:
            yield event
            await anyio.lowlevel.checkpoint()
        if hangs:
            await anyio.sleep_forever()

    async def aclose(self) -> None:
        """Note that it was closed."""
        self.closed = True

    def _next(self, request: ModelRequest) -> Scripted:
        if callable(self._script):
            return self._script(request)
        if self._position >= len(self._script):
            return errors.ServerFailure(f"script exhausted: all {len(self._script)} replies were given")
        item = self._script[self._position]
        self._position += 1
        return item(request) if callable(item) else item


def model_events(reply: Reply, number: int = 1) -> list[ModelEvent]:
    """Return the events that a provider gives for a scripted reply; `number` completes ids of calls without one."""
    events: list[ModelEvent] = [Progress(fraction) for fraction in reply.prefill]
    events += [ThinkingChunk(piece) for piece in _pieces(reply.thinking, reply.chunk)]
    events += [TextChunk(piece) for piece in _pieces(reply.text, reply.chunk)]
    calls = tuple(
        ToolCall(call.id or f"call_{number:06d}_{place}", call.name, _plain(call.arguments))
        for place, call in enumerate(reply.calls)
    )
    parts: list[Part] = []
    if reply.thinking:
        parts.append(Thinking(reply.thinking))
    if reply.text:
        parts.append(Text(reply.text))
    figures = reply.usage
    usage = Usage(figures.prompt, figures.completion, figures.cached) if figures else Usage(100, 10)
    said = finish_reason(reply)
    finish = cast("FinishReason", said if said in get_args(FinishReason) else "other")
    cut = frozenset(call.id for call in calls[-1:]) if finish == "length" else frozenset[str]()
    message = Message("assistant", (*parts, *calls))
    events.append(ModelReply(message, finish, usage, model="fake-model", truncated_calls=cut))
    return events


def _cut_events(reply: Reply, number: int) -> Iterator[ModelEvent]:
    """Yield the events up to the place where the script breaks the stream off, then raise the matching error."""
    events = model_events(reply, number)
    kept = events[:-1] if reply.error else events
    if reply.stop_chunks is not None:
        kept = events[: min(reply.stop_chunks, len(events) - 1)]
    elif reply.stop_bytes is not None:
        kept = []
    yield from kept
    if reply.error:
        raise failures.from_error(reply.error, url=URL, model="fake-model")
    if len(kept) < len(events) and not isinstance(reply.stop, Hang):
        raise errors.BadReply("the reply breaks off", retryable=True, partial=bool(kept))


def _refusal(answer: PlainAnswer) -> errors.ProviderError:
    """Return the typed error for an HTTP answer that is no reply."""
    body = b"".join(step for step in answer.chunks if isinstance(step, bytes))
    if answer.code == 200:
        return errors.BadReply(body.decode("utf-8", "replace") or "no answer")
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return failures.from_response(answer.code, headers, body, url=URL, model="fake-model")


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _plain(arguments: str) -> str:
    """Return the arguments as a provider passes them on: damage that is plainly complete is repaired."""
    meant = None if jsontext.is_object(arguments) else read_arguments(arguments)
    return arguments if meant is None else jsontext.dumps(meant).decode()
