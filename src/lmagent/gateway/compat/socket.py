"""Sockets of earlier clients: `/ws/{session}` is one conversation, `/ws/activity` the live activity of all sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Annotated, TypeVar

import anyio
import msgspec
from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from lmagent.app.host import Host
from lmagent.core.commands import Approve, DecidePlan
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, LmagentError, SessionBusy, SessionNotFound
from lmagent.core.events import decode as decode_event
from lmagent.core.ids import new_session_id
from lmagent.core.messages import user
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState
from lmagent.engine.work import WorkState
from lmagent.gateway.compat.http import Mode, Telling, Told, change_of, mode_of, state_of, way_of
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.route import Socket, Talk, decode, hold, read_message
from lmagent.gateway.turns import Spent, event_of, named
from lmagent.store.activity import Activity, activity_of
from lmagent.store.port import SessionStore

T = TypeVar("T")

LOOK = 1.0  # seconds between two checks for a session that does not exist
GONE = 3  # checks after which a vanished session counts as deleted; one that is cleared reappears at once
AGAIN = (1012, "")  # the close code that asks the client to reconnect (RFC 6455's registry: Service Restart)


class _Said(Struct, frozen=True, tag_field="type", forbid_unknown_fields=False):
    """A message from a client."""


class SaidMessage(_Said, frozen=True, tag="message"):
    """A message for the agent; `id` as in `/api/chat`."""

    content: Annotated[str, Meta(min_length=1)]
    id: str = ""


class SaidMode(_Said, frozen=True, tag="set_mode"):
    """Change the session's mode."""

    mode: Mode


class SaidClear(_Said, frozen=True, tag="clear"): ...


class SaidPing(_Said, frozen=True, tag="ping"): ...


class SaidStop(_Said, frozen=True, tag="stop"): ...


class SaidApproval(_Said, frozen=True, tag="approval_response"):
    tool_call_id: str
    approved: bool


class SaidYes(_Said, frozen=True, tag="approve_plan"):
    feedback: str = ""


class SaidOtherwise(_Said, frozen=True, tag="revise_plan"):
    feedback: Annotated[str, Meta(min_length=1)]


Said = SaidMessage | SaidMode | SaidClear | SaidPing | SaidStop | SaidApproval | SaidYes | SaidOtherwise


async def converse(talk: Talk) -> None:
    await talk.socket.accept()
    await _Conversation(talk).run()


