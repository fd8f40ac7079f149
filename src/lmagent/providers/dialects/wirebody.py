"""Wirebody: the part of a chat request that becomes the prompt, for routes that count or render it."""

from __future__ import annotations

from typing import Any

from lmagent.core.model import ModelRequest
from lmagent.providers.encode import wire_messages


def chat_body(request: ModelRequest) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        messages += wire_messages(message, keep_thinking=request.keep_thinking)
    body: dict[str, Any] = {"messages": messages}
    if tools := tool_block(request):
        body["tools"] = tools
    return body


def tool_block(request: ModelRequest) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in request.tools
    ]
