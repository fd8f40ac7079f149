"""Supervisor: starts a server, watches it, and starts it again. All of it runs on the servers' thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import LmagentError, ToolError
from lmagent.engine.redact import Redactor
from lmagent.mcp.manifests import keep_manifest
from lmagent.mcp.protocol.launch import Launcher, advice, login
from lmagent.mcp.protocol.link import McpLink
from lmagent.mcp.protocol.logs import ServerLog
from lmagent.mcp.spec import McpManifest, McpState, Status

if TYPE_CHECKING:
    from lmagent.mcp.protocol.connection import McpConnection

AT_ONCE = 8
"""Servers that start at the same time."""

TRIES = 5
"""Starts after a death, before the server counts as failed until it is asked for again."""

STEADY = 60.0
"""Seconds after which a server that runs has all tries again."""

_FIRST_PAUSE = 0.5


class Place(Struct, frozen=True):
    """What the servers of a workspace share. `slots` is held while a server starts."""

    workspace: Path
    data: Path
    launcher: Launcher
    slots: anyio.Semaphore
    auth_of: Callable[[Any, Path], Any]
    redactor: Redactor
    changed: Callable[[str], None]


class _Death(Struct, frozen=True):
    """How a run ended."""

    reason: str
    fix: str = ""
    was_ready: bool = False
    seconds: float = 0.0
    needs_login: bool = False


class ServerSupervisor:
    """One server.

    Attributes:
        state: replaced as a whole, so that other threads may read it.
        manifest: what the server offers, or offered the last time.
    """

    def __init__(self, state: McpState, manifest: McpManifest | None, log: ServerLog, place: Place) -> None:
        self.state = state
        self.manifest = manifest
        self.log = log
        self._spec = state.spec
        self._place = place
        self._connection: McpConnection | None = None
        self._is_serving = False
        self._attempts = 0
        self._news = anyio.Event()
        self._asked = anyio.Event()
        self._scope: anyio.CancelScope | None = None

    @property
    def may_run(self) -> bool:
        return self.state.status not in ("untrusted", "disabled")

    def wake(self, group: TaskGroup) -> None:
        """Start the server unless it runs; one that waits to be started again is started now."""
        self._asked.set()
        if self.may_run and not self._is_serving:
            self._is_serving = True
            self._set("starting")
            group.start_soon(self._serve)

    async def ready(self, group: TaskGroup) -> McpConnection:
        """Return the connection, after a start if necessary. Raises ToolError."""
        if not self.may_run:
            raise self._refusal()
        # A connection that has just ended is not cleared away yet; its end is no answer to this call.
        attempts = self._attempts + (self._connection is not None and self._live is None)
        with anyio.move_on_after(2 * self._spec.start_timeout + 30):
            while self._live is None:
                if self._attempts > attempts:
                    raise self._refusal()
                if not self._is_serving or self.state.reason:
                    self.wake(group)
                await self._news.wait()
        if (connection := self._live) is None:
            raise ToolError(f"the server {self._spec.name} waits for others to start; try again later")
        return connection

    @property
    def _live(self) -> McpConnection | None:
        """The connection, unless it has ended."""
        found = self._connection
        return None if found is None or found.link.ended.is_set() else found

    async def stop(self) -> None:
        """Stop the server, and wait until nothing of it runs."""
        if self._scope is not None:
            self._scope.cancel()
        while self._is_serving:
            await self._news.wait()

    def _refusal(self) -> ToolError:
        state = self.state
        fix = f" What the user can do: {state.fix}" if state.fix else ""
        return ToolError(f"the server {self._spec.name} cannot be used ({state.status}): {state.reason}.{fix}")

    def _set(self, status: Status, reason: str = "", fix: str = "") -> None:
        reason = self._place.redactor.text(reason)
        self.state = replace(self.state, status=status, reason=reason, fix=fix)
        if reason:
            self.log.write("lmagent", f"{status}: {reason}")
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()
        self._place.changed(self._spec.name)

    async def _serve(self) -> None:
        """Run the server until it is stopped, or fails for good."""
        end: tuple[Status, str, str] = ("stopped", "", "")
        try:
            with anyio.CancelScope() as self._scope:
                end = await self._restarted()
        finally:
            self._is_serving = False
            self._connection = None
            self._set(*end)

    async def _restarted(self) -> tuple[Status, str, str]:
        """Run the server again and again; return how that ended: with which status, why, and what to type next."""
        tries = 0
        while True:
            self._asked = anyio.Event()
            death = await self._once()
            self._connection = None
            self._attempts += 1
            if death.needs_login:
                return "login", death.reason, death.fix
            if not death.was_ready and tries == 0:
                return "failed", death.reason, death.fix
            tries = 1 if death.seconds > STEADY else tries + 1
            if tries > TRIES:
                return "failed", f"it ended {tries} times in a row; the last time: {death.reason}", death.fix
            self.state = replace(self.state, restarts=self.state.restarts + 1)
            self._set("starting", f"it ended, and is started again: {death.reason}", death.fix)
            with anyio.move_on_after(_FIRST_PAUSE * 2 ** (tries - 1)):
                await self._asked.wait()

    async def _once(self) -> _Death:
        """Start the server, and wait for its end."""
        from lmagent.mcp.protocol.connection import McpConnection, connect, first_line

        link = McpLink(str(self._place.workspace))
        connection = McpConnection(self._spec, link, self.log, self._place.redactor, self._learn)
        ready_at: float | None = None
        why = ""
        try:
            async with AsyncExitStack() as slot:
                await slot.enter_async_context(self._place.slots)
                transport = await self._transport(link)
                with anyio.move_on_after(self._spec.start_timeout) as starting:
                    async with connect(transport, connection) as manifest:
                        starting.deadline, ready_at = float("inf"), anyio.current_time()
                        await slot.aclose()
                        self._connection = connection
                        self._learn(manifest)
                        self._set("ready")
                        await link.ended.wait()
                if starting.cancelled_caught:
                    why = f"it was not ready within {self._spec.start_timeout:g} seconds"
        except Exception as error:  # noqa: BLE001 - a server must not end the others, whatever it sends
            leaf = _leaf(error)
            if isinstance(leaf, LmagentError):  # of the sandbox, or of the login
                link.reason, link.fix = leaf.message, leaf.fix
            why = first_line(leaf)
        detail = f" ({link.answered})" if link.answered and not link.reason else ""
        return _Death(
            reason=link.reason or f"{why}{detail}" or "the connection ended",
            fix=link.fix or (login(self._spec) if link.needs_login else advice(self._spec)),
            was_ready=ready_at is not None,
            seconds=anyio.current_time() - ready_at if ready_at is not None else 0.0,
            needs_login=link.needs_login,
        )

    async def _transport(self, link: McpLink) -> AbstractAsyncContextManager[Any]:
        if self._spec.url:
            from lmagent.mcp.protocol.http import address

            return address(self._spec, self._place.auth_of(self._spec, self._place.data), link)
        from lmagent.mcp.protocol.stdio import program

        sandbox, command = await self._place.launcher.prepare(self._spec)
        link.root = sandbox.root
        return program(sandbox, command, link, self.log)

    def _learn(self, manifest: McpManifest) -> None:
        """Take over what the server offers, and keep it for the next time."""
        if manifest == self.manifest:
            return
        if why := keep_manifest(self._place.data, self._place.workspace, self._spec, manifest):
            self.log.write("lmagent", why)
        self.manifest = manifest
        self._tell()


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return error  # pyright: ignore[reportUnknownVariableType]