class _Conversation:
    """One socket's conversation; the client chose the session's id."""

    def __init__(self, talk: Talk) -> None:
        self._gateway = talk.gateway
        self._session = talk.path["session"]
        self._socket = talk.socket
        self._ready = anyio.Event()
        self._last: Telling | None = None

    async def run(self) -> None:
        """Handle the client's messages and send the session's events until the client leaves."""
        await hold(self._socket, AGAIN, self._tell, self._listen)

    async def _listen(self, _: anyio.abc.TaskGroup) -> None:
        await self._ready.wait()  # otherwise the first message's events could be missed
        while True:
            await self._take(await read_message(self._socket))

    async def _say(self, message: Told) -> None:
        await self._socket.send_text(msgspec.json.encode(message).decode())

    async def _error(self, error: LmagentError) -> None:
        await self._say({"type": "error", "message": f"{error.message}\n{error.fix}".strip()})

    async def _tell(self, tasks: anyio.abc.TaskGroup) -> None:
        """Send the session's events from now on; those of a session that does not exist yet from its beginning.

        A client that did not read for too long, and so has missed events, has to reconnect: the group is cancelled.
        """
        late, missed = True, 0
        while True:
            opening = self._gateway.runner.opened
            try:
                if await self._watch(late=late):
                    return tasks.cancel_scope.cancel()
                late, missed = False, 0
                continue
            except SessionNotFound:
                missed += 1
                if self._last is not None and missed == GONE:
                    await self._error(SessionNotFound("the session was deleted", fix="a message begins it anew"))
            except LmagentError as error:
                await self._error(error)
            late = False
            self._ready.set()
            with anyio.move_on_after(LOOK):
                await opening.wait()

    async def _watch(self, *, late: bool) -> bool:
        """Send events until the stream ends: the session was deleted or cleared, or, if True, the client lagged.

        If `late`, begin now, with the pending requests, else at the beginning of the conversation.
        """
        if (renewed := self._gateway.renewed.get(self._session)) is not None:
            await renewed.wait()
        # The state of an open session keeps changing, so it is read before the first await.
        state = await state_of(self._gateway, self._session)
        begun = state if late else SessionState(session=self._session)
        after, turn, telling = begun.seq, begun.turn, Telling(begun)
        pending = telling.pending(begun)
        if (before := self._last) is not None:
            telling.mode = mode_of(state.work)
            changed = {"type": "mode_changed", "mode": telling.mode}
            pending = [{"type": "cleared"}, *([changed] if telling.mode != before.mode else [])]
        telling.spent = await to_thread.run_sync(_spent, self._gateway.host.store, self._session, turn, after)
        async with self._gateway.broadcast.watch(self._session, after) as watching:
            self._last = telling
            self._ready.set()
            for message in pending:
                await self._say(message)
            while frames := await watching.take():
                for frame in frames:
                    event = event_of(frame.data)
                    for message in telling.tell(event, self._open()):
                        await self._say(message)
        return watching.lagged

    def _open(self) -> Session | None:
        known = self._gateway.runner.usable(self._session)
        return known.session if known is not None else None

    async def _take(self, text: bytes) -> None:
        try:
            await self._do(decode(text, Said))
        except LmagentError as error:
            await self._error(error)
        except msgspec.DecodeError as error:
            await self._say({"type": "error", "message": f"this is no message: {error}"})

    async def _do(self, said: Said) -> None:
        match said:
            case SaidMessage():
                await self._message(said)
            case SaidMode():
                await self._mode(said.mode)
            case SaidClear():
                if not await begin_anew(self._gateway, self._session):
                    await self._say({"type": "cleared"})  # an empty session has no stream that would end
            case SaidPing():
                await self._say({"type": "pong"})
            case SaidStop():
                here = self._gateway.host.sessions.get(self._session)
                runs = here is not None and here.running
                stopped = await self._gateway.runner.stop(self._session)
                if not (runs or stopped.ended or stopped.withdrawn):
                    raise ConfigError("nothing is running")
            case SaidApproval():
                await self._approve(said)
            case SaidYes():
                await self._gateway.runner.send(self._session, DecidePlan(decision="approved", feedback=said.feedback))
            case SaidOtherwise():
                await self._gateway.runner.send(self._session, DecidePlan(decision="revise", feedback=said.feedback))

    async def _message(self, said: SaidMessage) -> None:
        if not said.content.strip():
            raise ConfigError("the message is empty")
        session = (await named(self._gateway, self._session)).session
        way = way_of(session, None, planning=self._gateway.host.settings.deep_planning)
        await self._gateway.runner.submit(self._session, user(said.content), id=said.id, way=way)

    async def _mode(self, mode: Mode) -> None:
        session = (await named(self._gateway, self._session)).session
        before = mode_of(session.state.work)
        if (change := change_of(session, mode, planning=self._gateway.host.settings.deep_planning)) is not None:
            await self._gateway.runner.send(self._session, change)
        if before == mode:  # then no event reports it
            await self._say({"type": "mode_changed", "mode": mode})

    async def _approve(self, said: SaidApproval) -> None:
        session = (await self._gateway.runner.open(self._session)).session
        approval = _approval(session, said.tool_call_id)
        if approval is None:
            raise ConfigError(f"no approval waits for the call {said.tool_call_id[:80]!r}")
        await self._gateway.runner.send(self._session, Approve(approval=approval, approved=said.approved))


def _spent(store: SessionStore, session: str, turn: int, through: int) -> Spent:
    spent = Spent()
    for event in store.read(session) if through else ():
        if event.turn == turn and event.seq <= through:
            spent.take(event)
    return spent


def _approval(session: Session, call: str) -> str | None:
    """Return the id of the approval that waits for a call, in the session or in a running sub-agent."""
    for id, asked in session.state.approvals.items():
        if asked.call_id == call:
            return id
    return next((id for child in session.children.values() if (id := _approval(child, call)) is not None), None)


