"""OpenAI's API with an agent as the model, for any of its clients. Reference: OpenAI's "Chat completions".

Most clients keep the conversation, not an id, so each input is recorded under a digest of the whole request, keyed by
the caller (`input.received.origin`). A request with the same conversation, its exact answer and one more message
continues that session, if exactly one matches and it is idle. Otherwise a session begins with the whole conversation.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from starlette.responses import Response

from lmagent.app.open_session import OpenSession
from lmagent.core import events as ev
from lmagent.core.commands import Interrupt, Rename, SetModel
from lmagent.core.errors import LmagentError, ProviderError, SessionBusy, SessionNotFound, ShuttingDown
from lmagent.core.ids import SESSION_RULE, is_session_id, new_id
from lmagent.core.messages import Message, Part
from lmagent.gateway.api.uploads import taken
from lmagent.gateway.compat.http import usage_of
from lmagent.gateway.facade_text import (
    MAX_REQUEST,
    MAX_TEXT,
    Answering,
    Completion,
    Said,
    answer_of,
    begun_with,
    joined,
    last_of,
    read_completion,
    title_of,
)
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.errors import Refusal, failure_of, status_of
from lmagent.gateway.http.route import Call, ClosingStream, Routes, json, must_be_json
from lmagent.gateway.turns import Spent, approval_patience, followed, named, raise_for_server, while_there
from lmagent.store.port import SessionStore

AGENT = "agent/lmagent"  # the agent, with the model of new sessions; `agent/lmagent:NAME` uses the model NAME
STARTED = time.time()  # start of this process. Turns that ended earlier were answered by another process.


def error_of(error: Exception) -> dict[str, Any]:
    """Return an error in OpenAI's shape."""
    told, status = failure_of(error).error, status_of(error)
    text = f"{told.message}. {told.fix}" if told.fix else told.message
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": told.code}}


def told(error: Exception) -> Response:
    return json(error_of(error), status_of(error))


ROUTES = Routes()


class CompletionOptions(Struct, frozen=True):
    """The options in the headers."""

    session: str  # `X-Session`; empty for a new one
    interrupts: bool  # `X-Session-Interrupt: 1`: a client that leaves interrupts the turn
    patience: float  # `X-Approval-Timeout`, seconds
    is_retry: bool  # `X-Stainless-Retry-Count`: OpenAI's own clients mark a repeated request


# --- models -----------------------------------------------------------------------------------------------------------


@ROUTES.get("/v1/models", "Agents, as OpenAI lists models", tell=told)
async def list_agents(call: Call) -> dict[str, Any]:
    """Return the agents: that of new sessions, those with a name, and the first with each model of the server."""
    host = call.gateway.host
    names = [AGENT, *(name for agent in host.choosable() if (name := f"agent/{agent.name}") != AGENT)]
    with suppress(ProviderError):  # the default agent is listed even if the server is down
        names += [f"{AGENT}:{model}" for model in await host.models()]
    rows = [{"id": name, "object": "model", "created": 0, "owned_by": "lmagent"} for name in names]
    return {"object": "list", "data": rows}


async def _asked_for(gateway: Gateway, name: str) -> tuple[str, str]:
    """Return the agent and the model that a name asks for; empty for those of new sessions."""
    if name == AGENT:
        return "", ""
    agent, _, model = name.removeprefix("agent/").partition(":")
    default = agent == AGENT.removeprefix("agent/")
    is_known = default or agent in {one.name for one in gateway.host.choosable()}
    if not name.startswith("agent/") or not is_known or (model and model not in await gateway.host.models()):
        raise Refusal(404, "model_not_found", f"there is no agent {name[:200]!r}", fix="GET /v1/models lists them")
    return "" if default else agent, model


# --- one completion ---------------------------------------------------------------------------------------------------


async def _session_of(call: Call) -> str:
    """Return the session that a completion is for, if it is known."""
    wanted = _wanted(call)
    if wanted.session:
        return wanted.session
    body, messages = await _read(call)
    key = call.key
    found = await _continued(call.gateway, key, body.model, messages)
    if found is None and wanted.is_retry:
        mark = await to_thread.run_sync(mark_of, key, body.model, messages)
        found = await _repeated(call.gateway, mark, "")
    return found.session if found is not None else ""


