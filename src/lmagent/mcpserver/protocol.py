"""Protocol: the service as a server of the SDK. Only here, in `stdio.py` and in `http.py` the SDK is known.

Connections begin with `initialize` (protocol versions up to 2025-11-25). The later version has no connection that a
session of ours could belong to, and no questions to the client; its clients use the handshake if a server asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from lmagent import __version__
from lmagent.core.tool import Tool
from lmagent.mcpserver.calls import Calls
from lmagent.mcpserver.service import ServedAnswer, ToolService
from lmagent.mcpserver.watch import NoAnswer

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

CALLS = "lmagent.calls"
"""Key of a connection's `Calls` in its state."""

FACTS = "lmagent/facts"
"""Key of the facts beside a result, in its `_meta`."""


def server_of(service: ToolService) -> Server[Any]:
    async def list_tools(_context: ServerRequestContext[Any], _params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in service.tools()])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        client = SdkClient(context)
        answer = await service.answer(params.name, params.arguments or {}, _calls(service, context), client)
        if answer is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:80]!r}; tools/list names them")
        return _result(answer)

    return Server(
        "lmagent",
        version=__version__,
        title="lmagent",
        instructions=service.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: Tool) -> types.Tool:
    # `jobs` counts as reading for our gate, but can end a command.
    reads = tool.effect == "read" and tool.name != "jobs"
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.spec.parameters,
        annotations=types.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=not (reads or tool.name == "mkdir"),
            open_world_hint=tool.effect == "net",
        ),
    )


def _result(answer: ServedAnswer) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=answer.text)],
        structured_content=answer.outcome,
        is_error=answer.is_error,
        _meta={FACTS: answer.facts} if answer.facts else None,
    )


def _calls(service: ToolService, context: ServerRequestContext[Any]) -> Calls:
    """Return the calls of the request's connection. They end with it."""
    # The SDK hands a request no public way to its connection, whose state and whose end we need.
    connection = context.session._connection  # pyright: ignore[reportPrivateUsage]
    if CALLS not in connection.state:
        known = context.session.client_params
        calls = service.calls(known.client_info.name if known is not None else "an MCP client")
        connection.state[CALLS] = calls
        connection.exit_stack.push_async_callback(calls.aclose)
    return connection.state[CALLS]


class SdkClient:
    """The client of a request."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._context = context
        self._sent = 0
        able = context.session.client_capabilities
        self.can_ask = able is not None and able.elicitation is not None and _takes_forms(able.elicitation)

    async def ask(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        try:
            answer = await self._context.session.elicit_form(message, schema, self._context.request_id)
        except (MCPError, ValidationError) as failure:
            raise NoAnswer from failure
        return dict(answer.content or {}) if answer.action == "accept" else None

    async def progress(self, text: str) -> None:
        self._sent += 1
        await self._context.session.report_progress(self._sent, message=text)


def _takes_forms(able: types.ElicitationCapability) -> bool:
    """Whether a client shows forms: one that names no way of asking does, by the protocol."""
    return able.form is not None or able.url is None
