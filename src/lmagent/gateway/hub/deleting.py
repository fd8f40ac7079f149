"""Deleting: a session, and with it those that worked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread

from lmagent.core.commands import Close
from lmagent.core.errors import SessionBusy
from lmagent.gateway.hub.sent import BY

if TYPE_CHECKING:
    from lmagent.app.records import WorkspaceRecords
    from lmagent.gateway.hub.hub import Hub


async def delete_family(hub: Hub, session: str) -> None:
    """Delete a session and its sub-agents'; what runs in it is interrupted for good.

    Who wants to begin one of that name waits until it is gone: call it with the session's lock.

    Raises:
        SessionNotFound: there is none of that id.
        SessionBusy: another process writes one of them; nothing was deleted.
        StoreError: it cannot be removed.
    """
    await let_go(hub, session)
    records = _records(hub)
    family = await anyio.to_thread.run_sync(records.family, session)
    for member in family[:-1]:
        async with hub.lock(member):  # somebody may look after a sub-agent of old
            await let_go(hub, member)
    await anyio.to_thread.run_sync(records.delete, session)
    for member in family:
        hub.views.forget(member)
        hub.host.left.pop(member, None)
        if (channel := hub.channels.pop(member, None)) is not None:
            channel.fan.end()


async def let_go(hub: Hub, session: str) -> None:
    """Interrupt what runs in a session, for good, and close it. Call it with the session's lock.

    Raises:
        SessionBusy: it is a sub-agent's at work.
    """
    if (desk := hub.desks.get(session)) is not None:
        desk.is_closing = True  # what is wanted of it from here on waits for the lock
        await desk.close_left()
        await desk.session.send(Close(by=BY))
        await desk.until_idle()
        await desk.until_free()
        await hub.close(desk)
    elif session in hub.host.sessions:
        raise SessionBusy(f"session {session} works for another one", fix="delete that, or interrupt it")


def _records(hub: Hub) -> WorkspaceRecords:
    from lmagent.app.records import WorkspaceRecords  # rare, and not light

    return WorkspaceRecords(hub.host.workspace, hub.host.store, hub.host.settings.agent_data_dir)
