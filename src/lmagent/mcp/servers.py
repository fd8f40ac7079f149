"""Servers: the MCP servers of a workspace, from its configuration.

A program's first request needs their states and kept manifests; what runs them is loaded when the first of them is to
run. All run on one thread with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from msgspec import Struct
from msgspec.structs import replace

from lmagent.config.settings import Settings
from lmagent.core.errors import ToolError, ungrouped
from lmagent.mcp.config import LoadedServers, Problem, beginning, is_name, load_servers
from lmagent.mcp.manifests import load_manifest
from lmagent.mcp.spec import CallHandler, McpManifest, McpResult, McpState, Part, ServerSpec, Status
from lmagent.sandbox.environment import SandboxRequest

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from lmagent.mcp.protocol.connection import McpConnection
    from lmagent.mcp.protocol.supervisor import ServerSupervisor

T = TypeVar("T")

AuthOf = Callable[..., Any]
"""Returns the `httpx2.Auth` of a server; None if the user has not logged in to it; see `lmagent.mcp.oauth.auth_of`."""

TOKENS = 50
"""Tokens of logins that stay secret; older ones have ended."""


def open_servers(
    workspace: Path,
    settings: Settings,
    sandbox: SandboxRequest,
    client: Sequence[ServerSpec] = (),
    *,
    configured: bool = True,
) -> McpServers:
    """Return the servers of a workspace; none of them runs yet.

    Args:
        sandbox: the options of the sandbox that the workspace's commands have.
        client: servers that an editor handed over, or a project has; a configured server of the same name wins.
        configured: whether the configured servers are among them.
    """
    loaded = load_servers(workspace, settings) if configured else LoadedServers()
    known = {beginning(spec.name) for spec in loaded.specs}
    offered = [spec for spec in client if settings.enable_mcp]
    added = {beginning(spec.name): spec for spec in offered if is_name(spec.name) and beginning(spec.name) not in known}
    loaded = replace(loaded, specs=(*loaded.specs, *added.values()))
    return McpServers(workspace, loaded, settings.agent_data_dir, sandbox, _auth_of)


def _auth_of(spec: ServerSpec, data: Path, learn: Callable[[Iterable[str]], None]) -> Any:
    from lmagent.mcp.oauth import auth_of  # only a server that starts needs it

    return auth_of(spec, data, learn)


class McpServers:
    """See `lmagent.mcp.spec.Servers`. What runs servers is loaded and made when the first of them is to run.

    Attributes:
        problems: the files and entries that could not be used.
    """

    def __init__(
        self,
        workspace: Path,
        loaded: LoadedServers,
        data: Path,
        sandbox: SandboxRequest,
        auth_of: AuthOf,
    ) -> None:
        self.changed: Callable[[str], None] = lambda _name: None
        self.problems: Sequence[Problem] = loaded.problems
        self.secrets = [secret for spec in loaded.specs for secret in spec.secrets]
        self._tokens: list[str] = []
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
        from lmagent.mcp.protocol.relay import CallRelay

        results: list[McpResult] = []
        with ungrouped():
            async with anyio.create_task_group() as group:
                relay = CallRelay(handler, group)
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
        from lmagent.engine.redact import Redactor
        from lmagent.mcp.protocol.launch import Launcher
        from lmagent.mcp.protocol.logs import log_of
        from lmagent.mcp.protocol.supervisor import AT_ONCE, Place, ServerSupervisor

        with self._lock:
            if not self._supervisors:
                launcher = Launcher(self._workspace, self._sandbox, self._data)
                slots = anyio.Semaphore(AT_ONCE)
                redactor, auth = Redactor(self.secrets), partial(self._auth_of, learn=self._learn)
                place = Place(
                    self._workspace, self._data, launcher, slots, auth, redactor, lambda name: self.changed(name)
                )
                self._supervisors = {
                    name: ServerSupervisor(
                        known.state, known.manifest, log_of(self._data, self._workspace, name, redactor.text), place
                    )
                    for name, known in self._known.items()
                }
            return self._supervisors

    def _learn(self, tokens: Iterable[str]) -> None:
        """Keep the tokens of a login out of all texts."""
        new = [token for token in tokens if token and token not in self.secrets]
        self.secrets += new
        self._tokens += new
        while len(self._tokens) > TOKENS:
            self.secrets.remove(self._tokens.pop(0))


class _Known(Struct, frozen=True):
    """A server before it runs."""

    state: McpState
    manifest: McpManifest | None


async def _manifest_of(connection: McpConnection) -> McpManifest:
    return connection.manifest


def _named(servers: Mapping[str, T], name: str) -> T:
    if name not in servers:
        raise ToolError(f"there is no MCP server {name[:80]!r}; configured: {', '.join(servers) or 'none'}")
    return servers[name]


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


class McpThread:
    """The thread. It is a daemon: a program that forgets to stop it can still end.

    Attributes:
        group: owns the tasks of the servers; used on the thread only.
    """

    group: TaskGroup

    def __init__(self) -> None:
        self._portal: BlockingPortal | None = None
        self._thread: threading.Thread | None = None
        self._is_up = threading.Event()
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=anyio.run, args=(self._main,), name="mcp", daemon=True)
                self._thread.start()
        self._is_up.wait()

    def post(self, work: Callable[[], object]) -> None:
        """Do something on the thread, soon."""
        self.start()
        if self._portal is not None and not self._is_closed:
            self._portal.start_task_soon(_called, work)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something on the thread, and return its result to the caller's event loop. Cancelled, it cancels it."""
        self.start()
        if self._portal is None or self._is_closed:
            raise ToolError("the MCP servers of this program were stopped")
        return await asyncio.wrap_future(self._portal.start_task_soon(work))

    def stop(self) -> None:
        """Cancel everything on the thread, and wait for its end. Blocks."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed or self._thread is None or self._portal is None:
            return
        self._portal.start_task_soon(_called, self._stopping.set)
        self._thread.join(10)

    async def _main(self) -> None:
        from anyio.from_thread import BlockingPortal  # no first request waits for it

        self._stopping = anyio.Event()
        async with BlockingPortal() as portal, anyio.create_task_group() as group:
            self.group, self._portal = group, portal
            self._is_up.set()
            await self._stopping.wait()
            group.cancel_scope.cancel()
            await portal.stop(cancel_remaining=True)


async def _called(work: Callable[[], object]) -> None:
    work()
