"""Anew: `clear`. A session's id begins a new conversation; the old one stays on record, under another id.

How the session works is a property of the session, not of what was said in it: deep work goes on as deep work.

The old log is copied under its new id, whole and at once, before a new one takes its place, at once too (`store/anew`).
A crash in between leaves both, and the conversation as it was; nothing was answered then. The new log counts on behind
the old one, so whoever was away comes back to all of it; its first event says that nothing from before belongs to it.
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
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.seed.words import Mode, change_of, mode_of
from lmagent.store.log import JsonlLog

LONGEST = 64
"""Characters of a session's id."""

GLANCE, PAUSE = 2.0, 0.05
"""Seconds for which somebody else may have a session whom we wait for, and between two tries."""


async def begin_anew(gateway: Gateway, session: str) -> str:
    """Interrupt what runs in a session, put its conversation aside and begin a new one under its id.

    Who watches it waits till all of that is done (`Gateway.renewed`), and finds the new one as it is meant to be.

    Returns:
        The id under which the old conversation stays; empty where nothing has been said.

    Raises:
        SessionBusy: another process writes it, or it is a sub-agent's at work; it is as it was.
        StoreError: it cannot be copied.
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
        async with gateway.runner.lock(session):  # what comes meanwhile is of the new conversation
            await gateway.runner.end_work(session)
            now = new_session_id(host.clock.now())
            aside = f"{session[: LONGEST - len(now) - 1]}.{now}"
            log = await _put_aside(host, session, replace(host.opening(session), replaces=aside))
            if (old := gateway.broadcast.streams.pop(session, None)) is not None:
                ending.callback(
                    old.stream.end
                )  # who watched finds the new conversation there, whatever comes of the rest
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
    """The new log. Another gateway may look at the session in the moment in which it was let go here."""
    until = host.clock.monotonic() + GLANCE
    while True:
        try:
            return await to_thread.run_sync(host.store.begin_anew, session, opening.replaces, opening)
        except SessionBusy:
            if host.clock.monotonic() >= until:
                raise
            await anyio.sleep(PAUSE)


def _chosen(work: WorkState) -> Mode | None:
    """How somebody has chosen that a session works; None where nobody has."""
    mode = mode_of(work)
    return mode if mode == "deep_work" or work.mode == "bounded" else None
