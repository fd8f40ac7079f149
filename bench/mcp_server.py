"""A small MCP server for `bench/mcpservers.py`, JSON-RPC by hand: fifteen tools, and faults on request.

python mcp_server.py NAME [hang | noise]
"""

from __future__ import annotations

import json
import os
import sys
import time

NAME, FAULT = sys.argv[1], "".join(sys.argv[2:])
TEXT = {"type": "object", "properties": {"text": {"type": "string", "description": "the text"}}, "required": ["text"]}
tools = [f"{verb}_{noun}" for verb in ("get", "list", "update", "search") for noun in ("issue", "page", "user")]
tools += ["die", "flood", "change"]


def send(**message: object) -> None:
    """Write a message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def called(name: str, arguments: dict) -> dict:
    """Carry out a call."""
    if name == "die":
        os._exit(3)
    if name == "flood":
        sys.stdout.write("x" * 100_000_000 + "\n")
        sys.stdout.flush()
    if name == "change":
        tools.append(f"new_{len(tools)}")
        send(method="notifications/tools/list_changed")
    return {"content": [{"type": "text", "text": f"{NAME} {name} {arguments.get('text', '')}"}]}


def answer(method: str, params: dict) -> dict:
    """Return the result of a request."""
    if method == "initialize":
        info = {"name": NAME, "version": "1"}
        return {"protocolVersion": "2025-06-18", "serverInfo": info, "capabilities": {"tools": {"listChanged": True}}}
    if method == "tools/list":
        about = "Work with the text of {}. It may take a while, and it says so."
        return {"tools": [{"name": tool, "description": about.format(tool), "inputSchema": TEXT} for tool in tools]}
    return called(params["name"], params.get("arguments") or {}) if method == "tools/call" else {}


if FAULT == "hang":
    time.sleep(3600)
if FAULT == "noise":
    print("Welcome!\n{not json}\n\x1b[31mred\x1b[0m")
for line in sys.stdin:
    request = json.loads(line)
    if request.get("id") is not None:
        if FAULT == "noise":
            print("still talking")
        send(id=request["id"], result=answer(request["method"], request.get("params") or {}))
