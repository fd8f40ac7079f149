"""MCP: the servers with their states, tools and logs; one call by the user, a restart."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct, field

from lmagent.app.commands.mcp import facts_of, find_server, problem_lines
from lmagent.app.host import Host
from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.messages import ToolCall
from lmagent.core.tool import Answer, Ask, Question, ToolContext, ToolOutput
from lmagent.engine.toolbox import Invocation
from lmagent.gateway.http.errors import Refusal, refusing
from lmagent.gateway.http.route import Call, Routes
from lmagent.mcp.pins import pin_of
from lmagent.mcp.spec import McpPrompt, McpResource, McpState, Servers, Status
from lmagent.policy.gate import Request, judge

ROUTES = Routes()

CHANGED = "changed"  # the id of the question about a changed tool

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
    """A call of a tool. `digest` is the tool's as the user has read it: if it has changed since, nothing is called.

    If it differs from the tool that the user allowed earlier, it is called only with `confirmed`.
    """

    server: Name
    tool: Annotated[str, Meta(min_length=1, max_length=300)]
    digest: Annotated[str, Meta(max_length=64)]
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    confirmed: bool = False


class McpCalled(Struct, frozen=True):
    """The result of a call, as the model would get it."""

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
            McpToolRow(tool.name, tool.title, tool.description, tool.schema, pin_of(tool).sha256)
            for tool in manifest.tools
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
    """Call a tool, without the model; the text is what the model would get. The request is the permission, for the
    tool with this digest alone: deny rules hold, and the server's questions are declined."""
    servers, _ = await to_thread.run_sync(_found, call, body.server)
    manifest = await servers.ready(body.server)
    tool = next((tool for tool in manifest.tools if tool.name == body.tool), None)
    if tool is None or pin_of(tool).sha256 != body.digest:
        raise Refusal(409, "stale", f"{body.tool} has changed since you read it", fix="read it again")
    changes: list[Question] = []

    async def answer(question: Question) -> Answer:
        is_change = question.id == CHANGED
        changes.extend([question] if is_change else ())
        return Answer(is_change and body.confirmed)

    begin = time.monotonic()
    try:
        invocation = call.gateway.host.toolbox.resolve(_as_call(body))
        is_error, text = False, (await _run(call.gateway.host, invocation, answer)).content
    except ToolError as failure:
        if changes and not body.confirmed:
            raise Refusal(409, "changed", changes[0].summary, fix=changes[0].preview) from None
        is_error, text = True, failure.message
    return McpCalled(is_error, text, round(time.monotonic() - begin, 3))


def _as_call(body: McpCall) -> ToolCall:
    name = f"mcp__{body.server}__{body.tool}"  # as other agents name it, which is unique
    return ToolCall("call", name, msgspec.json.encode(body.arguments).decode())


async def _run(host: Host, invocation: Invocation, ask: Ask) -> ToolOutput:
    """Run a call that the user made, unless a rule denies it."""
    tool = invocation.tool
    verdict = judge(
        Request(tool.name, tool.effect, (), None, invocation.outside), host.settings.permission_mode, host.rules
    )
    if verdict.decision == "deny":
        raise Refusal(403, "denied", f"{tool.name} is denied: {verdict.reason}", fix="change the rule that denies it")
    return await tool.run(invocation.arguments, ToolContext("", "call", host.workspace, {}, lambda _: None, ask=ask))


def _found(call: Call, name: str) -> tuple[Servers, McpState]:
    with refusing(ConfigError, 404, "not_found"):
        return find_server(call.gateway.host.registry, name)


def _row(servers: Servers, state: McpState) -> Mapping[str, Any]:
    manifest = servers.manifest(state.spec.name)
    counts = {kind: len(getattr(manifest, kind)) for kind in ("tools", "resources", "prompts")} if manifest else {}
    return {**facts_of(state), **counts}
