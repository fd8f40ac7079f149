"""Messages: the SDK's types as ours, and back. Imported on the servers' thread only."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import mcp_types as types
from mcp.client import Client
from mcp.shared.exceptions import MCPError

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

PAGES = 100
"""Pages of a list that are read; a server that never ends must not hold up its start."""


async def read_manifest(client: Client) -> McpManifest:
    """Ask a server for all that it offers. Raises MCPError, ValidationError."""
    can, info = client.server_capabilities, client.server_info
    tools = await _all(client.list_tools, "tools") if can.tools else []
    prompts = await _all(client.list_prompts, "prompts") if can.prompts else []
    resources = await _all(client.list_resources, "resources") if can.resources else []
    templates = await _all(client.list_resource_templates, "resource_templates") if can.resources else []
    return McpManifest(
        server=f"{info.name} {info.version}".strip() if info else "",
        instructions=client.instructions or "",
        tools=tuple(map(_tool, tools)),
        resources=(*map(_resource, resources), *map(_template, templates)),
        prompts=tuple(map(_prompt, prompts)),
    )


async def _all(fetch: Any, key: str) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(PAGES):
        try:
            page = await fetch(cursor=cursor, cache_mode="refresh")
        except MCPError as error:
            if error.code == types.METHOD_NOT_FOUND:
                return found  # a server with resources need not have templates
            raise
        found += getattr(page, key)
        cursor = page.next_cursor
        if not cursor:
            break
    return found


def _tool(tool: types.Tool) -> McpTool:
    hints = tool.annotations
    return McpTool(
        name=tool.name,
        description=tool.description or "",
        schema=tool.input_schema,
        title=tool.title or (hints.title if hints else "") or "",
    )


def _resource(resource: types.Resource) -> McpResource:
    return McpResource(str(resource.uri), resource.name, resource.description or "", resource.mime_type or "")


def _template(template: types.ResourceTemplate) -> McpResource:
    about, mime = template.description or "", template.mime_type or ""
    return McpResource(template.uri_template, template.name, about, mime, template=True)


def _prompt(prompt: types.Prompt) -> McpPrompt:
    arguments = tuple((argument.name, bool(argument.required)) for argument in prompt.arguments or ())
    return McpPrompt(prompt.name, prompt.description or "", arguments)


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
