"""OpenAI's API with an agent as the model, for any of its clients. Reference: OpenAI's "Chat completions".

A request is one turn. `X-Session` names its session, and is in each answer; without it, a conversation resumes its
session (`facade_resume.py`), or begins one. A new session receives the whole conversation of the request, a resumed one
only the last message. The agent's steps come as `reasoning_content`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lmagent.app.open_session import OpenSession
from lmagent.core import events as ev
from lmagent.core.commands import Interrupt, Rename, SetModel
from lmagent.core.errors import LmagentError, ProviderError, SessionNotFound, ShuttingDown
from lmagent.core.ids import SESSION_RULE, is_session_id, new_id
from lmagent.core.messages import Message, Part
from lmagent.gateway.api.uploads import taken
from lmagent.gateway.facade_body import MAX_BODY, Completion, taken_in
from lmagent.gateway.facade_resume import expect, id_of, mark_of, repeated, resumed, settle, taking
from lmagent.gateway.facade_text import Answering, begun_with, joined, last_of, title_of
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.errors import Refusal, failure_of, status_of
from lmagent.gateway.http.route import Call, Route, json
from lmagent.gateway.turns import Spent, approval_patience, followed, named, raise_for_server, while_there

AGENT = "agent/lmagent"
"""The agent, with the model of new sessions; `agent/lmagent:NAME` uses the model NAME."""


class CompletionOptions(Struct, frozen=True):
    """The options in the headers.

    Attributes:
        session: `X-Session`; empty for a new one.
        interrupts: `X-Session-Interrupt: 1`: a client that leaves interrupts the turn.
        patience: `X-Approval-Timeout`, seconds.
        is_retry: `X-Stainless-Retry-Count`: OpenAI's own clients mark a repeated request.
    """

    session: str
    interrupts: bool
    patience: float
    is_retry: bool


# --- models -----------------------------------------------------------------------------------------------------------


async def list_agents(call: Call) -> Response:
    """Return the agents: the default one, and one per model that the server lists."""
    names = [AGENT]
    with suppress(ProviderError):  # the default agent is listed even if the server is down
        names += [f"{AGENT}:{model}" for model in await call.gateway.host.models()]
    rows = [{"id": name, "object": "model", "created": 0, "owned_by": "lmagent"} for name in names]
    return json({"object": "list", "data": rows})


async def _model_of(gateway: Gateway, name: str) -> str:
    """Return the model that an agent's name asks for; empty for that of new sessions."""
    if name == AGENT:
        return ""
    model = name.removeprefix(f"{AGENT}:")
    known = await gateway.host.models() if model != name else ()
    if model not in known:
        raise Refusal(404, "model_not_found", f"there is no agent {name[:200]!r}", fix="GET /v1/models lists them")
    return model


# --- one completion ---------------------------------------------------------------------------------------------------


async def complete(call: Call) -> Response:
    """Run one turn, as a chat completion."""
    async with taken_in(call.request) as body:
        _refuse_what_cannot_be(body)
        wanted = _wanted(call)
        session, input = await _submitted(call, body, wanted)
    turn = _Turn(call.gateway, session, input, body, wanted)
    headers = {"X-Session": session}
    if body.stream:
        return _Stream(turn, {**headers, "Cache-Control": "no-store", "X-Accel-Buffering": "no"})
    try:
        answer = await while_there(call.request, turn.whole)
    except LmagentError as error:
        settle(input)
        # A retry would repeat the whole turn, unless the next gateway resumes this one.
        again = isinstance(error, ShuttingDown)
        failed = told(error)
        failed.headers.update({**headers, "X-Should-Retry": "true" if again else "false"})
        return failed
    if answer is None:
        await turn.left()
        return Response(status_code=499)
    settle(input)
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=headers)


