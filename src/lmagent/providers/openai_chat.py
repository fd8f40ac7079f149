"""The Provider for OpenAI-compatible servers: each call is one streamed chat completion."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from random import random
from typing import TYPE_CHECKING, Any

import anyio

from lmagent.core.errors import BadReply, ConnectionLost, ModelLoading, ProviderError
from lmagent.core.model import (
    ModelEvent,
    ModelReply,
    ModelRequest,
    Progress,
    Retrying,
    TextChunk,
    ThinkingChunk,
    ToolSpec,
)
from lmagent.core.ports import Clock
from lmagent.providers import jsontext
from lmagent.providers.concealed import hidden
from lmagent.providers.encode import BodyEncoder
from lmagent.providers.retry import Joining, RetryPolicy, next_delay
from lmagent.providers.transport import (
    ErrorChunk,
    Timeouts,
    Transport,
    TransportError,
    TransportResponse,
    json_headers,
    read_all,
)
from lmagent.providers.urls import authority, chat_url, is_loopback

if TYPE_CHECKING:
    # the reader of a reply is loaded while the server works on the reply
    from lmagent.providers.assemble import Assembler
    from lmagent.providers.sse import LineReader, SseReader

TAIL = 5.0
"""Seconds after the finish reason for usage, `[DONE]` or the end: some servers send none, and stay connected."""
LONG_TAIL = 30.0
"""The same if the finish reason came with content: some servers send one with every chunk."""
DRAIN = 0.25
"""The same after `[DONE]`: a connection that is read to its end can be used again."""

LOADING = 2.0
"""Seconds between two tries while the server loads the model, which may take as long as the first byte may."""

_ERROR_BODY = 256 * 1024
_PLAIN_BODY = 64 * 1024 * 1024
_NEVER_OMITTED = {"model", "messages", "stream", "tools", "provider", "options", "truncate", "shift", "format"}
"""Fields without which it would be another request."""
_BY_NAME_ALONE = ("stream_options", "tool_choice")
_UNKNOWN = (
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|extra (field|input)"
    r"|invalid (field|param)"
)


class OpenAIChat:
    """A model server that speaks OpenAI's chat completions.

    Args:
        base_url: base URL or full chat URL.
        api_key: sent as a bearer token; empty sends none.
        transport: shared, and closed with this.
        model: for requests without one.
        extras: returns more fields for a request, in the server's dialect.

    Attributes:
        num_ctx: the window in every request; None if the server decides it.

    Raises:
        ConfigError: `base_url` is no URL.
    """

    num_ctx: int | None = None

    def __init__(  # noqa: PLR0913 (settings by keyword)
        self,
        base_url: str,
        api_key: str = "",
        *,
        transport: Transport,
        clock: Clock,
        timeouts: Timeouts = Timeouts(),  # noqa: B008  # frozen
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008  # frozen
        model: str = "",
        extras: Callable[[ModelRequest], dict[str, Any]] = lambda _: {},
    ) -> None:
        self.url = chat_url(base_url)
        self._server = f"the model server at {authority(self.url)}"
        self._local = is_loopback(self.url)
        self._headers = json_headers(api_key, "text/event-stream, application/json")
        self._transport = transport
        self._clock = clock
        self._timeouts = timeouts
        self._retries = retries
        self._extras = extras
        self._encoder = BodyEncoder()
        self._omit: set[str] = set()
        self._model = model

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `lmagent.core.ports.Provider`."""
        attempt, begun, loads = 1, self._clock.monotonic(), False
        joining = Joining(request)
        while True:
            shown = False
            try:
                async with aclosing(self._attempt(joining.request)) as events:
                    async for event in events:
                        shown = shown or isinstance(event, TextChunk | ThinkingChunk)
                        yield joining.answered(event) if isinstance(event, ModelReply) else event
                return
            except _Adapted:
                continue
            except ModelLoading as failure:
                if self._clock.monotonic() - begun >= self._timeouts.first_byte:
                    raise
                yield Progress() if loads else Retrying(reason=failure.message, attempt=attempt, delay=LOADING)
                loads = True
                await self._clock.sleep(LOADING)
                continue
            except ProviderError as failure:
                if not shown and joining.adapts(failure):
                    continue
                failure.partial = shown
                delay = next_delay(self._retries, failure, attempt, local=self._local, random=random)
                if delay is None:
                    raise
                reason = failure.message
            attempt += 1
            yield Retrying(reason=reason, attempt=attempt, delay=delay)
            await self._clock.sleep(delay)

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        extras = {name: value for name, value in self._extras(request).items() if name not in self._omit}
        body = self._encoder.encode(request, self._omit, model=self._model, extras=extras)
        begun, timeouts = self._clock.monotonic(), self._timeouts.reading(len(body))
        try:
            async with await self._transport.send("POST", self.url, self._headers, body, timeouts) as response:
                if response.status // 100 != 2:
                    await self._refused(request, body, response)
                async for event in self._read(request, response, len(body), begun):
                    yield event
        except (TransportError, ErrorChunk) as error:
            from lmagent.providers import failures  # a successful run never needs it

            if isinstance(error, TransportError):
                raise failures.from_transport(error, url=self.url, timeouts=timeouts) from error
            raise failures.from_error(error.error, url=self.url, model=request.model) from error

    async def _read(
        self, request: ModelRequest, response: TransportResponse, prompt_bytes: int, begun: float
    ) -> AsyncGenerator[ModelEvent]:
        from lmagent.providers.assemble import Assembler

        tools, server = callable_tools(request), self._server
        assembler = Assembler(lambda: self._clock.monotonic() - begun, tools, request.tools, server, request.longest)
        first: float | None = None
        async with aclosing(self._payloads(response, assembler)) as payloads:
            async for batch in payloads:
                events = assembler.feed(*batch)
                if first is None and assembler.started:
                    first = self._clock.monotonic() - begun
                for event in events:
                    if not (request.constrain and isinstance(event, TextChunk)):  # JSON is not for the user
                        yield event
                assembler.check()
                if assembler.endless:
                    break  # the connection is closed, which stops the server
        if not (assembler.ended or assembler.endless) or assembler.chunks == 0:
            raise _unfinished(assembler)
        for event in assembler.flush():
            if not request.constrain:
                yield event
        total = self._clock.monotonic() - begun
        reply = assembler.reply(
            taken=self._encoder.call_ids(request),
            prompt_bytes=prompt_bytes,
            first_token_s=total if first is None else first,
            total_s=total,
        )
        if request.constrain and not assembler.endless:
            from lmagent.providers.constrain import understood  # few models need it

            reply = understood(reply, request.tools)
        yield reply

    async def _refused(self, request: ModelRequest, body: bytes, response: TransportResponse) -> None:
        """Raise the error of a status other than 2xx, or `_Adapted` if the request can be changed."""
        from lmagent.providers import failures

        try:
            answer = await read_all(response, _ERROR_BODY)
        except TransportError:
            answer = b""
        model = request.model or self._model
        failure = failures.from_response(response.status, response.headers, answer, url=self.url, model=model)
        if response.status in (400, 404, 422):
            field = self._unknown_field(body, failure.message) if type(failure) is ProviderError else None
            if field is not None:
                self._omit.add(field)
                raise _Adapted
        raise failure

    def _unknown_field(self, body: bytes, refusal: str) -> str | None:
        """Return the optional field that a refusal names, if it was sent."""
        sent = jsontext.loads(body).keys() - _NEVER_OMITTED - self._omit
        named = [name for name in sent if re.search(rf"\b{re.escape(name)}\b", refusal)]
        refused = re.search(_UNKNOWN, refusal, re.IGNORECASE)
        return max((name for name in named if refused or name in _BY_NAME_ALONE), key=len, default=None)

    def _reader(self, begin: bytes) -> SseReader | LineReader | None:
        """Return the reader of a stream that begins with this byte; None if it is no stream."""
        from lmagent.providers.sse import SseReader

        return None if begin in (b"{", b"[", b"<") else SseReader()

    async def _payloads(self, response: TransportResponse, assembler: Assembler) -> AsyncGenerator[list[bytes]]:
        """Yield the body's payloads, in the batches in which they come; a body that is no stream is one payload."""
        reader: SseReader | LineReader | None = None
        head = b""
        async with aclosing(_until_complete(response.chunks, assembler)) as chunks:
            async for chunk in chunks:
                if reader is not None:
                    yield reader.feed(chunk)
                    continue
                head += chunk
                begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
                if begin and (reader := self._reader(begin)) is None:
                    yield [await self._plain_body(response, head)]
                    assembler.done = assembler.done or assembler.chunks == 1
                    return
                if reader is not None:
                    yield reader.feed(head)
        if reader is not None:
            last = reader.finish()
            if all(map(_is_whole, last)):
                yield last
            elif not assembler.ended:
                raise _unfinished(assembler, last[-1])
        if reader is None or (assembler.chunks == 0 and not assembler.done and b"data:" not in head):
            raise self._no_reply(head, response)

    async def _plain_body(self, response: TransportResponse, head: bytes) -> bytes:
        body = head + await read_all(response, _PLAIN_BODY)
        if body.lstrip()[:1] == b"<" or not any(word in body for word in (b'"choices"', b"error", b'"detail"')):
            raise self._no_reply(body, response)
        return body

    def _no_reply(self, body: bytes, response: TransportResponse) -> BadReply:
        from lmagent.providers import failures

        return failures.not_a_reply(body, response.headers.get("content-type", ""), url=self.url)


