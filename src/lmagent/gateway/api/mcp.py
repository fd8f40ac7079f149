"""MCP: the servers with their states, offers and logs; calls, looks at resources, logins and restarts by the user."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from lmagent.app.commands.mcp import SWITCHED_OFF, facts_of, find_server, login_spec, problem_lines
from lmagent.app.host import Host
from lmagent.app.mcpservers import prompt_commands
from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.messages import ToolCall
from lmagent.core.tool import Answer, Ask, Question, ToolContext, ToolOutput
from lmagent.engine.toolbox import Invocation
from lmagent.gateway.http.errors import Refusal, refusing
from lmagent.gateway.http.route import Call, Routes
from lmagent.gateway.logins import McpLogin
from lmagent.mcp.pins import Pins, pin_of
from lmagent.mcp.spec import McpManifest, McpPrompt, McpResource, McpState, Part, Servers, Status
from lmagent.modelserver.http.listening import is_loopback
from lmagent.policy.gate import Request, judge
from lmagent.tools.pictures import picture_of

ROUTES = Routes()

CHANGED = "changed"  # the id of the question about a changed tool

Name = Annotated[str, Meta(min_length=1, max_length=64)]


class ServerQuery(Struct, frozen=True):
    """The name of a server."""

    server: Name


class McpServerRow(Struct, frozen=True, kw_only=True):
    """A server: its state, the reason for it and what to do, what it may do (`confinement`), and numbers of its offer.

    `target` is its command or its address. The numbers are None until it has been started once. `login` is the login
    that a user began here, until it is over and the server runs.
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
    login: McpLogin | None = None


class McpServerList(Struct, frozen=True):
    """The servers by name, and the entries and files of the configuration that cannot be used."""

    servers: tuple[McpServerRow, ...]
    problems: tuple[str, ...]


class McpToolRow(Struct, frozen=True):
    """A tool with the JSON schema of its arguments; `digest` covers all that the server says about it.

    `fault` says why the schema allows no call. A `changed` tool is another one than the user allowed earlier.
    """

    name: str
    title: str
    description: str
    parameters: dict[str, Any]
    digest: str
    fault: str = ""
    changed: bool = False


class McpPromptRow(McpPrompt, frozen=True):
    """A prompt; `command` is its slash command, without the slash, and empty while the server is not used."""

    command: str = ""


class McpServerDetails(McpServerRow, frozen=True, kw_only=True):
    """A server with all that it offers; `calls_itself` is its own name and version."""

    calls_itself: str = ""
    instructions: str = ""
    offered_tools: tuple[McpToolRow, ...] = ()
    offered_resources: tuple[McpResource, ...] = ()
    offered_prompts: tuple[McpPromptRow, ...] = ()


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


class ResourceQuery(ServerQuery, frozen=True):
    """The address of a resource of a server."""

    uri: Annotated[str, Meta(min_length=1, max_length=4000)]


class McpContent(Struct, frozen=True):
    """A part of a resource: a text, cut after `TEXT` characters in all; an image in Base64; or a file that is not sent.

    `size` is that of the whole, in characters or bytes.
    """

    kind: Literal["text", "image", "file"]
    mime: str
    size: int
    text: str = ""
    image: str = ""


class McpContents(Struct, frozen=True):
    """What a server has under an address. All of it is data from the server."""

    parts: tuple[McpContent, ...]


class McpLoginAddress(ServerQuery, frozen=True, forbid_unknown_fields=True):
    """The address to which the browser was sent at the end of a login, on another machine."""

    address: Annotated[str, Meta(min_length=1, max_length=16_000)]


class McpLog(Struct, frozen=True):
    """The last lines of a server's log."""

    lines: tuple[str, ...]


@ROUTES.get("/api/mcp", "MCP servers with their states")
def list_mcp(call: Call) -> McpServerList:
    registry = call.gateway.host.registry
    servers = registry.mcp
    rows = tuple(_row(call, servers, state) for state in servers.states()) if servers is not None else ()
    off = () if registry.settings.enable_mcp else (SWITCHED_OFF,)
    return McpServerList(rows, (*off, *problem_lines(registry)))


@ROUTES.get("/api/mcp/server", "An MCP server with its tools, resources and prompts")
def show_mcp(call: Call, query: ServerQuery) -> McpServerDetails:
    servers, state = _found(call, query.server)
    manifest, row = servers.manifest(query.server), asdict(_row(call, servers, state))
    if manifest is None:
        return McpServerDetails(**row)
    return McpServerDetails(
        **row,
        calls_itself=manifest.server,
        instructions=manifest.instructions,
        offered_tools=_tool_rows(call.gateway.host, state, manifest),
        offered_resources=manifest.resources,
        offered_prompts=_prompt_rows(call.gateway.host, query.server, manifest),
    )


def _tool_rows(host: Host, state: McpState, manifest: McpManifest) -> tuple[McpToolRow, ...]:
    row = host.registry.catalogue.row(state.spec.name) if host.registry.catalogue is not None else None
    named = {found.name: found.tool for found in (row.tools if row is not None else ()) if found.tool is not None}
    changed = Pins(host.settings.agent_data_dir, host.workspace).changed(state.spec, named)
    anew = {named[name].name for name in changed}
    return tuple(
        McpToolRow(
            *(tool.name, tool.title, tool.description, tool.schema, pin_of(tool).sha256),
            tool.fault,
            tool.name in anew,
        )
        for tool in manifest.tools
    )


