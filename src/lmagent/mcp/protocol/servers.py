"""Servers: the MCP servers of a workspace. The SDK is imported on their thread, at the first start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from lmagent.core.errors import ToolError, ungrouped
from lmagent.mcp.config import LoadedServers, Problem
from lmagent.mcp.protocol.launch import Launcher, confinement
from lmagent.mcp.protocol.logs import ServerLog
from lmagent.mcp.protocol.manifests import load_manifest
from lmagent.mcp.protocol.places import log_file
from lmagent.mcp.protocol.supervisor import AT_ONCE, Place, ServerSupervisor
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

T = TypeVar("T")
AuthOf = Callable[[ServerSpec, Path], Any]


class McpServers:
    """See `lmagent.mcp.spec.Servers`.

    Attributes:
        problems: the files and entries that could not be used.
    """

    def __init__(
        self, workspace: Path, loaded: LoadedServers, data: Path, sandbox: SandboxRequest, auth_of: AuthOf
    ) -> None:
        self.changed: Callable[[str], None] = lambda _name: None
        self.problems: Sequence[Problem] = loaded.problems
        self._thread = McpThread()
        self._started = False
        self._lock = threading.Lock()
        self._supervisors: dict[str, ServerSupervisor] = {}
        launcher, slots = Launcher(workspace, sandbox, data), anyio.Semaphore(AT_ONCE)
        place = Place(workspace, data, launcher, slots, auth_of, lambda name: self.changed(name))
        for spec in sorted(loaded.specs, key=lambda spec: spec.name):
            state = _first_state(spec, loaded.untrusted, sandbox.backend)
            manifest = load_manifest(data, workspace, spec)
            log = ServerLog(log_file(data, workspace, spec.name))
            self._supervisors[spec.name] = ServerSupervisor(state, manifest, log, place)

    def states(self) -> tuple[McpState, ...]:
        return tuple(supervisor.state for supervisor in self._supervisors.values())

    def manifest(self, name: str) -> McpManifest | None:
        return self._named(name).manifest

    def start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        for supervisor in self._supervisors.values():
            if supervisor.may_run:
                self._thread.post(lambda each=supervisor: each.wake(self._thread.group))

    async def ready(self, name: str) -> McpManifest:
        supervisor = self._named(name)
        return await self._thread.run(partial(self._ready, supervisor))

    async def _ready(self, supervisor: ServerSupervisor) -> McpManifest:
        return (await supervisor.ready(self._thread.group)).manifest

    async def call(self, name: str, tool: str, arguments: Mapping[str, Any], handler: CallHandler) -> McpResult:
        supervisor = self._named(name)
        results: list[McpResult] = []
        with ungrouped():
            async with anyio.create_task_group() as group:
                relay = _Relay(handler, group)
                try:
                    results.append(await self._thread.run(partial(self._call, supervisor, tool, arguments, relay)))
                finally:
                    relay.close()
                    group.cancel_scope.cancel()
        return results[0]

    async def _call(
        self, supervisor: ServerSupervisor, tool: str, arguments: Mapping[str, Any], handler: CallHandler
    ) -> McpResult:
        connection = await supervisor.ready(self._thread.group)
        return await connection.call(tool, arguments, handler)

    async def read(self, name: str, uri: str) -> tuple[Part, ...]:
        supervisor = self._named(name)

        async def work() -> tuple[Part, ...]:
            return await (await supervisor.ready(self._thread.group)).read(uri)

        return await self._thread.run(work)

    async def prompt(self, name: str, prompt: str, arguments: Mapping[str, str]) -> tuple[tuple[str, Part], ...]:
        supervisor = self._named(name)

        async def work() -> tuple[tuple[str, Part], ...]:
            return await (await supervisor.ready(self._thread.group)).prompt(prompt, arguments)

        return await self._thread.run(work)

    def log(self, name: str, lines: int = 200) -> tuple[str, ...]:
        return self._named(name).log.tail(lines)

    async def restart(self, name: str) -> None:
        supervisor = self._named(name)

        async def work() -> None:
            await supervisor.stop()
            supervisor.wake(self._thread.group)

        await self._thread.run(work)

    async def aclose(self) -> None:
        await anyio.to_thread.run_sync(self._thread.stop)

    def _named(self, name: str) -> ServerSupervisor:
        found = self._supervisors.get(name)
        if found is None:
            known = ", ".join(self._supervisors) or "none"
            raise ToolError(f"there is no MCP server {name[:80]!r}; configured: {known}")
        return found


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


def _first_state(spec: ServerSpec, untrusted: Mapping[str, str], backend: str) -> McpState:
    status: Status = "idle"
    reason = fix = ""
    if not spec.enabled:
        status, reason = "disabled", "its entry says so"
        fix = f"take disabled out of its entry in {spec.file}"
    elif spec.name in untrusted:
        status, reason = "untrusted", untrusted[spec.name]
        fix = "read the file, and if you agree with it type: lmagent config trust"
    return McpState(spec, status, reason, fix, confinement=confinement(spec, backend))
