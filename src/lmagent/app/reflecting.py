"""Reflecting: reflection on the sessions of a host, by its model, beside all conversations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from lmagent.app.host import Host
from lmagent.config.files import write_private
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.core.plurals import plural
from lmagent.memory.feature import memory_folders
from lmagent.memory.opening import SessionLogs, open_memories
from lmagent.memory.reflector import MARKS, Reflector, Report
from lmagent.store.lock import locked

QUIET = 60.0  # seconds without work before a runner reflects
ENOUGH = 5  # sessions from which reflection is offered
OFFERED = "reflection-offered"  # in the user's data folder


async def reflect(host: Host) -> Report:
    """Reflect on the news of the workspace's sessions.

    Raises StoreError: nothing can be stored, or another process reflects on this workspace.
    """
    memories = open_memories(host.workspace, host.settings, host.clock)
    memory = memories.scopes["workspace"]
    reflector = Reflector(
        memory,
        SessionLogs(host.store),
        host.served.for_session(1, aside=True).stream,
        host.settings.reflection_model or host.agent.model,
        lambda session: session in host.sessions and host.sessions[session].state.turn_open,
    )
    alone = memory.folder.root / "reflecting"  # two at once would ask the model the same questions
    try:
        memory.folder.check_links()
        with locked(alone, "a reflection on this workspace is running", patience=0):
            return await reflector.run()
    finally:
        memories.close()


def is_due(host: Host) -> bool:
    """Return whether a runner that is idle should reflect now: by the setting, once a day or whenever it is idle."""
    if host.settings.reflection != "daily":
        return host.settings.reflection == "idle"
    marks = memory_folders(host.workspace, host.settings.agent_data_dir)["workspace"] / MARKS
    try:
        then = datetime.fromtimestamp(marks.stat().st_mtime).astimezone()
    except OSError:
        return True
    return then.date() != datetime.fromtimestamp(host.clock.now()).astimezone().date()


class IdleReflection:
    """Reflects while nothing else is to do, by the setting; says once that it could, if the setting is off."""

    def __init__(self, host: Host, say: Callable[[str], None]) -> None:
        self._host = host
        self._say = say
        self._offered = False
        self._seen: dict[str, int] = {}  # sizes of the logs at the last run: without news the model is not asked

    async def look(self, idle_for: float) -> None:
        """Run if nothing has happened for long enough. A failure is said, and tried again once there is news."""
        if self._host.settings.reflection == "off":
            self._offer()
            return
        if idle_for < QUIET or not is_due(self._host) or (sizes := self._sizes()) == self._seen:
            return
        self._seen = sizes
        try:
            report = await reflect(self._host)
        except LmagentError as failure:
            self._say(f"reflection failed: {failure}")
            return
        for line in report.failed:
            self._say(f"reflection failed: {line}")
        if report.stored or report.pinned:
            count = plural(len(report.stored) + len(report.pinned), "memory", "memories")
            self._say(f"reflection stored {count}: lmagent memory list; lmagent memory undo takes it back")

    def _sizes(self) -> dict[str, int]:
        logs = SessionLogs(self._host.store)
        return {session: logs.size(session) for session in logs.sessions()}

    def _offer(self) -> None:
        """Say once, for this user, that finished sessions can be reflected on."""
        mark = self._host.settings.agent_data_dir / OFFERED
        if self._offered or mark.exists() or self._host.store.count() < ENOUGH:
            return
        self._offered = True
        with suppress(ConfigError):
            write_private(mark, "")
        self._say("the agent can remember what finished sessions taught: LMAGENT_REFLECTION=idle, or /memory reflect")
