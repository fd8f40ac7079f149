"""Tools: a server's tool as a `Tool` of the engine, and our own tools about servers: `describe` and `mcp_resource`.

What only a call needs is imported by the call: the first request of a session waits for none of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.tool import Effect, Tool, ToolContext, ToolOutput
from lmagent.mcp.catalogue import Catalogue, Named, ServerRow, ServerTool, rule_name
from lmagent.mcp.listing import first_sentence, line_of
from lmagent.mcp.schemas import simplified
from lmagent.mcp.spec import McpManifest, McpTool, Servers, ServerSpec
from lmagent.tools.sanitize import one_line, printable, visible

if TYPE_CHECKING:
    from lmagent.mcp.consent import UserModel

T = TypeVar("T")

DESCRIBED = 4000
"""Characters of a description that `describe` shows."""

LISTED = 200
"""Resources that are listed."""


class Describe(Struct, frozen=True):
    """Arguments of describe."""

    name: Annotated[str, Meta(description="a tool or a server")]


class McpResourceCall(Struct, frozen=True):
    """Arguments of mcp_resource."""

    server: str
    uri: Annotated[str, Meta(description="without it, the resources are listed")] = ""


class ServerTools:
    """The tools of servers, which the toolbox finds by their names, and our own tools about servers.

    Args:
        model: returns the user's model, beside the conversation; None if no model is at hand.
    """

    def __init__(
        self, servers: Servers, catalogue: Catalogue, data: Path, workspace: Path, model: Callable[[], UserModel | None]
    ) -> None:
        self._servers = servers
        self._catalogue = catalogue
        self._data = data
        self._workspace = workspace
        self._model = model

    def __iter__(self) -> Iterator[Named]:
        return iter(self._catalogue.named())

    def get(self, name: str) -> Tool | None:
        """Return the tool of a name. One that the server does not have answers a call with the reason."""
        found = self._catalogue.find(name)
        if found is None:
            return None
        spec, known = self._spec(found.server), found.tool

        async def run(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
            return await self._call(found, spec, arguments, context)

        return Tool(
            name=found.name,
            description=first_sentence(known.description) if known is not None else "",
            arguments=simplified(known.schema) if known is not None else {"type": "object", "properties": {}},
            effect=effect_of(spec),
            run=run,
            deferred=True,
            aliases=(rule_name(found),),
            summary=lambda arguments: one_line(f"{found.name} {_json(arguments)}"),
            preview=lambda arguments, _: self._preview(found, arguments),
        )

    def _spec(self, server: str) -> ServerSpec:
        return next(state.spec for state in self._servers.states() if state.spec.name == server)

    def _preview(self, found: ServerTool, arguments: dict[str, Any]) -> str:
        row = self._catalogue.row(found.server)
        if found.tool is None and row is not None and row.state.status == "ready":
            raise ToolError(self._gone(found, row.manifest))
        shown = visible(msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode())
        return f"{one_line(found.called, 100)} of the MCP server {one_line(found.server, 60)}, with\n{shown}"

    async def _call(
        self, found: ServerTool, spec: ServerSpec, arguments: dict[str, Any], context: ToolContext
    ) -> ToolOutput:
        from lmagent.mcp.consent import Consent
        from lmagent.mcp.pins import Pins
        from lmagent.mcp.results import output_of

        manifest = await _answer(found.server, self._servers.ready(found.server))
        tool = _tool_in(manifest, found)
        if tool is None or tool.fault:
            raise ToolError(self._gone(found, manifest))
        await Pins(self._data, self._workspace).check(spec, found.name, found.tool, tool, context)
        consent = Consent(found.server, context, self._model())
        call = self._servers.call(found.server, tool.name, arguments, consent)
        result = await _answer(found.server, call)
        try:
            # In a thread: making a text of megabytes safe takes seconds, and files are written.
            output = await to_thread.run_sync(output_of, found.server, result, context.workspace)
        except ToolError as failure:
            failure.data.update(consent.spent)
            raise
        return replace(output, data={**output.data, **consent.spent})

    def _gone(self, found: ServerTool, manifest: McpManifest | None) -> str:
        self._catalogue.forget()
        row = self._catalogue.row(found.server)
        names = [each.name for each in row.tools] if row is not None else []
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        called = one_line(found.called, 100)
        return f"The server {found.server} has no tool {called}. Its tools: {shown or 'none'}. Nothing was run."

    def _unknown(self, what: str, name: str) -> ToolError:
        known = ", ".join(row.part for row in self._catalogue.rows)
        return ToolError(f"No MCP {what} is named {one_line(name)!r}. The servers: {known or 'none'}.")

    def describe(self) -> Tool:
        """Return the tool that shows a tool's schema, or a server's list."""

        async def run(arguments: Describe, _: ToolContext) -> ToolOutput:
            name = arguments.name.strip()
            if (row := self._catalogue.row(name)) is not None:
                manifest = row.manifest or await _answer(row.name, self._servers.ready(row.name))
                self._catalogue.forget()
                return ToolOutput(_outside(row.name, _server_text(self._catalogue.row(name) or row, manifest)))
            found = self._catalogue.find(name)
            if found is None:
                raise self._unknown("tool or server", name)
            if found.tool is None:
                manifest = await _answer(found.server, self._servers.ready(found.server))
                self._catalogue.forget()
                found = self._catalogue.find(name) or found
                if found.tool is None:
                    raise ToolError(self._gone(found, manifest))
            return ToolOutput(_outside(found.server, _tool_text(found.name, found.tool)))

        return Tool("describe", "Explain an MCP tool or server.", Describe, "read", run, deferred=True)

    def resource(self) -> Tool:
        """Return the tool that lists and reads resources."""

        async def run(arguments: McpResourceCall, context: ToolContext) -> ToolOutput:
            row = self._catalogue.row(arguments.server)
            if row is None:
                raise self._unknown("server", arguments.server)
            if not arguments.uri:
                manifest = await _answer(row.name, self._servers.ready(row.name))
                return ToolOutput(_outside(row.name, _resources_text(manifest)))
            parts = await _answer(row.name, self._servers.read(row.name, arguments.uri))
            from lmagent.mcp.results import text_of

            return ToolOutput(_outside(row.name, text_of(row.name, parts, context.workspace) or "(empty)"))

        return Tool(
            "mcp_resource",
            "List the resources of an MCP server, or read one.",
            McpResourceCall,
            "net",
            run,
            deferred=True,
            summary=lambda arguments: one_line(f"mcp_resource {arguments.server} {arguments.uri}".rstrip()),
        )


async def _answer(server: str, asked: Awaitable[T]) -> T:
    """Return a server's answer. Its errors quote it, so they are data from outside like its results."""
    try:
        return await asked
    except ToolError as failure:
        raise ToolError(_outside(server, printable(failure.message)), data=failure.data) from failure