# --- activity ---------------------------------------------------------------------------------------------------------


class _Named(Struct, frozen=True):
    session: str


async def show_activity(talk: Talk) -> None:
    """Send the calls of all sessions and their results, from the opening of the socket until the client leaves."""
    async with talk.gateway.broadcast.watch_all() as watching:
        await talk.socket.accept()

        async def tell(tasks: anyio.abc.TaskGroup) -> None:
            while frames := await watching.take():
                for frame in frames:
                    event, session = decode_event(frame.data), decode_json(frame.data, _Named).session
                    line = activity_of(session, event)
                    if line is not None and line.type in ("tool_call", "tool_result"):
                        await talk.socket.send_json(_activity(line))
            tasks.cancel_scope.cancel()  # the gateway stops, the client lagged, or the index was rebuilt

        async def listen(_: anyio.abc.TaskGroup) -> None:
            while True:
                is_ping = b'"ping"' in await read_message(talk.socket)
                error = {"type": "error", "message": "this socket only tells; send ping"}
                await talk.socket.send_json({"type": "pong"} if is_ping else error)

        await hold(talk.socket, AGAIN, tell, listen)


def _activity(line: Activity) -> Told:
    told = {"type": line.type, "session_id": line.session, "tool": line.tool, "timestamp": line.ts}
    if line.type == "tool_call":
        return {**told, "summary": line.summary}
    result = {"result_preview": line.summary, "duration_ms": line.duration_ms, "success": line.status == "ok"}
    return {**told, **result}


# --- clear ------------------------------------------------------------------------------------------------------------


LONGEST = 64  # characters of a session's id
GLANCE, PAUSE = 2.0, 0.05  # Seconds to wait for another process that has the session, and between two tries


async def begin_anew(gateway: Gateway, session: str) -> str:
    """Interrupt the session and begin a new conversation under its id; return the old one's id, empty if it had none.

    Watchers wait until all is done (`Gateway.renewed`), so that they never see a half-made conversation.
    """
    while (other := gateway.renewed.get(session)) is not None:
        await other.wait()
    done = gateway.renewed[session] = anyio.Event()
    try:
        return await _begin_anew(gateway, session)
    finally:
        gateway.renewed.pop(session)
        done.set()


async def _begin_anew(gateway: Gateway, session: str) -> str:
    host = gateway.host
    await host.settle()
    try:
        state = (await gateway.runner.open(session, take_up=False)).session.state
    except SessionNotFound:
        await gateway.runner.begin(session)
        return ""
    if not (state.turn or state.inputs):
        return ""
    chosen = _chosen(state.work)
    with ExitStack() as ending:
        async with gateway.runner.lock(session):  # messages that arrive meanwhile belong to the new conversation
            await gateway.runner.end_work(session)
            now = new_session_id(host.clock.now())
            aside = f"{session[: LONGEST - len(now) - 1]}.{now}"
            opening = replace(host.opening(session), replaces=aside)
            await _patiently(host, lambda: to_thread.run_sync(host.store.begin_anew, session, aside, opening))
            host.left.pop(session, None)  # its grants were given in the old conversation
            if (old := gateway.broadcast.streams.pop(session, None)) is not None:
                ending.callback(old.end)  # watchers then find the new conversation, even if the rest fails
            gateway.views.forget()
        known = await _patiently(host, lambda: gateway.runner.open(session, take_up=False))
        planning = host.settings.deep_planning
        if chosen is not None and (change := change_of(known.session, chosen, planning=planning)) is not None:
            await gateway.runner.send(session, change)
    return aside


async def _patiently(host: Host, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work. Another gateway may briefly read the session that was released here."""
    until = host.clock.monotonic() + GLANCE
    while True:
        try:
            return await work()
        except SessionBusy:
            if host.clock.monotonic() >= until:
                raise
            await anyio.sleep(PAUSE)


def _chosen(work: WorkState) -> Mode | None:
    """Return the mode that was chosen for the session; None if it has the default."""
    mode = mode_of(work)
    return mode if mode == "deep_work" or work.mode == "bounded" else None


SOCKETS = (Socket("/ws/activity", show_activity, place="gateway"), Socket("/ws/{session}", converse))
