"""Reflecting: reflection on the sessions of a host, by its model, beside all conversations."""

from __future__ import annotations

from datetime import datetime

from lmagent.app.host import Host
from lmagent.memory.opening import SessionLogs, open_memories
from lmagent.memory.reflector import MARKS, Reflector, Report


async def reflect(host: Host, only: str = "") -> Report:
    """Reflect on what is new in the workspace's sessions, or in `only` one. Raise StoreError if nothing can be
    stored."""
    memories = open_memories(host.workspace, host.settings, host.clock)
    try:
        return await Reflector(
            memories.scopes["workspace"],
            SessionLogs(host.store),
            host.served.for_session(1, aside=True).stream,
            host.agent.model,
            lambda session: session in host.sessions and host.sessions[session].state.turn_open,
        ).run(only)
    finally:
        memories.close()


def is_due(host: Host) -> bool:
    """Return whether a runner that is idle should reflect now: by the setting, once a day or whenever it is idle."""
    if host.settings.reflection != "daily":
        return host.settings.reflection == "idle"
    marks = host.workspace / ".lmagent" / "memory" / MARKS
    try:
        then = datetime.fromtimestamp(marks.stat().st_mtime).astimezone()
    except OSError:
        return True
    return then.date() != datetime.fromtimestamp(host.clock.now()).astimezone().date()