async def _read(call: Call) -> tuple[Completion, Sequence[Said]]:
    data = await call.request.body()
    return await to_thread.run_sync(read_completion, data) if len(data) > MAX_TEXT else read_completion(data)


@ROUTES.post(
    "/v1/chat/completions",
    "One turn of an agent, as OpenAI's chat completion",
    body=Completion,
    answer=dict[str, Any],
    raw=True,
    limit=MAX_REQUEST,
    session_of=_session_of,
    tell=told,
)
async def complete(call: Call) -> Response:
    """Run one turn, as a chat completion."""
    must_be_json(call.request)
    body, messages = await _read(call)
    wanted = _wanted(call)
    async with call.gateway.accepting:
        session, input = await _accepted(call, body.model, messages, wanted)
    turn = _Turn(call.gateway, session, input, body, wanted)
    headers = {"X-Session": session}
    if body.stream:
        headers |= {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return ClosingStream(turn.chunks(), media_type="text/event-stream", headers=headers)
    try:
        answer = await while_there(call.request, turn.whole)
    except LmagentError as error:
        turn.settle()
        # A retry would repeat the whole turn, unless the next gateway resumes this one.
        again = isinstance(error, ShuttingDown)
        failed = told(error)
        failed.headers.update({**headers, "X-Should-Retry": "true" if again else "false"})
        return failed
    if answer is None:
        await turn.left()
        return Response(status_code=499)
    turn.settle()
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=headers)


def _wanted(call: Call) -> CompletionOptions:
    headers = call.request.headers
    session = headers.get("x-session", "")
    if session and not is_session_id(session):
        fix = f"{SESSION_RULE}; leave it out for a new session"
        raise Refusal(400, "invalid", "X-Session is no session's id", fix=fix)
    try:
        patience = float(headers.get("x-approval-timeout", approval_patience(call.gateway)))
    except ValueError:
        patience = 0.0
    if not 0 < patience <= 86_400:
        raise Refusal(400, "invalid", "X-Approval-Timeout takes seconds, up to 86400")
    is_retry = headers.get("x-stainless-retry-count", "0") not in ("", "0")
    return CompletionOptions(session, headers.get("x-session-interrupt", "") in ("1", "true"), patience, is_retry)


async def _accepted(
    call: Call, name: str, messages: Sequence[Said], wanted: CompletionOptions
) -> tuple[str, ev.InputReceived]:
    """Record the request's input, or return the recorded one if the request is a retry."""
    gateway, key = call.gateway, call.key
    mark = await to_thread.run_sync(mark_of, key, name, messages, bool(wanted.session))
    if wanted.is_retry and (sent := await _repeated(gateway, mark, wanted.session)) is not None:
        (await gateway.runner.open(sent.session)).work()  # an earlier process may have been killed during it
        return sent.session, sent.input
    agent, model = await _asked_for(gateway, name)
    asked, before = await _checked(gateway, last_of(messages)), await _checked(gateway, begun_with(messages))
    known = await (named(gateway, wanted.session) if wanted.session else _resumed(gateway, key, name, messages))
    if known is None:
        known = await gateway.runner.begin(agent=agent)
    state = known.session.state
    if agent and state.agent != agent:
        raise Refusal(409, "another_agent", f"that session's agent is {state.agent}", fix="leave X-Session out")
    if before and not (state.turn or state.inputs):
        # Its first message begins with the earlier conversation, which is no title.
        await gateway.runner.send(known.id, Rename(title=title_of(asked)))
        asked = (*before, *asked)
    if model and state.model != model:
        await gateway.runner.send(known.id, SetModel(model=model))
    message = Message("user", joined(asked))
    return known.id, await gateway.runner.submit(known.id, message, id=f"{mark}{new_id()}", by="openai")