def callable_tools(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """Return the tools that the reply may call, also by the names of the catalogue and by aliases."""
    if request.tool_choice != "auto" or request.constrain or not request.tools:
        return ()
    return (*request.tools, *request.others())


class _Adapted(Exception):
    """The request is to be sent again at once, changed."""


def _unfinished(assembler: Assembler, cut: bytes = b"") -> ProviderError:
    if assembler.chunks == 0 and not cut:
        return BadReply(f"{assembler.server} answered with an empty stream", fix="look at the server's log")
    said = hidden(cut[:200].decode("utf-8", "replace"))
    return ConnectionLost(
        f"the stream of {assembler.server} ended in the middle of the reply{f', after {said!r}' if cut else ''}",
        fix="look at the server's log: it may have run out of memory",
        retryable=True,
    )


async def _until_complete(chunks: AsyncIterator[bytes], assembler: Assembler) -> AsyncGenerator[bytes]:
    """Yield the chunks; after the end of the reply only for a limited time.

    Keep-alives and empty chunks do not prolong it, and the end of the connection no longer matters.
    """
    until, known = math.inf, -1
    while True:
        if assembler.ended:
            now = anyio.current_time()
            if known < 0 or (assembler.spoke and assembler.chunks > known):
                until = now + (LONG_TAIL if assembler.spoke else TAIL)
            until = min(until, now + DRAIN) if assembler.done else until
            known = assembler.chunks
        chunk: bytes | None = None
        try:
            if known < 0:
                chunk = await anext(chunks, None)
            else:
                with anyio.CancelScope(deadline=until):
                    chunk = await anext(chunks, None)
        except TransportError:
            if known < 0:
                raise
        if chunk is None:
            return
        yield chunk


def _is_whole(payload: bytes) -> bool:
    """Return whether a last payload is complete, rather than cut in half by the end of the stream."""
    parts = (payload, payload.rpartition(b"\n")[2])  # some servers leave out the blank lines between events
    return any(part.strip() == b"[DONE]" or bool(jsontext.loads_or_none(part)) for part in parts)
