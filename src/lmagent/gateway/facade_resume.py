"""Resume: a conversation that a client sends whole with every request, recognised as the one of a session.

Clients of OpenAI's API keep the conversation, not an id. So the input of a request that named no session is recorded
under a digest of all that the request said, keyed by who asked (`input.received.job`). Who sends the same again, then
word for word what was answered, and then one more message goes on in that session. Nothing is guessed: another word
before, another caller or model, an answer that differs, two sessions that fit, one that went on or is at work: a new
session begins, and is given the conversation.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from anyio import to_thread
from anyio.lowlevel import RunVar

from lmagent.app.open_session import OpenSession
from lmagent.app.runner import job_of
from lmagent.core import events as ev
from lmagent.core.errors import SessionBusy, SessionNotFound
from lmagent.core.ids import new_id
from lmagent.core.messages import Image
from lmagent.gateway.facade_text import Answering, Spoken, parts_of
from lmagent.gateway.gateway import Gateway
from lmagent.store.index import SessionIndex
from lmagent.store.jsonl import JsonlStore

RETRIED = 3600.0
"""Seconds within which a client repeats a request of which it got no answer."""

STARTED = time.time()
"""When this process began. What was over before that was answered by another one."""

REMEMBERED = 4096
"""Inputs of which it is known whether somebody may ask for them again."""

_claimed: RunVar[set[str]] = RunVar("sessions that a conversation is about to go on in")
_asked: RunVar[dict[str, tuple[str, str]]] = RunVar("inputs of requests that this process has taken in")
_taking: RunVar[dict[str, anyio.Lock]] = RunVar("requests that are about to be on record, by their mark")
_SETTLED = "", ""


def mark_of(key: bytes, model: str, messages: Sequence[Spoken], *, named: bool = False) -> str:
    """What the ids of inputs begin with that requests of the same words are recorded under; see `id_of`.

    Args:
        key: of who asks.
        model: the agent that is asked.
        messages: all that the request says.
        named: it names its session, which may know more than is said here: no conversation is recognised by it.
    """
    digest = hmac.new(key, msgspec.json.encode(model), "sha256")
    for message in messages:
        said = [
            ["image", hashlib.sha256(part.data.encode()).hexdigest()] if isinstance(part, Image) else part.text
            for part in parts_of(message)
        ]
        if message.role == "assistant":
            said = ["".join(str(part) for part in said).strip()]
        digest.update(msgspec.json.encode([message.role, said]))
    return f"{'oas' if named else 'oai'}:{digest.hexdigest()[:40]}:"


def id_of(mark: str) -> str:
    """An id for the input of a request of a mark, which comes only once."""
    return f"{mark}{new_id()}"


@asynccontextmanager
async def taking(mark: str) -> AsyncGenerator[None]:
    """Requests of one mark are taken in one after the other: who asks again finds the first try on record, or refused.

    The first may take a while for that, as long as a model server does to say what it serves.
    """
    if (locks := _taking.get(None)) is None:
        locks = dict[str, anyio.Lock]()
        _taking.set(locks)
    lock = locks.setdefault(mark, anyio.Lock())
    try:
        async with lock:
            yield
    finally:
        if not lock.locked():  # else somebody else has it now
            locks.pop(mark, None)


def expect(session: str, input: ev.InputReceived) -> None:
    """Who gives up waiting for the answer may ask for it again."""
    _note(input, (session, input.job))


def settle(input: ev.InputReceived) -> None:
    """Its answer was taken, or is not wanted: who sends the same words from here on, even again, means another turn."""
    _note(input, _SETTLED)


def _note(input: ev.InputReceived, place: tuple[str, str]) -> None:
    asked = _asked_here()
    asked.pop(input.id, None)
    asked[input.id] = place
    if len(asked) > REMEMBERED:
        asked.pop(next(iter(asked)))


def _asked_here() -> dict[str, tuple[str, str]]:
    """Session and job by the input's id, or `_SETTLED`."""
    if (asked := _asked.get(None)) is None:
        asked = dict[str, tuple[str, str]]()
        _asked.set(asked)
    return asked


