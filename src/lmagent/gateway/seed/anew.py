"""Anew: `clear`. A session's id begins a new conversation; the old one stays on record, under another id.

The old log is copied under its new id, whole and at once, before it is deleted under the old one. A crash in between
leaves both, and the conversation as it was; nothing was answered then.
"""

from __future__ import annotations

from contextlib import suppress

from anyio import to_thread

from lmagent.core.commands import Close
from lmagent.core.errors import SessionNotFound, StoreError
from lmagent.core.ids import new_session_id
from lmagent.gateway.hub.hub import Hub

LONGEST = 64
"""Characters of a session's id."""


async def begin_anew(hub: Hub, session: str) -> str:
    """Interrupt what runs in a session, put its conversation aside and begin a new one under its id.

    Returns:
        The id under which the old conversation stays; empty where there was none.

    Raises:
        SessionBusy: another process writes it, or somebody has just begun something in it; it is as it was.
        StoreError: it cannot be copied.
    """
    store = hub.host.store
    try:
        await hub.send(session, Close())
    except SessionNotFound:
        await hub.begin(session)
        return ""
    now = new_session_id(hub.host.clock.now())
    aside = f"{session[: LONGEST - len(now) - 1]}.{now}"
    await store.fork(session, aside, moved=True)
    try:
        await to_thread.run_sync(store.delete, session)
    except BaseException:
        with suppress(StoreError):
            await to_thread.run_sync(store.delete, aside)
        raise
    hub.views.forget(session)
    old = hub.channels.pop(session, None)
    await hub.begin(session)
    if old is not None:
        old.fan.end()  # who watched finds the new conversation there
    return aside
