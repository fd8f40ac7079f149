"""Resume: find the session of a conversation that the client sends whole with each request.

Clients of OpenAI's API keep the conversation, not an id. An input without a named session is therefore recorded under a
digest of the whole request, keyed by the caller (`input.received.origin`). A request with the same conversation, the
exact answer and one more message resumes that session. On any doubt a new session begins with the conversation: a
different text, caller or model, a different answer, two matching sessions, or one that has continued or is running.
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
from lmagent.core import events as ev
from lmagent.core.errors import SessionBusy, SessionNotFound
from lmagent.core.ids import new_id
from lmagent.core.messages import Image
from lmagent.gateway.facade_text import Answering, Spoken, parts_of
from lmagent.gateway.gateway import Gateway
from lmagent.store.index import SessionIndex
from lmagent.store.jsonl import JsonlStore

RETRIED = 3600.0
"""Seconds within which a client repeats an unanswered request."""

STARTED = time.time()
"""Start of this process. Turns that ended earlier were answered by another process."""

REMEMBERED = 4096
"""Inputs for which it is known whether a client may repeat them."""

_claimed: RunVar[set[str]] = RunVar("sessions that are about to be resumed")
_asked: RunVar[dict[str, tuple[str, str]]] = RunVar("inputs of requests that this process has taken in")
_taking: RunVar[dict[str, anyio.Lock]] = RunVar("requests that are about to be on record, by their mark")
_SETTLED = "", ""


def mark_of(key: bytes, model: str, messages: Sequence[Spoken], *, named: bool = False) -> str:
    """Return the common prefix of the ids of inputs with the same request; see `id_of`.

    `named` requests have a session, which may know more than the request says: no conversation is found by their mark.
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
    """Return a unique id for an input with this mark."""
    return f"{mark}{new_id()}"


@asynccontextmanager
async def taking(mark: str) -> AsyncGenerator[None]:
    """Accept requests of one mark one at a time, so that a retry finds the first try recorded or refused.

    The first may take as long as the model server takes to list its models.
    """
    if (locks := _taking.get(None)) is None:
        locks = dict[str, anyio.Lock]()
        _taking.set(locks)
    lock = locks.setdefault(mark, anyio.Lock())
    try:
        async with lock:
            yield
    finally:
        if not lock.locked():  # otherwise another request has it now
            locks.pop(mark, None)


def expect(session: str, input: ev.InputReceived) -> None:
    """Note that the client may repeat the request if it stops waiting."""
    _note(input, (session, input.origin.key))


def settle(input: ev.InputReceived) -> None:
    """Note that the answer was taken or is not wanted: the same request from now on means a new turn."""
    _note(input, _SETTLED)


def _note(input: ev.InputReceived, place: tuple[str, str]) -> None:
    asked = _asked_here()
    asked.pop(input.id, None)
    asked[input.id] = place
    if len(asked) > REMEMBERED:
        asked.pop(next(iter(asked)))


def _asked_here() -> dict[str, tuple[str, str]]:
    """Return session and key by the input's id, or `_SETTLED`."""
    if (asked := _asked.get(None)) is None:
        asked = dict[str, tuple[str, str]]()
        _asked.set(asked)
    return asked


async def repeated(gateway: Gateway, mark: str, session: str) -> tuple[str, ev.InputReceived] | None:
    """Return the session and input recorded for the first try of this request; None if that is uncertain.

    A retry does not name its first try, which may never have arrived. So inputs with a delivered answer do not count.
    `session` is empty if the request names none.
    """
    since, asked = gateway.host.clock.now() - RETRIED, _asked_here()
    here = [session for session, key in asked.values() if key.startswith(mark)]
    found = await to_thread.run_sync(_taken_in, gateway.host.store, mark, [session] if session else here, since)
    found = [(name, input) for name, input in found if asked.get(input.id) != _SETTLED]
    if len(found) != 1:
        return None
    (await gateway.runner.open(found[0][0])).work()  # an earlier process may have been killed during it
    return found[0]


def _taken_in(
    store: JsonlStore, mark: str, sessions: Sequence[str], since: float
) -> list[tuple[str, ev.InputReceived]]:
    found: list[tuple[str, ev.InputReceived]] = []
    for session in sorted({*sessions} or {*_from_api(store, mark)}):
        with suppress(SessionNotFound):
            found += [(session, input) for input in _unanswered(store, session, mark)[-1:] if input.ts >= since]
    return found


def _unanswered(store: JsonlStore, session: str, mark: str) -> list[ev.InputReceived]:
    """Return the inputs of a mark, without those whose turn ended before this process began."""
    found: dict[str, ev.InputReceived] = {}
    turns: dict[str, int] = {}
    for event in store.read(session):
        match event:
            case ev.InputReceived() if event.origin.key.startswith(mark):
                found[event.id] = event
            case ev.MessageAdded(input=str(given)) if given in found:
                turns[given] = event.turn
            case ev.TurnFinished() if event.ts < STARTED:
                for id in [id for id in found if turns.get(id) == event.turn]:
                    del found[id]
            case _:
                pass
    return list(found.values())


def _from_api(store: JsonlStore, mark: str) -> list[str]:
    with SessionIndex(store.root) as index:
        index.refresh()
        return index.from_api(mark)


@asynccontextmanager
async def resumed(
    gateway: Gateway, key: bytes, model: str, messages: Sequence[Spoken]
) -> AsyncGenerator[OpenSession | None]:
    """Yield the session of this conversation up to its last message; None if that is uncertain.

    While the context is open, other requests do not get the session.
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
    has_ended_so = state.origin.key.startswith(mark) and not (state.turn_open or state.inputs)
    return known if has_ended_so else None


def _sought(key: bytes, model: str, messages: Sequence[Spoken]) -> tuple[str, str]:
    answer = "".join(part.text for part in parts_of(messages[-2]) if not isinstance(part, Image))
    return mark_of(key, model, messages[:-2]), answer.strip()


def _ended_so(store: JsonlStore, mark: str, answer: str) -> list[str]:
    """Return the sessions whose last turn was for an input of this mark and had this answer."""
    return [session for session in _from_api(store, mark) if answer in _told(store, session, mark)]


def _told(store: JsonlStore, session: str, mark: str) -> tuple[str, ...]:
    """Return the last turn's answer as sent whole and as streamed; empty while it runs."""
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
    if last is None or not last.origin.key.startswith(mark) or not is_over:
        return ()
    return answering.answer.strip(), answering.said.strip()
