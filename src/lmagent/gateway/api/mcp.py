"""MCP: the servers with their states, tools and logs; one call by the user, a restart."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct, field

from lmagent.app.commands.mcp import find_server, problem_lines, target
from lmagent.core.errors import ConfigError, ToolError
from lmagent.gateway.http.errors import Refusal, refusing
from lmagent.gateway.http.route import Call, Routes
from lmagent.mcp.spec import (
    Elicitation,
    ElicitationAnswer,
    McpPrompt,
    McpResource,
    McpState,
    McpTool,
    Part,
    SamplingRequest,
    Servers,
    Status,
)

ROUTES = Routes()

LONGEST = 100_000  # characters of a result that are sent to the page

Name = Annotated[str, Meta(min_length=1, max_length=64)]


class ServerQuery(Struct, frozen=True):
    """The name of a server."""

    server: Name


class McpServerRow(Struct, frozen=True, kw_only=True):
    """A server: its state, the reason for it and what to do, what it may do (`confinement`), and numbers of its offer.

    `target` is its command or its address. The numbers are None until it has been started once.
    """

    name: str
    status: Status
    reason: str
    fix: str
    restarts: int
    confinement: str
    target: str
    scope: str
    file: str
    tools: int | None = None
    resources: int | None = None
    prompts: int | None = None


class McpServerList(Struct, frozen=True):
    """The servers by name, and the entries and files of the configuration that cannot be used."""

    servers: tuple[McpServerRow, ...]
    problems: tuple[str, ...]


class McpToolRow(Struct, frozen=True):
    """A tool with the JSON schema of its arguments; `digest` covers all that the server says about it."""

    name: str
    title: str
    description: str
    parameters: dict[str, Any]
    digest: str


class McpServerDetails(McpServerRow, frozen=True, kw_only=True):
    """A server with all that it offers; `calls_itself` is its own name and version."""

    calls_itself: str = ""
    instructions: str = ""
    offered_tools: tuple[McpToolRow, ...] = ()
    offered_resources: tuple[McpResource, ...] = ()
    offered_prompts: tuple[McpPrompt, ...] = ()


class McpCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a tool. `digest` is the tool's as the user has read it: if it has changed since, nothing is called."""

    server: Name
    tool: Annotated[str, Meta(min_length=1, max_length=300)]
    digest: Annotated[str, Meta(max_length=64)]
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


class McpCalled(Struct, frozen=True):
    """The result of a call; pictures, sounds and files are named in its text."""

    is_error: bool
    text: str
    seconds: float


class McpLog(Struct, frozen=True):
    """The last lines of a server's log."""

    lines: tuple[str, ...]


@ROUTES.get("/api/mcp", "MCP servers with their states")
def list_mcp(call: Call) -> McpServerList:
    registry = call.gateway.host.registry
    servers = registry.mcp
    rows = tuple(McpServerRow(**_row(servers, state)) for state in servers.states()) if servers is not None else ()
    return McpServerList(rows, tuple(problem_lines(registry)))


@ROUTES.get("/api/mcp/server", "An MCP server with its tools, resources and prompts")
def show_mcp(call: Call, query: ServerQuery) -> McpServerDetails:
    servers, state = _found(call, query.server)
    manifest, row = servers.manifest(query.server), _row(servers, state)
    if manifest is None:
        return McpServerDetails(**row)
    return McpServerDetails(
        **row,
        calls_itself=manifest.server,
        instructions=manifest.instructions,
        offered_tools=tuple(
            McpToolRow(tool.name, tool.title, tool.description, tool.schema, _digest(tool)) for tool in manifest.tools
        ),
        offered_resources=manifest.resources,
        offered_prompts=manifest.prompts,
    )


@ROUTES.get("/api/mcp/log", "The log of an MCP server")
def show_mcp_log(call: Call, query: ServerQuery) -> McpLog:
    servers, _ = _found(call, query.server)
    return McpLog(servers.log(query.server))


@ROUTES.post("/api/mcp/restart", "Start an MCP server anew")
async def restart_mcp(call: Call, body: ServerQuery) -> McpServerRow:
    servers, state = await to_thread.run_sync(_found, call, body.server)
    if state.status in ("untrusted", "disabled"):
        raise Refusal(409, state.status, state.reason or f"{body.server} is {state.status}", fix=state.fix)
    await servers.restart(body.server)
    return McpServerRow(**_row(*await to_thread.run_sync(_found, call, body.server)))


@ROUTES.post("/api/mcp/call", "Call a tool of an MCP server once")
async def call_mcp(call: Call, body: McpCall) -> McpCalled:
    """Call a tool, without the model. The request is the permission, for the tool with this digest alone."""
    servers, _ = await to_thread.run_sync(_found, call, body.server)
    manifest = await servers.ready(body.server)
    tool = next((tool for tool in manifest.tools if tool.name == body.tool), None)
    if tool is None:
        raise Refusal(404, "not_found", f"the server {body.server} has no tool {body.tool!r}", fix="read it again")
    if _digest(tool) != body.digest:
        raise Refusal(409, "changed", f"{body.tool} has changed since you read it", fix="read it again")
    begin = time.monotonic()
    try:
        result = await servers.call(body.server, body.tool, body.arguments, DecliningHandler())
        is_error, text = result.is_error, "\n".join(map(_text, result.parts))
        if not text and result.structured is not None:
            text = msgspec.json.format(msgspec.json.encode(result.structured)).decode()
    except ToolError as failure:
        is_error, text = True, failure.message
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n… {len(text) - LONGEST:,} more characters"
    return McpCalled(is_error, text, round(time.monotonic() - begin, 3))


class DecliningHandler:
    """Answers the questions of a server during a single call: with no, since they belong to a conversation."""

    def progress(self, text: str) -> None:
        del text

    async def sample(self, request: SamplingRequest) -> str | None:
        del request
        return None

    async def elicit(self, request: Elicitation) -> ElicitationAnswer:
        del request
        return ElicitationAnswer("decline")


def _found(call: Call, name: str) -> tuple[Servers, McpState]:
    with refusing(ConfigError, 404, "not_found"):
        return find_server(call.gateway.host.registry, name)


def _row(servers: Servers, state: McpState) -> Mapping[str, Any]:
    spec, manifest = state.spec, servers.manifest(state.spec.name)
    counts = {kind: len(getattr(manifest, kind)) for kind in ("tools", "resources", "prompts")} if manifest else {}
    return {
        "name": spec.name,
        "status": state.status,
        "reason": state.reason,
        "fix": state.fix,
        "restarts": state.restarts,
        "confinement": state.confinement,
        "target": target(state),
        "scope": spec.scope,
        "file": str(spec.file or ""),
        **counts,
    }


def _text(part: Part) -> str:
    """Return a part of a result for the page; only the facts of one that is not text."""
    if part.kind == "text" or (part.text and not part.data):
        return part.text
    facts = (part.kind, part.mime, part.uri, f"{len(part.data):,} bytes" if part.data else "")
    return f"[{', '.join(fact for fact in facts if fact)}]"


def _digest(tool: McpTool) -> str:
    return hashlib.sha256(msgspec.json.encode(tool, order="deterministic")).hexdigest()