async def _submitted(call: Call, body: Completion, wanted: CompletionOptions) -> tuple[str, ev.InputReceived]:
    """Record the request's input, or return the recorded one if the request is a retry."""
    key = call.access.key_of(call.caller)
    mark = await to_thread.run_sync(partial(mark_of, key, body.model, body.messages, named=bool(wanted.session)))
    async with taking(mark):
        if wanted.is_retry and (sent := await repeated(call.gateway, mark, wanted.session)) is not None:
            return sent
        return await _given(call.gateway, key, mark, body, wanted)


async def _given(
    gateway: Gateway, key: bytes, mark: str, body: Completion, wanted: CompletionOptions
) -> tuple[str, ev.InputReceived]:
    """Submit the last message to a known session, or the whole conversation to a new one."""
    model = await _model_of(gateway, body.model)
    last, before = last_of(body.messages), begun_with(body.messages)
    asked = await _judged(gateway, last)
    async with _known(gateway, key, body, wanted) as known:
        if known is None:
            asked = (*await _judged(gateway, before), *asked)
            known = await (named(gateway, wanted.session) if wanted.session else gateway.runner.begin())
            if before:  # the first message then begins with the earlier conversation, which is no title
                await gateway.runner.send(known.id, Rename(title=title_of(last)))
        if model and known.session.state.model != model:
            await gateway.runner.send(known.id, SetModel(model=model))
        input = await gateway.runner.submit(known.id, Message("user", joined(asked)), id=id_of(mark), by="openai")
        expect(known.id, input)
        return known.id, input


@asynccontextmanager
async def _known(
    gateway: Gateway, key: bytes, body: Completion, wanted: CompletionOptions
) -> AsyncGenerator[OpenSession | None]:
    """Yield the session that has the earlier conversation; None if no session has it."""
    if wanted.session:
        yield await named(gateway, wanted.session) if _is_there(gateway, wanted.session) else None
        return
    async with resumed(gateway, key, body.model, body.messages) as known:
        yield known