async def repeated(gateway: Gateway, mark: str, session: str) -> tuple[str, ev.InputReceived] | None:
    """The session and the input that this very request was taken in as a while ago; None where that is not certain.

    That a client sends a request again says nothing of which one: the first try of it may never have come here. So it
    is none whose answer somebody has taken already.

    Args:
        gateway: the sessions.
        mark: of the request.
        session: the session that it names; empty for none.
    """
    mark = job_of(mark)
    since, asked = gateway.host.clock.now() - RETRIED, _asked_here()
    here = [session for session, job in asked.values() if job.startswith(mark)]
    found = await to_thread.run_sync(_taken_in, gateway.host.store, mark, [session] if session else here, since)
    found = [(name, input) for name, input in found if asked.get(input.id) != _SETTLED]
    if len(found) != 1:
        return None
    (await gateway.runner.open(found[0][0])).work()  # it may be what an earlier process was killed over
    return found[0]


def _taken_in(
    store: JsonlStore, mark: str, sessions: Sequence[str], since: float
) -> list[tuple[str, ev.InputReceived]]:
    found: list[tuple[str, ev.InputReceived]] = []
    for session in sorted({*sessions} or {*_of_job(store, mark)}):
        with suppress(SessionNotFound):
            found += [(session, input) for input in _unanswered(store, session, mark)[-1:] if input.ts >= since]
    return found


def _unanswered(store: JsonlStore, session: str, mark: str) -> list[ev.InputReceived]:
    """The inputs of a mark but for those whose turn was over before this process began."""
    found: dict[str, ev.InputReceived] = {}
    turns: dict[str, int] = {}
    for event in store.read(session):
        match event:
            case ev.InputReceived() if event.job.startswith(mark):
                found[event.id] = event
            case ev.MessageAdded(input=str(given)) if given in found:
                turns[given] = event.turn
            case ev.TurnFinished() if event.ts < STARTED:
                for id in [id for id in found if turns.get(id) == event.turn]:
                    del found[id]
            case _:
                pass
    return list(found.values())


def _of_job(store: JsonlStore, mark: str) -> list[str]:
    with SessionIndex(store.root) as index:
        index.refresh()
        return index.of_job(mark)


@asynccontextmanager
async def resumed(
    gateway: Gateway, key: bytes, model: str, messages: Sequence[Spoken]
) -> AsyncGenerator[OpenSession | None]:
    """The session in which this conversation took place up to its last message; None where there is none for certain.

    As long as the context is open, nobody else is given it.

    Args:
        gateway: the sessions.
        key: of who asks.
        model: the agent that is asked.
        messages: the whole conversation.
    """
    if len(messages) < 3 or [message.role for message in messages[-3:]] != ["user", "assistant", "user"]:
        yield None
        return
    mark, answer = await to_thread.run_sync(_sought, key, model, messages)
    found = await to_thread.run_sync(_ended_so, gateway.host.store, mark, answer)
    if (claimed := _claimed.get(None)) is None:
        claimed = set[str]()
        _claimed.set(claimed)
    if len(found) != 1 or found[0] in claimed:
        yield None
        return
    claimed.add(found[0])
    try:
        yield await _open(gateway, found[0], mark)
    finally:
        claimed.discard(found[0])


async def _open(gateway: Gateway, session: str, mark: str) -> OpenSession | None:
    try:
        known = await gateway.runner.open(session)
    except (SessionNotFound, SessionBusy):
        return None
    state = known.session.state
    has_ended_so = state.job.startswith(job_of(mark)) and not (state.turn_open or state.inputs)
    return known if has_ended_so else None


def _sought(key: bytes, model: str, messages: Sequence[Spoken]) -> tuple[str, str]:
    answer = "".join(part.text for part in parts_of(messages[-2]) if not isinstance(part, Image))
    return mark_of(key, model, messages[:-2]), answer.strip()


def _ended_so(store: JsonlStore, mark: str, answer: str) -> list[str]:
    """Sessions whose last turn was for an input of this mark, and was answered so."""
    job = job_of(mark)
    return [session for session in _of_job(store, job) if answer in _told(store, session, job)]


def _told(store: JsonlStore, session: str, job: str) -> tuple[str, ...]:
    """What a client was told as the answer of the last turn, without a stream and in one; nothing if it runs."""
    last: ev.InputReceived | None = None
    answering, is_over = Answering(), False
    try:
        for event in store.read(session):
            match event:
                case ev.InputReceived():
                    last, is_over = event, False
                case ev.TurnStarted():
                    answering, is_over = Answering(), False
                case ev.TurnFinished():
                    is_over = True
                case _:
                    pass
            answering.take(event)
    except SessionNotFound:  # deleted meanwhile
        return ()
    if last is None or not last.job.startswith(job) or not is_over:
        return ()
    return answering.answer.strip(), answering.said.strip()
