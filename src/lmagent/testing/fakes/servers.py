"""FakeServers: MCP servers without a process or a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.lowlevel

from lmagent.core.errors import ToolError
from lmagent.mcp.spec import CallHandler, McpManifest, McpResult, McpState, Part, ServerSpec, Status

OnCall = Callable[[str, Mapping[str, Any], CallHandler], Awaitable[McpResult]]


async def echo(tool: str, arguments: Mapping[str, Any], _: CallHandler) -> McpResult:
    """Answer a call with its tool and arguments."""
    return McpResult((Part("text", f"{tool} {dict(arguments)}"),))


@dataclass(frozen=True, slots=True)
class FakeServer:
    """A server of `FakeServers`.

    Attributes:
        manifest: its tools, resources and prompts.
        on_call: answers a call; it may raise a ToolError.
        known: the manifest is known from an earlier run, before the server is ready.
        reads: the contents of its resources, by address.
        prompts: the messages of its prompts, by name.
        status: its state at the beginning. `idle` becomes `ready` by `start` or `ready`; `starting` waits for
            `arrive`; no other state changes by itself.
        reason: why it is not ready.
        log: the lines of its log.
        spec: its configuration; without one, a program of its name.
    """

    manifest: McpManifest = field(default_factory=McpManifest)
    on_call: OnCall = echo
    known: bool = True
    reads: Mapping[str, tuple[Part, ...]] = field(default_factory=dict[str, tuple[Part, ...]])
    prompts: Mapping[str, tuple[tuple[str, Part], ...]] = field(default_factory=dict[str, tuple[tuple[str, Part], ...]])
    status: Status = "idle"
    reason: str = ""
    fix: str = ""
    log: tuple[str, ...] = ()
    spec: ServerSpec | None = None


class FakeServers:
    """The servers that a test names; a test changes them by `change` and `arrive`.

    Attributes:
        calls: each call that reached a server, as server, tool and arguments.
        started: whether `start` was called.
        restarts: the names of the servers that were restarted, in order.
        closed: whether `aclose` was called.
    """

    def __init__(self, servers: Mapping[str, FakeServer]) -> None:
        self.changed: Callable[[str], None] = lambda name: None
        self.secrets = [secret for server in servers.values() if server.spec for secret in server.spec.secrets]
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.started = self.closed = False
        self.restarts: list[str] = []
        self._servers = dict(sorted(servers.items()))
        self._arrived = {name: anyio.Event() for name in servers}

    def states(self) -> tuple[McpState, ...]:
        return tuple(
            McpState(
                server.spec or ServerSpec(name, (name,)),
                server.status,
                server.reason,
                server.fix,
                self.restarts.count(name),
                "sandbox",
            )
            for name, server in self._servers.items()
        )

    def manifest(self, name: str) -> McpManifest | None:
        server = self._servers[name]
        return server.manifest if server.known or server.status == "ready" else None

    def start(self) -> None:
        if not self.started:
            self.started = True
            for name in [name for name, server in self._servers.items() if server.status == "idle"]:
                self.change(name, status="ready")

    async def ready(self, name: str) -> McpManifest:
        await anyio.lowlevel.checkpoint()
        if self._servers[name].status == "idle":
            self.change(name, status="ready")
        if self._servers[name].status == "starting":
            await self._arrived[name].wait()
        server = self._servers[name]
        if server.status != "ready":
            fix = server.fix or f"/mcp shows its state, lmagent mcp logs {name} its log"
            raise ToolError(f"The server {name} is not available: {server.reason or server.status}. {fix}")
        return server.manifest

    async def call(self, name: str, tool: str, arguments: Mapping[str, Any], handler: CallHandler) -> McpResult:
        manifest = await self.ready(name)
        if tool not in {known.name for known in manifest.tools}:
            raise ToolError(f"The server {name} has no tool {tool}.")
        self.calls.append((name, tool, dict(arguments)))
        return await self._servers[name].on_call(tool, arguments, handler)

    async def read(self, name: str, uri: str) -> tuple[Part, ...]:
        await self.ready(name)
        if uri not in self._servers[name].reads:
            raise ToolError(f"The server {name} has no resource {uri}.")
        return self._servers[name].reads[uri]

    async def prompt(self, name: str, prompt: str, arguments: Mapping[str, str]) -> tuple[tuple[str, Part], ...]:
        """Return the messages of a prompt, with `{argument}` in their text replaced."""
        await self.ready(name)
        if prompt not in self._servers[name].prompts:
            raise ToolError(f"The server {name} has no prompt {prompt}.")
        messages = self._servers[name].prompts[prompt]
        return tuple((role, Part(part.kind, part.text.format_map(arguments))) for role, part in messages)

    def log(self, name: str, lines: int = 200) -> tuple[str, ...]:
        return self._servers[name].log[-lines:]

    async def restart(self, name: str) -> None:
        await anyio.lowlevel.checkpoint()
        self.restarts.append(name)
        self.change(name, status="ready")

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.closed = True

    def change(self, name: str, **facts: Any) -> None:
        """Change a server: the fields of its `FakeServer`, for example `manifest` or `status`."""
        self._servers[name] = replace(self._servers[name], **facts)
        if self._servers[name].status == "ready":
            self._arrived[name].set()
        self.changed(name)

    def arrive(self, name: str) -> None:
        """Make a server ready."""
        self.change(name, status="ready")
