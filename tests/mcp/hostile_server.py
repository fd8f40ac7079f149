"""A server of the tests that misbehaves at one step of the protocol, and is an ordinary one at all others.

python hostile_server.py STEP FAULT, where STEP is the method of a request.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time

STEP, FAULT = sys.argv[1:3]
WHOLE: dict[str, dict] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "serverInfo": {"name": "hostile", "version": "1"},
        "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "logging": {}},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "resources/list": {"resources": [{"uri": "note://1", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
    "logging/setLevel": {},
}
KEY = next(iter(WHOLE[STEP]))
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}


def write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def send(**message: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode())


def answer(number: int, value: bytes) -> None:
    """Answer with a result in which the first key has this value."""
    write(b'{"jsonrpc": "2.0", "id": %d, "result": {"%s": %s}}' % (number, KEY.encode(), value))


def notify(method: str, how_many: int, params: dict) -> None:
    line = json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n"
    for _ in range(how_many // 1000):
        sys.stdout.buffer.write(line * 1000)
    sys.stdout.buffer.flush()


def page(number: int, description: int, tools: int) -> None:
    """Answer with a page of tools, and the mark of a next one."""
    rows = [
        {"name": f"t{number}-{each}", "inputSchema": {"type": "object"}, "description": "d" * description}
        for each in range(tools)
    ]
    send(id=number, result={"tools": rows, "nextCursor": str(time.monotonic())})


def go_on(token: object) -> None:
    """Report progress without end."""
    while True:
        send(method="notifications/progress", params={"progressToken": token, "progress": 1})
        time.sleep(0.01)


def die() -> None:
    print("out of order", file=sys.stderr)
    os._exit(3)


def close() -> None:
    os.close(1)
    time.sleep(3600)


def ask(method: str, params: dict) -> None:
    for each in itertools.count():
        send(id=f"s{each}", method=method, params=params)


INSTEAD = {
    "wrong-id": lambda _: send(id="other", result=WHOLE[STEP]),
    "no-json": lambda number: write(b'{"jsonrpc": "2.0", "id": %d, "result": {' % number),
    "no-utf8": lambda number: answer(number, b'"\xff\xfe"'),
    "no-types": lambda number: answer(number, b"7"),
    "no-result": lambda number: send(id=number, result=7),
    "huge": lambda number: answer(number, b"1" + b"0" * 4000),
    "deep": lambda number: answer(number, b"[" * 100_000 + b"]" * 100_000),
    "wide": lambda number: answer(number, b"[" + b"{}," * 5_000_000 + b"{}]"),
    "many-values": lambda number: send(id=number, result={KEY: [{}] * 60_000}),
    "pages": lambda number: page(number, 10, 1),
    "many-tools": lambda number: page(number, 10, 3000),
    "odd-tools": lambda number: send(
        id=number,
        result={
            "tools": [
                {"name": "long", "inputSchema": {"type": "object"}, "description": "d" * 1_000_000},
                {"name": "deep", "inputSchema": {"type": "object", "x": "d" * 1_000_000}},
                {"name": "untyped", "inputSchema": {"properties": {"a": {}}}},
                {"name": "array", "inputSchema": {"type": "array"}},
                {"name": "text", "inputSchema": "object"},
                {"name": "none"},
            ]
        },
    ),
    "large-pages": lambda number: page(number, 20_000, 50),
}
"""Faults in place of an answer."""

BEFORE = {
    "hang": lambda _: time.sleep(3600),
    "flood": lambda _: write(b"x" * 100_000_000),
    "small": lambda _: notify("notifications/message", 1_000_000, {"level": "info", "data": "x"}),
    "changed": lambda _: notify("notifications/tools/list_changed", 100_000, {}),
    "lines": lambda _: write(b"1\n" * 100_000_000),
    "progress": go_on,
    "huge-progress": lambda token: write(
        b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": %d, "progress": 1%s}}'
        % (token, b"0" * 400)
    ),
    "twice": lambda token: send(id=token, result=WHOLE[STEP]),
    "close": lambda _: close(),
    "die": lambda _: die(),
    "ask": lambda _: ask("elicitation/create", FORM),
    "ping": lambda _: ask("ping", {}),
}
"""Faults before an answer; each gets the token of the progress, which is the request's number."""


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method == STEP and FAULT in INSTEAD:
            INSTEAD[FAULT](number)
            continue
        if method == STEP:
            BEFORE[FAULT](number)
        if number is not None and method in WHOLE:
            send(id=number, result=WHOLE[method])
        elif number is not None and method is not None:
            send(id=number, error={"code": -32601, "message": "no such method"})


main()
