"""Logins: the logins to MCP servers that users began on the page. Each is a task of this process."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from lmagent.core.errors import LmagentError
from lmagent.mcp.oauth import LoginStep, login
from lmagent.mcp.spec import Servers, ServerSpec


class McpLogin(Struct):
    """A login to a server. It holds no token.

    Attributes:
        state: `begun`; `waiting` for the user to open `address`, and with a `code` to enter it there; `done`; `failed`.
        text: why it failed, or why an address that the user gave is not the right one.
    """

    state: Literal["begun", "waiting", "done", "failed"] = "begun"
    address: str = ""
    code: str = ""
    text: str = ""

    @property
    def runs(self) -> bool:
        return self.state in ("begun", "waiting")


class _Running(Struct):
    """What ends a login, and the addresses that the user gives it."""

    scope: anyio.CancelScope
    given: list[str]
    news: anyio.Event


class McpLogins:
    """The last login to each server."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._known: dict[str, McpLogin] = {}
        self._running: dict[str, _Running] = {}
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Work until cancelled; then every login ends."""
        async with anyio.create_task_group() as self._tasks:
            await anyio.sleep_forever()

    def of(self, server: str) -> McpLogin | None:
        return self._known.get(server)

    def start(self, servers: Servers, spec: ServerSpec, *, is_here: bool) -> McpLogin:
        """Begin a login; return the existing one if it runs.

        Args:
            is_here: the user's browser runs on this machine, so that the end of the login reaches us by itself.
        """
        known = self._known.get(spec.name)
        if self._tasks is None or (known is not None and known.runs):
            return known or McpLogin("failed", text="logins are not ready: try again in a moment")
        made = self._known[spec.name] = McpLogin()
        self._running[spec.name] = _Running(anyio.CancelScope(), [], anyio.Event())
        self._tasks.start_soon(self._login, servers, spec, made, is_here)
        return made

    def give(self, server: str, address: str) -> McpLogin | None:
        """Give a login the address to which the browser was sent at its end; return None if no login waits for it."""
        known = self._known.get(server)
        if known is None or known.state != "waiting":
            return None
        known.text = ""
        running = self._running[server]
        if address.strip():
            running.given.append(address)
            running.news.set()
        return known

    def stop(self, server: str) -> None:
        """End a login and forget it."""
        if (running := self._running.get(server)) is not None:
            running.scope.cancel()
        self._known.pop(server, None)

    async def _login(self, servers: Servers, spec: ServerSpec, row: McpLogin, is_here: bool) -> None:
        running = self._running[spec.name]

        def say(text: str) -> None:
            row.text = text if row.state == "waiting" else ""

        def show(step: LoginStep) -> None:
            row.state, row.address, row.code, row.text = "waiting", step.address, step.code, ""

        async def pasted() -> str:
            while not running.given:
                await running.news.wait()
                running.news = anyio.Event()
            return running.given.pop(0)

        try:
            with running.scope:
                await login(spec, self._data, say, (lambda _address: True) if is_here else None, pasted, show)
                row.state, row.address, row.code = "begun", "", ""
                await servers.restart(spec.name)
                row.state = "done"
        except LmagentError as error:
            row.state, row.text = "failed", error.message
        except Exception as error:  # noqa: BLE001 - whatever a server sends, the gateway works on
            row.state, row.text = "failed", f"the login to {spec.name} failed: {type(error).__name__}"
        finally:
            if self._running.get(spec.name) is running:
                del self._running[spec.name]