async def _judged(gateway: Gateway, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts with their images checked."""
    return (await taken(gateway.host.workspace, Message("user", tuple(parts)))).parts


def _wanted(call: Call) -> CompletionOptions:
    headers = call.request.headers
    session = headers.get("x-session", "")
    if session and not is_session_id(session):
        raise Refusal(
            400, "invalid", "X-Session is no session's id", fix=f"{SESSION_RULE}; leave it out for a new session"
        )
    try:
        patience = float(headers.get("x-approval-timeout", approval_patience(call.gateway)))
    except ValueError:
        patience = 0.0
    if not 0 < patience <= 86_400:
        raise Refusal(400, "invalid", "X-Approval-Timeout takes seconds, up to 86400")
    is_retry = headers.get("x-stainless-retry-count", "0") not in ("", "0")
    return CompletionOptions(session, headers.get("x-session-interrupt", "") in ("1", "true"), patience, is_retry)


def _is_there(gateway: Gateway, session: str) -> bool:
    try:
        gateway.host.store.read(session)
    except SessionNotFound:
        return False
    return True


def _refuse_what_cannot_be(body: Completion) -> None:
    """Refuse options that an agent cannot honour: it calls its own tools and answers in text."""
    format = (body.response_format or {}).get("type", "text")
    wrong = {
        "tools": bool(body.tools or body.functions),
        "tool_choice": body.tool_choice not in (None, "none", "auto"),
        "response_format": format != "text",
        "n": (body.n or 1) != 1,
        "logprobs": bool(body.logprobs),
        "modalities": any(kind != "text" for kind in body.modalities or ()),
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            text = f"'{name}' cannot be honoured here: an agent calls tools of its own and answers once, in words"
            raise Refusal(400, "unsupported", text, fix=f"leave '{name}' out, or ask the model server itself")


class _Turn:
    """A turn, answered as a completion."""

    def __init__(
        self, gateway: Gateway, session: str, input: ev.InputReceived, body: Completion, wanted: CompletionOptions
    ) -> None:
        self._gateway, self._session, self._input, self._body, self._wanted = gateway, session, input, body, wanted
        self._answering = Answering()
        self._spent = Spent()
        self._ended = False
        self._base = {"id": f"chatcmpl-{new_id()}{new_id()}", "created": int(time.time()), "model": body.model}

    async def left(self) -> None:
        """Interrupt the turn if the client, which has gone, asked for that."""
        if self._wanted.interrupts and not self._ended:
            settle(self._input)  # a repeated request wants a new turn, not the interrupted one
            with anyio.CancelScope(shield=True), suppress(LmagentError):
                await self._gateway.runner.send(self._session, Interrupt())

    async def whole(self) -> dict[str, Any]:
        """Return the completion once the turn has ended.

        Raises:
            LmagentError: the model server failed.
        """
        async with aclosing(self._events()) as events:
            async for event in events:
                if event is not None:
                    self._answering.take(event)
        answering = self._answering
        message = {"role": "assistant", "content": answering.answer, "reasoning_content": answering.done or None}
        choice = {"index": 0, "message": message, "finish_reason": answering.finish, "logprobs": None}
        return {**self._base, "object": "chat.completion", "choices": [choice], "usage": self._usage()}

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the completion in chunks."""
        try:
            yield self._chunk({"role": "assistant", "content": ""})
            async with aclosing(self._events()) as events:
                async for event in events:
                    if event is None:
                        yield b": waiting\n\n"
                        continue
                    for name, text in self._answering.take(event):
                        yield self._chunk({name: text})
            yield self._chunk({}, self._answering.finish)
            if self._body.stream_options is not None and self._body.stream_options.include_usage:
                yield _data({**self._base, "object": "chat.completion.chunk", "choices": [], "usage": self._usage()})
            yield b"data: [DONE]\n\n"
            settle(self._input)
        except LmagentError as error:
            self._ended = True
            yield _data(error_of(error))
            settle(self._input)
        finally:
            await self.left()

    async def _events(self) -> AsyncGenerator[ev.Event | None]:
        events = followed(self._gateway, self._session, self._input, patience=self._wanted.patience)
        async with aclosing(events):
            async for event in events:
                self._spent.take(event)
                if isinstance(event, ev.TurnFinished):
                    self._ended = True
                    raise_for_server(event)
                yield event

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _data({**self._base, "object": "chat.completion.chunk", "choices": [choice]})

    def _usage(self) -> dict[str, Any]:
        spent = self._spent
        return {
            "prompt_tokens": spent.prompt,
            "completion_tokens": spent.completion,
            "total_tokens": spent.prompt + spent.completion,
            "prompt_tokens_details": {"cached_tokens": spent.cached},
        }


class _Stream(StreamingResponse):
    """The chunks of a turn; its generator is closed as soon as the client leaves."""

    def __init__(self, turn: _Turn, headers: dict[str, str]) -> None:
        self._chunks = turn.chunks()
        super().__init__(self._chunks, media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._chunks):
            await super().__call__(scope, receive, send)


def _data(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


# --- errors -----------------------------------------------------------------------------------------------------------


def error_of(error: Exception) -> dict[str, Any]:
    """Return an error in OpenAI's shape."""
    told, status = failure_of(error).error, status_of(error)
    text = f"{told.message}. {told.fix}" if told.fix else told.message
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": told.code}}


def told(error: Exception) -> Response:
    return json(error_of(error), status_of(error))


ROUTES = (
    Route("GET", "/v1/models", list_agents, "Agents, as OpenAI lists models", answer=dict[str, Any], tell=told),
    Route(
        "POST",
        "/v1/chat/completions",
        complete,
        "One turn of an agent, as OpenAI's chat completion",
        body=Completion,
        answer=dict[str, Any],
        errors=(404, 409, 413, 415, 502, 503),
        raw=True,
        limit=MAX_BODY,
        tell=told,
    ),
)
