"""Serve: the scripted server as a program (`python -m lmagent.testing`)."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from lmagent.core.decoding import decode_json
from lmagent.testing import quirks
from lmagent.testing.loopback import Received
from lmagent.testing.prefix import PrefixMeter
from lmagent.testing.script import Behaviour, Counts, Reply, Script, ScriptedCall, status
from lmagent.testing.server import ScriptedServer


def load_script(data: bytes) -> list[Behaviour]:
    """Read a script from JSON: a list of objects, one a reply.

    A reply has any of `text`, `thinking`, `calls` (objects with `name`, `arguments` as object or text, `id`), `finish`,
    `usage` (`prompt`, `completion`, `cached`), the other fields of `Reply`, and `quirks` (names from
    `lmagent.testing.quirks`). An object with `status` is an HTTP error with `body` and `headers`.

    Raises ValueError if it is not JSON of that shape.
    """
    try:
        items = decode_json(data, list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise ValueError(f"a script is a JSON list of objects: {error}") from error
    return [_load(item) for item in items]


def _load(item: Mapping[str, Any]) -> Behaviour:
    fields = dict(item)
    if "status" in fields:
        return status(int(fields["status"]), fields.get("body"), fields.get("headers"))
    names: list[str] = fields.pop("quirks", [])
    known = {**quirks.HARMLESS, **quirks.LOSSY}
    calls = tuple(_load_call(wanted) for wanted in fields.pop("calls", []))
    usage = fields.pop("usage", None)
    try:
        reply = Reply(calls=calls, usage=Counts(**usage) if usage else None, **fields)
        for name in names:
            reply = known[name](reply)
    except (TypeError, KeyError) as error:
        raise ValueError(f"a reply in the script is not understood: {error}") from error
    return reply


def _load_call(wanted: Mapping[str, Any]) -> ScriptedCall:
    arguments = wanted.get("arguments", {})
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return ScriptedCall(wanted["name"], text, wanted.get("id", ""))


def request_log(file: BinaryIO, meter: Callable[[], PrefixMeter]) -> Callable[[Received], None]:
    """Return a callback that writes one JSON line per finished request: times, sizes and the prefix account."""

    def write(received: Received) -> None:
        fields = ("method", "path", "connection", "t_head", "t_body", "t_end", "hung_up")
        row: dict[str, Any] = {name: getattr(received, name) for name in fields}
        row["body_bytes"] = len(received.raw)
        if received.messages:
            rows, encode = meter().rows, msgspec.json.encode
            body = received.fields
            system = [message for message in received.messages if message.get("role") == "system"]
            row |= {"chat": True, "messages": len(received.messages)}
            row["tools"] = len(body.get("tools") or ())
            row["system_bytes"] = sum(len(str(message.get("content")).encode()) for message in system)
            row["tools_bytes"] = len(encode(body.get("tools") or []))
            row["prefix"] = rows[-1] if rows else None
        file.write(msgspec.json.encode(row) + b"\n")
        file.flush()

    return write


@contextmanager
def open_server(
    script: Script, *, model: str = "test-model", window: int = 262_144, log: Path | None = None, **settings: Any
) -> Generator[ScriptedServer]:
    """Run a server with the script, print its port, and append a line for each request to the log.

    Args:
        script: see `ScriptedServer`.
        model: name of the model.
        window: tokens of a prompt that are served; larger ones are refused. The list of models states it as vLLM does.
        log: the file; None keeps no log.
        settings: further arguments of `ScriptedServer`.
    """
    listed = {"id": model, "object": "model", "owned_by": "test", "max_model_len": window}
    routes = {"/v1/models": {"object": "list", "data": [listed]}}
    with (log or Path("/dev/null")).open("ab", buffering=0) as file:
        finished = request_log(file, lambda: server.prefix)
        server = ScriptedServer(script, window=window, models=(model,), routes=routes, finished=finished, **settings)
        with server:
            sys.stdout.write(f"{server.port}\n")
            sys.stdout.flush()
            yield server


def main(argv: list[str] | None = None) -> None:
    """Run the server until SIGTERM, SIGINT, or the end of standard input with `--until-eof`."""
    parser = argparse.ArgumentParser(prog="python -m lmagent.testing", description="A scripted model server.")
    parser.add_argument("--script", type=Path, required=True, help="JSON file with the replies")
    parser.add_argument("--port", type=int, default=0, help="0 (default) takes a free port")
    parser.add_argument("--log", type=Path, help="one JSON line per request is appended here")
    parser.add_argument("--strict", action="store_true", help="refuse everything that the pickiest servers refuse")
    parser.add_argument("--window", type=int, default=262_144, help="refuse prompts of more tokens (bytes / 4)")
    parser.add_argument("--model", default="test-model", help="name of the model")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")
    given = parser.parse_args(argv)
    settings = {"model": given.model, "window": given.window, "log": given.log}
    with open_server(load_script(given.script.read_bytes()), strict=given.strict, port=given.port, **settings):
        _wait(until_eof=given.until_eof)


def _wait(*, until_eof: bool) -> None:
    if until_eof:
        sys.stdin.buffer.read()
        return
    try:
        # Not SIGINT's own handler: a shell has its background jobs ignore that signal.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.pause()
    except KeyboardInterrupt:
        return
