"""Calls: the calls of one client. They belong to a session: with events, snapshots, approvals, and /undo."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

import anyio
import msgspec

from lmagent.app.runner import Runner
from lmagent.core.commands import Rename
from lmagent.core.errors import SessionNotFound, ToolError
from lmagent.core.events import OWN_CALL, ToolFinished
from lmagent.core.ids import new_id
from lmagent.core.messages import ToolCall
from lmagent.engine.act import perform
from lmagent.engine.recovery import close_own_calls
from lmagent.engine.session import Session
from lmagent.engine.toolbox import Invocation, Toolbox
from lmagent.mcpserver.watch import SURFACE, AnswerPlaces, Client, RequestWatch
from lmagent.tools.sanitize import one_line


class Calls:
    """The calls of one client. Their session begins with the first call, and stays open until `aclose`.

    Attributes:
        session: its id; empty before the first call.
        tasks: the sessions of the client's delegated tasks.
    """

    def __init__(self, runner: Runner, name: str, places: AnswerPlaces) -> None:
        self.session = ""
        self.tasks = set[str]()
        self._runner = runner
        self._name = one_line(name, 60)
        self._places = places
        self._opening = anyio.Lock()
        self._order = anyio.Lock()
        runner.host.registry.busy.append(self._is_held)

    def _is_held(self, session: str) -> bool:
        return session == self.session

    async def call(self, tool: str, arguments: Mapping[str, Any], client: Client) -> ToolFinished:
        """Make a call, under the gate like every other. Calls that only read run in parallel.

        Raises LmagentError: it could not be made.
        """
        call = ToolCall(f"{OWN_CALL}{SURFACE}-{new_id()}", tool, msgspec.json.encode(arguments).decode())
        invocation = _resolved(self._runner.host.toolbox, call)
        session = await self._opened()
        watch = RequestWatch(session, client, self._places, call.id)
        async with nullcontext() if invocation.tool.effect == "read" else self._order, watch.following():
            try:
                await perform(session, invocation, None)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await close_own_calls(session, call.id)
                raise
        assert watch.finished is not None
        return watch.finished

    async def aclose(self) -> None:
        """Release the session. Its background commands end."""
        self._runner.host.registry.busy.remove(self._is_held)
        session, self.session = self.session, ""
        if session:
            watched = self._runner.is_watched(session)
            await self._runner.release(session, unless=lambda known: known.is_needed or watched)

    async def _opened(self) -> Session:
        async with self._opening:
            if self.session:
                with suppress(SessionNotFound):  # its user has deleted it
                    return (await self._runner.open(self.session)).session
            known = await self._runner.begin()
            self.session = known.id
            await known.session.send(Rename(title=f"Calls of {self._name}", by=SURFACE))
            return known.session


def _resolved(toolbox: Toolbox, call: ToolCall) -> Invocation:
    """Return the checked call. What the gate and the user are shown of it is the tool's code, and may fail."""
    invocation = toolbox.resolve(call)
    try:
        _ = invocation.targets, invocation.command, invocation.summary
    except ToolError:
        raise
    except Exception as bug:
        raise ToolError(f"{call.name} failed: {type(bug).__name__}: {bug}") from bug
    return invocation