async def _checked(gateway: Gateway, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts with their images checked."""
    return (await taken(gateway.uploads, Message("user", tuple(parts)))).parts


# --- finding the session of a conversation ----------------------------------------------------------------------------


def mark_of(key: bytes, model: str, messages: Sequence[Said], is_named: bool = False) -> str:
    """Return the common prefix of the ids of inputs with the same request; with a named session it is another one."""
    said = [(one.role, one.text.strip() if one.role == "assistant" else one.parts) for one in messages]
    digest = hmac.new(key, msgspec.json.encode((model, said)), "sha256")
    return f"{'oas' if is_named else 'oai'}:{digest.hexdigest()[:40]}:"


class _Exchange(Struct):
    """The last input of a session and the end of its turn; None while the turn runs."""

    session: str
    input: ev.InputReceived
    end: ev.TurnFinished | None = None


async def _repeated(gateway: Gateway, mark: str, session: str) -> _Exchange | None:
    """Return the last exchange of the same request, if its answer is due; None if that is uncertain.

    The request may never have arrived before, so an input whose answer was delivered is not meant.
    """

    def is_due(last: _Exchange) -> bool:
        is_new = last.end is None or last.end.ts >= STARTED
        return is_new and last.input.id not in gateway.answered and session in ("", last.session)

    return await _only(gateway, mark, is_due)


async def _resumed(gateway: Gateway, key: bytes, model: str, messages: Sequence[Said]) -> OpenSession | None:
    """Return the idle session of this conversation up to its last message; None if that is uncertain."""
    if (found := await _continued(gateway, key, model, messages)) is None:
        return None
    try:
        known = await gateway.runner.open(found.session)
    except (SessionNotFound, SessionBusy):
        return None
    state, mark = known.session.state, found.input.origin.key
    return known if state.origin.key == mark and not (state.turn_open or state.inputs) else None


async def _continued(gateway: Gateway, key: bytes, model: str, messages: Sequence[Said]) -> _Exchange | None:
    """Return the last exchange of this conversation; None if that is uncertain."""
    if [message.role for message in messages[-3:]] != ["user", "assistant", "user"]:
        return None
    answer = messages[-2].text.strip()
    mark = await to_thread.run_sync(mark_of, key, model, messages[:-2])

    def is_answered(last: _Exchange) -> bool:
        # A streamed answer begins with the texts of the earlier steps.
        return last.end is not None and answer.endswith(answer_of(last.end).strip())

    return await _only(gateway, mark, is_answered)


async def _only(gateway: Gateway, mark: str, fits: Callable[[_Exchange], bool]) -> _Exchange | None:
    """Return the last exchange of the one session whose last input has this mark and which fits."""

    def read() -> list[_Exchange]:
        with gateway.index() as index:
            found = [_last_exchange(gateway.host.store, session) for session in index.from_api(mark)]
        return [last for last in found if last is not None and last.input.origin.key.startswith(mark) and fits(last)]

    found = await to_thread.run_sync(read)
    return found[0] if len(found) == 1 else None


def _last_exchange(store: SessionStore, session: str) -> _Exchange | None:
    last: _Exchange | None = None
    with suppress(SessionNotFound):  # deleted meanwhile
        for event in store.read(session):
            if isinstance(event, ev.InputReceived):
                last = _Exchange(session, event)
            elif last is not None and isinstance(event, ev.TurnStarted | ev.TurnFinished):
                last.end = event if isinstance(event, ev.TurnFinished) else None
    return last


# --- the answer -------------------------------------------------------------------------------------------------------


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

    def settle(self) -> None:
        """Note that the answer was delivered or is not wanted: the same request now means a new turn."""
        self._gateway.answered.append(self._input.id)

    async def left(self) -> None:
        """Interrupt the turn if the client, which has gone, asked for that."""
        if self._wanted.interrupts and not self._ended:
            self.settle()  # a repeated request wants a new turn, not the interrupted one
            with anyio.CancelScope(shield=True), suppress(LmagentError):
                await self._gateway.runner.send(self._session, Interrupt())

    async def whole(self) -> dict[str, Any]:
        """Return the completion once the turn has ended."""
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
            self.settle()
        except LmagentError as error:
            self._ended = True
            yield _data(error_of(error))
            self.settle()
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
        usage = usage_of(self._spent)
        return {**usage, "prompt_tokens_details": {"cached_tokens": usage["cached_tokens"]}}


def _data(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