def _outside(server: str, text: str) -> str:
    from lmagent.mcp.results import outside  # no first request needs it

    return outside(server, text)


def effect_of(spec: ServerSpec) -> Effect:
    """Return the effect of a server's tools: a program in the sandbox without network acts like a command."""
    confined = bool(spec.command) and not spec.needs.unconfined and not spec.needs.network
    return "exec" if confined else "net"


def _tool_in(manifest: McpManifest, found: ServerTool) -> McpTool | None:
    tools = {tool.name: tool for tool in manifest.tools}
    if found.tool is not None or found.called in tools:
        return tools.get(found.called)
    return next((tool for name, tool in sorted(tools.items()) if name.lower() == found.called.lower()), None)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _tool_text(name: str, tool: McpTool) -> str:
    about = printable(tool.description or tool.title)[:DESCRIBED].strip()
    return "\n".join(filter(None, (name, about, f"arguments: {printable(_json(simplified(tool.schema)))}")))


def _server_text(row: ServerRow, manifest: McpManifest) -> str:
    """Return a server's list: its tools, and how many resources it has."""
    lines = [printable(manifest.instructions)[:DESCRIBED].strip()] if manifest.instructions else []
    lines += [line_of(found) for found in row.tools] or ["It has no tools."]
    if manifest.resources:
        lines.append(f"{len(manifest.resources)} resources: mcp_resource lists them.")
    return "\n".join(lines)


def _resources_text(manifest: McpManifest) -> str:
    rows = [
        one_line(
            " ".join(filter(None, (each.uri, "(a template)" if each.template else "", each.name, each.description))),
            200,
        )
        for each in manifest.resources[:LISTED]
    ]
    more = len(manifest.resources) - LISTED
    return "\n".join((*rows, *([f"[… {more} more]"] if more > 0 else []))) or "It has no resources."
