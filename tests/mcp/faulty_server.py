"""A server of the tests, without the SDK: JSON-RPC by hand on stdin and stdout, with faults on request.

python faulty_server.py [hang | noise | flood | flood-stderr | crash | changing | bad-schema]
"""

from __future__ import annotations

import json
import os
import sys
import time

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
TOOLS = ("echo", "die", "slow", "ask", "think", "env", "roots", "flood", "change", "progress", "touch")
tools: list[str] = list(TOOLS)
requests = 0


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(method: str, params: dict) -> dict:
    """Send a request to the client, and return its answer."""
    global requests
    requests += 1
    send(id=f"s{requests}", method=method, params=params)
    for line in sys.stdin:
        answer = json.loads(line)
        if answer.get("id") == f"s{requests}":
            return answer.get("result") or answer.get("error")
    raise SystemExit


def text(content: object) -> dict:
    return {"content": [{"type": "text", "text": content if isinstance(content, str) else json.dumps(content)}]}


def call(number: object, name: str, arguments: dict, meta: dict) -> dict:
    if name == "die":
        print("out of order", file=sys.stderr)
        os._exit(3)
    if name == "flood":
        sys.stdout.write("x" * 100_000_000 + "\n")
        sys.stdout.flush()
    if name == "slow":
        time.sleep(arguments.get("seconds", 60))
    if name == "ask":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        return text(ask("elicitation/create", {"message": "Who?", "requestedSchema": schema}))
    if name == "think":
        said = [{"role": "user", "content": {"type": "text", "text": "2+2?"}}]
        return text(ask("sampling/createMessage", {"messages": said, "maxTokens": 10}))
    if name == "roots":
        return text(ask("roots/list", {}))
    if name == "env":
        return text(dict(os.environ))
    if name == "touch":
        with open(arguments["path"], "a") as file:
            file.write("here\n")
    if name == "change":
        tools.append(f"tool{len(tools)}")
        send(method="notifications/tools/list_changed")
    if name == "progress":
        for step in (1, 2, 3):
            send(
                method="notifications/progress",
                params={
                    "progressToken": meta["progressToken"],
                    "progress": step,
                    "total": 3,
                    "message": f"step {step}",
                },
            )
            time.sleep(0.1)
    return text(arguments.get("text", "done"))


def listed(cursor: object) -> dict:
    """Return a page of the list of tools: two pages."""
    kind = "no schema" if FAULT == "bad-schema" else {"type": "object"}
    half = 4 if cursor else 0
    page = tools[4:] if cursor else tools[:4]
    found = {"tools": [{"name": name, "inputSchema": kind, "description": f"{name}{half}"} for name in page]}
    return found if cursor else {**found, "nextCursor": "rest"}


def misbehave() -> None:
    if FAULT == "hang":
        time.sleep(3600)
    if FAULT == "crash":
        print("cannot find its key", file=sys.stderr)
        sys.exit(7)
    if FAULT == "noise":
        print("Welcome!\n{not json}\n[1, 2]\n\x1b[31mred\x1b[0m")
    if FAULT == "flood-stderr":
        while True:
            sys.stderr.write("y" * 9999 + "\n")


def main() -> None:
    misbehave()
    for line in sys.stdin:
        message = json.loads(line)
        method, params, number = message.get("method"), message.get("params") or {}, message.get("id")
        if number is None:
            if method == "notifications/cancelled":
                print(f"cancelled {params.get('requestId')}", file=sys.stderr, flush=True)
            continue
        if FAULT == "noise":
            print("still talking")
        if method == "initialize":
            info = {"name": "faulty", "version": "1"}
            offered = {"tools": {"listChanged": True}, "logging": {}}
            send(
                id=number,
                result={
                    "protocolVersion": "2025-06-18",
                    "serverInfo": info,
                    "capabilities": offered,
                    "instructions": "x",
                },
            )
        elif method == "tools/list":
            send(id=number, result=listed(params.get("cursor")))
        elif method == "tools/call":
            result = call(number, params["name"], params.get("arguments") or {}, params.get("_meta") or {})
            send(id=number, result=result)
        else:
            send(id=number, error={"code": -32601, "message": "no such method"})


main()
