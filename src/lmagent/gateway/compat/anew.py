"""Anew: `clear` begins a new conversation under the session's id; the old one is kept under another id.

The old log is copied, whole and atomically, before a new log atomically takes its place (`store/anew`): a crash in
between leaves both. The numbers continue, so a client that comes back receives all of the new log.
"""

from __future__ import annotations

from contextlib import ExitStack

import anyio
from anyio import to_thread
from msgspec.structs import replace

from lmagent.app.host import Host
from lmagent.core.errors import SessionBusy, SessionNotFound
from lmagent.core.events import SessionCreated
from lmagent.core.ids import new_session_id
from lmagent.engine.work import WorkState
from lmagent.gateway.compat.words import Mode, change_of, mode_of
from lmagent.gateway.gateway import Gateway
from lmagent.store.log import JsonlLog

LONGEST = 64  # characters of a session's id
GLANCE, PAUSE = 2.0, 0.05  # Seconds to wait for another process that has the session, and between two tries


async def begin_anew(gateway: Gateway, session: str) -> str:
    """Interrupt the session, move its conversation to another id and begin a new one under its id.

    Watchers wait until all is done (`Gateway.renewed`), so that they never see a half-made conversation.

    Returns:
        The id of the old conversation; empty if the session had none.
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
            log = await _put_aside(host, session, replace(host.opening(session), replaces=aside))
            if (old := gateway.broadcast.streams.pop(session, None)) is not None:
                ending.callback(old.end)  # watchers then find the new conversation, even if the rest fails
            gateway.views.forget(session)
            try:
                known = await gateway.runner.open_log(log)
            except BaseException:
                log.close()
                raise
        planning = host.settings.deep_planning
        if chosen is not None and (change := change_of(known.session, chosen, planning=planning)) is not None:
            await gateway.runner.send(session, change)
    return aside


async def _put_aside(host: Host, session: str, opening: SessionCreated) -> JsonlLog:
    """Return the new log. Another gateway may briefly read the session that was released here."""
    until = host.clock.monotonic() + GLANCE
    while True:
        try:
            return await to_thread.run_sync(host.store.begin_anew, session, opening.replaces, opening)
        except SessionBusy:
            if host.clock.monotonic() >= until:
                raise
            await anyio.sleep(PAUSE)


def _chosen(work: WorkState) -> Mode | None:
    """Return the mode that was chosen for the session; None if it has the default."""
    mode = mode_of(work)
    return mode if mode == "deep_work" or work.mode == "bounded" else None
