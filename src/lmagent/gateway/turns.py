"""Turns: follow an input to the end of the turn that answers it."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from starlette.requests import Request

from lmagent.core import errors
from lmagent.core import events as ev
from lmagent.core.commands import Approve
from lmagent.core.decoding import convert, decoder
from lmagent.core.errors import LmagentError, SessionNotFound, ShuttingDown, StoreError, ungrouped
from lmagent.gateway.http.errors import Refusal

if TYPE_CHECKING:
    from lmagent.app.open_session import OpenSession
    from lmagent.gateway.gateway import Gateway

T = TypeVar("T")

BEAT = 15.0  # seconds of silence after which a follower gets None

ROUNDS = 8  # rounds of the event loop that make a client's disconnect visible to its request: four are needed


APPROVALS = 300.0  # seconds for which an approval waits for another client: HTTP clients give up after some minutes


def approval_patience(gateway: Gateway) -> float:
    """Return the seconds for which a request waits for an approval from another client, by default."""
    return min(APPROVALS, gateway.host.settings.approval_timeout)


def event_of(data: bytes) -> ev.Event:
    """Decode the event of a frame, including a sub-agent's inner event."""
    return _read(_decoder().decode(data))


@cache
def _decoder() -> msgspec.json.Decoder[ev.Event]:
    return decoder(ev.Event)


def _read(event: ev.Event) -> ev.Event:
    if isinstance(event, ev.SubagentEvent):
        return msgspec.structs.replace(event, event=_read(convert(event.event, ev.Event)))
    return event


async def named(gateway: Gateway, session: str) -> OpenSession:
    """Open the session with the id that its client chose, or begin it."""
    while (renewed := gateway.renewed.get(session)) is not None:
        await renewed.wait()  # its new conversation is not ready yet
    with suppress(SessionNotFound):
        return await gateway.runner.open(session)
    with suppress(StoreError):  # another client begins it at this moment
        return await gateway.runner.begin(session)
    return await gateway.runner.open(session)


async def followed(
    gateway: Gateway, session: str, input: ev.InputReceived, *, patience: float
) -> AsyncGenerator[ev.Event | None]:
    """Yield the events of an input's turn, and None after each `BEAT` of silence; deny late approvals."""
    turn, ends = 0, dict[str, float]()  # the waiting approvals
    async with gateway.broadcast.watch(session, input.seq) as watching:
        while True:
            left = max(0.0, min(ends.values(), default=math.inf) - time.monotonic())
            frames = await watching.take(min(BEAT, left))
            for approval in [id for id, end in ends.items() if end <= time.monotonic()]:
                del ends[approval]
                words = f"no answer within {patience:g} seconds"
                denial = Approve(approval=approval, approved=False, feedback=words, by="web:timeout")
                await gateway.runner.send(session, denial)
            if frames is None:
                yield None
            elif not frames:
                raise _cut_off(gateway)
            for frame in frames or ():
                event = event_of(frame.data)
                turn = _turn_of(event, input, turn)
                if not turn or (event.turn and event.turn != turn):
                    continue
                _, inner = ev.innermost(event)
                if isinstance(inner, ev.ApprovalRequested):
                    ends.setdefault(inner.id, time.monotonic() + patience)
                elif isinstance(inner, ev.ApprovalResolved):
                    ends.pop(inner.approval, None)
                yield event
                if isinstance(event, ev.TurnFinished):
                    return


def _cut_off(gateway: Gateway) -> LmagentError:
    if gateway.runner.is_ending:
        text = "the gateway is about to end; the next one continues this turn"
        return ShuttingDown(text, fix="send the same again then, under the id that it had")
    text = "the session was deleted or cleared"
    return Refusal(503, "ended", text, fix="look for the session: GET /api/sessions")


def _turn_of(event: ev.Event, input: ev.InputReceived, turn: int) -> int:
    """Return the turn that answers the input; 0 until the input reaches the model."""
    match event:
        case ev.MessageAdded(input=given) if given == input.id:
            return event.turn
        case ev.InputWithdrawn(input=given) if given == input.id:
            raise Refusal(409, "withdrawn", "the message was taken back before the model saw it")
        case _:
            return turn


async def while_there(request: Request, work: Callable[[], Awaitable[T]]) -> T | None:
    """Return the result of `work`, or None if the client leaves first. The request's body must have been read.

    A client often times out just as the work ends, and its disconnect is not visible yet. So a few rounds of the event
    loop follow the work: a client that is sent an answer counts as having it.
    """
    result: T | None = None

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    with ungrouped():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gone)
            answer = await work()
            for _ in range(ROUNDS):
                await anyio.lowlevel.checkpoint()
            result = answer
            tasks.cancel_scope.cancel()
    return result


class Spent:
    """Tokens, model calls and model of a turn, including its part before a crash."""

    def __init__(self) -> None:
        self.prompt = self.completion = self.cached = self.steps = 0
        self.model = ""

    def take(self, event: ev.Event | None) -> None:
        usage = event.usage if isinstance(event, ev.StepFinished | ev.CompactionDone) else None
        if usage is not None:
            self.prompt += usage.prompt_tokens
            self.completion += usage.completion_tokens
            self.cached += usage.cached_tokens
        if isinstance(event, ev.StepStarted):
            self.steps = max(self.steps, event.step)
        if isinstance(event, ev.StepFinished | ev.StepStarted):
            self.model = event.model or self.model


def raise_for_server(end: ev.TurnFinished) -> None:
    """Raise if the model server's failure ended a turn; other ends are answers."""
    kind = getattr(errors, end.cause, None)  # the turn names the error's type
    if end.outcome == "error" and isinstance(kind, type) and issubclass(kind, errors.ProviderError):
        raise Refusal(502, "model_server", end.reason or "the model server failed", fix=end.fix)
