"""Servers: the MCP servers of a workspace. The SDK is imported on their thread, at the first start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from lmagent.core.errors import ToolError, ungrouped
from lmagent.mcp.config import LoadedServers, Problem
from lmagent.mcp.protocol.manifests import load_manifest
from lmagent.mcp.protocol.thread import McpThread
from lmagent.mcp.spec import (
    CallHandler,
    Elicitation,
    ElicitationAnswer,
    McpManifest,
    McpResult,
    McpState,
    Part,
    SamplingRequest,
    ServerSpec,
    Status,
)
from lmagent.sandbox.environment import SandboxRequest

if TYPE_CHECKING:
    from lmagent.mcp.protocol.connection import McpConnection
    from lmagent.mcp.protocol.supervisor import ServerSupervisor

T = TypeVar("T")

AuthOf = Callable[[ServerSpec, Path], Any]
"""Returns the `httpx2.Auth` of a server; None if the user has not logged in to it."""


class McpServers:
    """See `lmagent.mcp.spec.Servers`. What runs servers is loaded and made when the first of them is to run.

    Attributes:
        problems: the files and entries that could not be used.
    """

    def __init__(
        self, workspace: Path, loaded: LoadedServers, data: Path, sandbox: SandboxRequest, auth_of: AuthOf
    ) -> None:
        self.changed: Callable[[str], None] = lambda _name: None
        self.problems: Sequence[Problem] = loaded.problems
        self._workspace = workspace
        self._data = data
        self._sandbox = sandbox
        self._auth_of = auth_of
        self._thread = McpThread()
        self._lock = threading.Lock()
        self._known = {
            spec.name: _Known(_first_state(spec, untrusted, sandbox.backend), load_manifest(data, workspace, spec))
            for spec in sorted(loaded.specs, key=lambda spec: spec.name)
            for untrusted in [loaded.untrusted.get(spec.name, "")]
        }
        self._supervisors: dict[str, ServerSupervisor] = {}

    def states(self) -> tuple[McpState, ...]:
        return tuple(server.state for server in (self._supervisors or self._known).values())

    def manifest(self, name: str) -> McpManifest | None:
        return _named(self._supervisors or self._known, name).manifest

    def start(self) -> None:
        for supervisor in self._running().values():
            if supervisor.may_run:
                self._thread.post(lambda it=supervisor: it.wake(self._thread.group))

    async def ready(self, name: str) -> McpManifest:
        return await self._connected(name, _manifest_of)

    async def call(self, name: str, tool: str, arguments: Mapping[str, Any], handler: CallHandler) -> McpResult:
        results: list[McpResult] = []
        with ungrouped():
            async with anyio.create_task_group() as group:
                relay = _Relay(handler, group)
                try:
                    results.append(await self._connected(name, lambda it: it.call(tool, arguments, relay)))
                finally:
                    relay.close()
                    group.cancel_scope.cancel()
        return results[0]

    async def read(self, name: str, uri: str) -> tuple[Part, ...]:
        return await self._connected(name, lambda it: it.read(uri))

    async def prompt(self, name: str, prompt: str, arguments: Mapping[str, str]) -> tuple[tuple[str, Part], ...]:
        return await self._connected(name, lambda it: it.prompt(prompt, arguments))

    async def _connected(self, name: str, do: Callable[[McpConnection], Awaitable[T]]) -> T:
        """Do something with a server, on the servers' thread, when it is ready."""
        supervisor = _named(self._running(), name)

        async def work() -> T:
            return await do(await supervisor.ready(self._thread.group))

        return await self._thread.run(work)

    def log(self, name: str, lines: int = 200) -> tuple[str, ...]:
        from lmagent.mcp.protocol.logs import log_of

        _named(self._known, name)
        return log_of(self._data, self._workspace, name).tail(lines)

    async def restart(self, name: str) -> None:
        supervisor = _named(self._running(), name)

        async def work() -> None:
            await supervisor.stop()
            supervisor.wake(self._thread.group)

        await self._thread.run(work)

    async def aclose(self) -> None:
        await anyio.to_thread.run_sync(self._thread.stop)

    def _running(self) -> dict[str, ServerSupervisor]:
        """Return what runs the servers. The first call makes it."""
        from lmagent.mcp.protocol.launch import Launcher
        from lmagent.mcp.protocol.logs import log_of
        from lmagent.mcp.protocol.supervisor import AT_ONCE, Place, ServerSupervisor

        with self._lock:
            if not self._supervisors:
                launcher = Launcher(self._workspace, self._sandbox, self._data)
                slots = anyio.Semaphore(AT_ONCE)
                place = Place(
                    self._workspace, self._data, launcher, slots, self._auth_of, lambda name: self.changed(name)
                )
                self._supervisors = {
                    name: ServerSupervisor(*known, log_of(self._data, self._workspace, name), place)
                    for name, known in self._known.items()
                }
            return self._supervisors


class _Known(NamedTuple):
    """What is known of a server before it runs."""

    state: McpState
    manifest: McpManifest | None


async def _manifest_of(connection: McpConnection) -> McpManifest:
    return connection.manifest


def _named(servers: Mapping[str, T], name: str) -> T:
    if name not in servers:
        raise ToolError(f"there is no MCP server {name[:80]!r}; configured: {', '.join(servers) or 'none'}")
    return servers[name]


class _Relay:
    """Passes what a server sends during a call to the caller's handler, on the caller's event loop."""

    def __init__(self, handler: CallHandler, group: TaskGroup) -> None:
        self._handler = handler
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def progress(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._show, text)

    def _show(self, text: str) -> None:
        if not self._is_closed:
            self._handler.progress(text)

    async def sample(self, request: SamplingRequest) -> str | None:
        return await self._answered(partial(self._handler.sample, request))

    async def elicit(self, request: Elicitation) -> ElicitationAnswer:
        return await self._answered(partial(self._handler.elicit, request))

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        answer: Future[T] = Future()

        async def work() -> None:
            try:
                result = await ask()
            except Exception as error:  # noqa: BLE001 - the server learns that it failed, and continues the call
                answer.set_exception(error)
            except BaseException:
                answer.cancel()
                raise
            else:
                if not answer.cancelled():
                    answer.set_result(result)

        def begin() -> None:
            if self._is_closed:
                answer.cancel()
            else:
                self._group.start_soon(work)

        self._loop.call_soon_threadsafe(begin)
        return await asyncio.wrap_future(answer)


def _first_state(spec: ServerSpec, untrusted: str, backend: str) -> McpState:
    status: Status = "idle"
    reason = fix = ""
    if not spec.enabled:
        status, reason = "disabled", "its entry says so"
        fix = f"take disabled out of its entry in {spec.file}"
    elif untrusted:
        status, reason = "untrusted", untrusted
        fix = "read the file, and if you agree with it type: lmagent config trust"
    return McpState(spec, status, reason, fix, confinement=_confinement(spec, backend))


def _confinement(spec: ServerSpec, backend: str) -> str:
    """Return what a server may do, in words; `backend` is the configured sandbox."""
    if spec.url:
        return "remote"
    if spec.needs.unconfined:
        return "unconfined"
    if backend == "off":
        return "unconfined (the sandbox is off)"
    parts = ["sandbox"]
    parts += [f"network: {', '.join(spec.needs.network)}"] if spec.needs.network else []
    parts += [f"paths: {', '.join(spec.needs.paths)}"] if spec.needs.paths else []
    return ", ".join(parts)
