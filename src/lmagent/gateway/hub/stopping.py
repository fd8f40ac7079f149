"""Stopping: what one press of Stop means, for every client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.core.commands import Interrupt, Withdraw
from lmagent.core.events import DurableEvent, InputReceived

if TYPE_CHECKING:
    from lmagent.gateway.hub.hub import Hub


class Stopped(Struct, frozen=True):
    """The end of a turn, on disk, if one ran; and the messages that waited and were withdrawn."""

    ended: DurableEvent | None
    withdrawn: tuple[InputReceived, ...] = ()


async def stop(hub: Hub, session: str, by: str = "") -> Stopped:
    """Withdraw the messages that wait in a session, then end the turn that runs: else they would begin the next one.

    Raises:
        SessionNotFound, SessionBusy: see `Hub.desk`.
    """
    withdrawn: tuple[InputReceived, ...] = ()
    here = hub.host.sessions.get(session)
    if here is None or here.above is None:  # a sub-agent at work is only told to end
        writer = (await hub.desk(session, take_up=False)).session
        waiting = tuple(writer.state.inputs.values())
        withdrawn = tuple([one for one in waiting if await writer.send(Withdraw(input=one.id)) is not None])
    return Stopped(await hub.send(session, Interrupt(by=by)), withdrawn)