def _prompt_rows(host: Host, server: str, manifest: McpManifest) -> tuple[McpPromptRow, ...]:
    row = host.registry.catalogue.row(server) if host.registry.catalogue is not None else None
    commands = prompt_commands(row) if row is not None else {}
    return tuple(McpPromptRow(**asdict(each), command=commands.get(each.name, "")) for each in manifest.prompts)


@ROUTES.get("/api/mcp/log", "The log of an MCP server")
def show_mcp_log(call: Call, query: ServerQuery) -> McpLog:
    servers, _ = _found(call, query.server)
    return McpLog(servers.log(query.server))


@ROUTES.get("/api/mcp/resource", "Read a resource of an MCP server")
async def read_mcp(call: Call, query: ResourceQuery) -> McpContents:
    """Read a resource for the user to look at. The request is the permission; deny rules for `mcp_resource` hold."""
    servers, _ = await to_thread.run_sync(_found, call, query.server)
    if (tool := call.gateway.host.registry.tools.get("mcp_resource")) is not None:
        _check_not_denied(call.gateway.host, tool.name, Request(tool.name, tool.effect, (), None))
    return McpContents(tuple(_contents(await servers.read(query.server, query.uri))))


TEXT = 100_000  # characters of a resource that are shown
IMAGES = 5_000_000  # bytes of its images


def _contents(parts: Iterable[Part]) -> Iterable[McpContent]:
    text, images = TEXT, IMAGES
    for part in parts:
        picture = picture_of(part.data) if part.data and len(part.data) <= images else None
        if picture is not None and not picture.is_too_large:
            images -= len(part.data)
            yield McpContent("image", picture.media_type, len(part.data), image=b64encode(part.data).decode())
        elif part.data:
            yield McpContent("file", part.mime, len(part.data))
        else:
            yield McpContent("text", part.mime, len(part.text), part.text[:text])
            text -= min(text, len(part.text))


@ROUTES.post("/api/mcp/restart", "Start an MCP server anew", place="machine")
async def restart_mcp(call: Call, body: ServerQuery) -> McpServerRow:
    servers, state = await to_thread.run_sync(_found, call, body.server)
    if state.status in ("untrusted", "disabled"):
        raise Refusal(409, state.status, state.reason or f"{body.server} is {state.status}", fix=state.fix)
    await servers.restart(body.server)
    return _row(call, *await to_thread.run_sync(_found, call, body.server))


@ROUTES.post("/api/mcp/login", "Begin a login to an MCP server", place="machine")
async def log_in_mcp(call: Call, body: ServerQuery) -> McpLogin:
    """Begin a login, or return the one that runs. `GET /api/mcp` shows how it continues; then the server restarts."""
    servers, _ = await to_thread.run_sync(_found, call, body.server)
    with refusing(ConfigError, 409, "no_login"):
        spec = await to_thread.run_sync(login_spec, call.gateway.host.registry, body.server)
    is_here = is_loopback(call.request.url.hostname or "")
    return call.gateway.logins.start(servers, spec, is_here=is_here)


@ROUTES.post(
    "/api/mcp/login/address", "Give a login to an MCP server the address at which the browser ended", place="machine"
)
async def end_mcp_login(call: Call, body: McpLoginAddress) -> McpLogin:
    if (known := call.gateway.logins.give(body.server, body.address)) is None:
        raise Refusal(409, "no_login", f"no login to {body.server} waits", fix="begin it again")
    return known


@ROUTES.delete("/api/mcp/login", "Give up a login to an MCP server", place="machine")
async def stop_mcp_login(call: Call, query: ServerQuery) -> McpServerRow:
    servers, state = await to_thread.run_sync(_found, call, query.server)
    call.gateway.logins.stop(query.server)
    return _row(call, servers, state)


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
    _check_not_denied(host, tool.name, Request(tool.name, tool.effect, (), None, invocation.outside))
    return await tool.run(invocation.arguments, ToolContext("", "call", host.workspace, {}, lambda _: None, ask=ask))


def _check_not_denied(host: Host, name: str, request: Request) -> None:
    verdict = judge(request, host.settings.permission_mode, host.rules)
    if verdict.decision == "deny":
        raise Refusal(403, "denied", f"{name} is denied: {verdict.reason}", fix="change the rule that denies it")


def _found(call: Call, name: str) -> tuple[Servers, McpState]:
    with refusing(ConfigError, 404, "not_found"):
        return find_server(call.gateway.host.registry, name)


def _row(call: Call, servers: Servers, state: McpState) -> McpServerRow:
    manifest = servers.manifest(state.spec.name)
    kinds = ("tools", "resources", "prompts") if manifest else ()
    counts: dict[str, Any] = {kind: len(getattr(manifest, kind)) for kind in kinds}
    return McpServerRow(**facts_of(state), login=call.gateway.logins.of(state.spec.name), **counts)
