"""An MCP server without the SDK, for tests of what users see: `configure` writes it into a folder, with its entry.

Its tool `echo` is described by the file `about.txt` next to it, so that a test can change it; for the message "ask" it
asks the user what to say. `more.json` there, if it
exists, has more of what it offers: `tools`, `resources`, `templates`, and the `contents` of resources.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

NAME = "tinymcp.py"
ABOUT = "about.txt"
MORE = "more.json"

SCHEMA = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "what to say"},
        "times": {"type": "integer"},
        "tone": {"enum": ["soft", "loud"]},
    },
    "required": ["message"],
}


def entry() -> dict[str, Any]:
    """Return the server's entry: a program that needs to read its interpreter."""
    return {"command": os.path.realpath(sys.executable), "args": [NAME], "paths": [sys.base_prefix]}


def put(workspace: Path, about: str = "Say it again.") -> None:
    """Put the server's program into a workspace."""
    (workspace / NAME).write_text(Path(__file__).read_text())
    (workspace / ABOUT).write_text(about)


def configure(workspace: Path, home: Path, name: str = "tiny") -> None:
    """Put the server's program into a workspace, and its entry into the user's file."""
    put(workspace)
    file = home / ".config" / "lmagent" / "mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": {name: entry()}}))


def configure_folders(folder: Path) -> None:
    """Do the same in the workspace and home of a test's folder, before its gateway starts."""
    for name in ("workspace", "home"):
        (folder / name).mkdir(exist_ok=True)
    configure(folder / "workspace", folder / "home")


def more(kind: str) -> list[dict[str, Any]]:
    return json.loads(Path(MORE).read_text()).get(kind, []) if Path(MORE).exists() else []


def content(uri: str) -> dict[str, Any]:
    usual = {"uri": uri, "mimeType": "text/plain", "text": f"Buy milk, says {uri}."}
    return {each["uri"]: each for each in more("contents")}.get(uri, usual)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "tiny", "version": "1.0"}
        offered: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        return {"protocolVersion": "2025-06-18", "serverInfo": info, "capabilities": offered}
    if method == "tools/list":
        return {
            "tools": [{"name": "echo", "description": Path(ABOUT).read_text(), "inputSchema": SCHEMA}, *more("tools")]
        }
    if method == "resources/list":
        return {
            "resources": [
                {"uri": "notes://today", "name": "today", "description": "Today's notes."},
                *more("resources"),
            ]
        }
    if method == "resources/templates/list":
        return {"resourceTemplates": more("templates")}
    if method == "resources/read":
        return {"contents": [content(params["uri"])]}
    if method == "prompts/list":
        return {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]}
    if method == "prompts/get":
        text = f"Greet {params['arguments']['who']}."
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    if method == "tools/call":
        given = params["arguments"]
        if given["message"] == "ask":
            given = asked()
        print(f"echoing {given['message']}", file=sys.stderr, flush=True)
        text = " ".join([given["message"]] * given.get("times", 1))
        said = {"type": "text", "text": text.upper() if given.get("tone") == "loud" else text}
        return {"content": [said], "isError": given["message"] == "fail"}
    return {} if method == "ping" else None


def asked() -> dict[str, Any]:
    """Ask the user for the message, and return their answer."""
    schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    params = {"message": "What shall I say?", "requestedSchema": schema}
    print(json.dumps({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params}), flush=True)
    answers = (json.loads(line) for line in sys.stdin)
    return next(each for each in answers if each.get("id") == "q")["result"]["content"]


def main() -> None:
    print("tiny is here", file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        failure = {"error": {"code": -32601, "message": "no such method"}}
        body = failure if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
