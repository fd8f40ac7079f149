"""Messages: the SDK's types as ours, and back. Imported on the servers' thread only."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

import mcp_types as types
import msgspec
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from lmagent.core.errors import ToolError
from lmagent.mcp.protocol.gauge import FAULT
from lmagent.mcp.spec import (
    Elicitation,
    ElicitationAnswer,
    McpManifest,
    McpPrompt,
    McpResource,
    McpResult,
    McpTool,
    Part,
    SamplingRequest,
)

T = TypeVar("T")

PAGES = 100
"""Pages of a list that are read; a server that never ends must not hold up its start."""

ROWS = 2000
"""Entries of a list that are read."""

OFFER = 4 << 20
"""Bytes of all that a server may offer; the kept offer is read before each first request."""

DESCRIBED = 20_000
"""Characters of a description or of instructions that are kept; nothing shows more."""

SCHEMA = 200_000
"""Bytes of a tool's schema; a tool with a larger one is listed as one that cannot be used."""


async def read_manifest(client: Client) -> McpManifest:
    """Ask a server for all that it offers. Raises MCPError, ValidationError, and ToolError for too much of it."""
    can, info = client.server_capabilities, client.server_info
    offer = _Offer()
    return McpManifest(
        server=f"{info.name} {info.version}".strip()[:200] if info else "",
        instructions=(client.instructions or "")[:DESCRIBED],
        tools=await offer.all(client.list_tools, "tools", _tool) if can.tools else (),
        prompts=await offer.all(client.list_prompts, "prompts", _prompt) if can.prompts else (),
        resources=(
            *await offer.all(client.list_resources, "resources", _resource),
            *await offer.all(client.list_resource_templates, "resource_templates", _template),
        )
        if can.resources
        else (),
    )


class _Offer:
    """Reads the lists of a server, up to `OFFER` bytes of all of them."""

    def __init__(self) -> None:
        self._size = 0

    async def all(self, fetch: Any, key: str, made: Callable[[Any], T]) -> tuple[T, ...]:
        found: list[T] = []
        cursor: str | None = None
        for _ in range(PAGES):
            try:
                page = await fetch(cursor=cursor, cache_mode="bypass")
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND:
                    break  # a server with resources need not have templates
                raise
            rows = [made(row) for row in getattr(page, key)[:ROWS]]
            self._size += sum(len(msgspec.json.encode(row)) for row in rows)
            if self._size > OFFER:
                raise ToolError(f"its lists of tools, prompts and resources are larger than {OFFER >> 20} MB")
            found += rows
            cursor = page.next_cursor
            if not cursor or len(found) >= ROWS:
                break
        return tuple(found[:ROWS])


def _tool(tool: types.Tool) -> McpTool:
    hints = tool.annotations
    schema: dict[str, Any] = tool.input_schema
    size = len(msgspec.json.encode(schema))
    why = f"its schema has {size:,} bytes, more than {SCHEMA:,}" if size > SCHEMA else str(schema.get(FAULT, ""))
    return McpTool(
        name=tool.name,
        description=(tool.description or "")[:DESCRIBED],
        schema={} if why else schema,
        title=(tool.title or (hints.title if hints else "") or "")[:DESCRIBED],
        fault=why,
    )


def _resource(resource: types.Resource) -> McpResource:
    about, mime = (resource.description or "")[:DESCRIBED], resource.mime_type or ""
    return McpResource(str(resource.uri), resource.name, about, mime)


def _template(template: types.ResourceTemplate) -> McpResource:
    about, mime = (template.description or "")[:DESCRIBED], template.mime_type or ""
    return McpResource(template.uri_template, template.name, about, mime, template=True)


def _prompt(prompt: types.Prompt) -> McpPrompt:
    arguments = tuple((argument.name, bool(argument.required)) for argument in prompt.arguments or ())
    return McpPrompt(prompt.name, (prompt.description or "")[:DESCRIBED], arguments)


def result_of(result: types.CallToolResult) -> McpResult:
    return McpResult(tuple(map(part_of, result.content)), result.structured_content, bool(result.is_error))


def part_of(block: types.ContentBlock) -> Part:
    match block:
        case types.TextContent():
            return Part("text", block.text)
        case types.ImageContent():
            return Part("image", data=_bytes(block.data), mime=block.mime_type)
        case types.AudioContent():
            return Part("audio", data=_bytes(block.data), mime=block.mime_type)
        case types.EmbeddedResource():
            return content_of(block.resource)
        case types.ResourceLink():
            return Part("link", block.title or block.name, mime=block.mime_type or "", uri=str(block.uri))


def content_of(content: types.TextResourceContents | types.BlobResourceContents) -> Part:
    mime, uri = content.mime_type or "", str(content.uri)
    if isinstance(content, types.TextResourceContents):
        return Part("resource", content.text, mime=mime, uri=uri)
    return Part("resource", data=_bytes(content.blob), mime=mime, uri=uri)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except (binascii.Error, ValueError):
        return b""


def sampling_of(params: types.CreateMessageRequestParams) -> SamplingRequest:
    return SamplingRequest(
        system=params.system_prompt or "",
        messages=tuple((message.role, _said(message)) for message in params.messages),
        max_tokens=params.max_tokens,
        stop=tuple(params.stop_sequences or ()),
        temperature=params.temperature,
    )


def _said(message: types.SamplingMessage) -> str:
    blocks = message.content_as_list
    return "\n".join(block.text if isinstance(block, types.TextContent) else f"[{block.type}]" for block in blocks)


def sampled(text: str) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text=text)
    return types.CreateMessageResult(role="assistant", content=content, model="local", stop_reason="endTurn")


def elicitation_of(params: types.ElicitRequestParams) -> Elicitation:
    if isinstance(params, types.ElicitRequestURLParams):
        return Elicitation(params.message, url=params.url)
    return Elicitation(params.message, dict(params.requested_schema))


def elicited(answer: ElicitationAnswer) -> types.ElicitResult:
    return types.ElicitResult(action=answer.action, content=answer.content or None)


def declined(what: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=f"{what} was declined by the user")
