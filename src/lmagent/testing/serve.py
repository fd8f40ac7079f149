"""Serve: the scripted server as a program (`python -m lmagent.testing`)."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from lmagent.core.decoding import decode_json
from lmagent.testing import quirks
from lmagent.testing.loopback import Received
from lmagent.testing.prefix import PrefixMeter
from lmagent.testing.script import Behaviour, Counts, Reply, Script, ScriptedCall, say, status, tool
from lmagent.testing.server import ScriptedServer

READ_TOOLS = ("read", "read_file")


def bench_script(steps: int, final: str = "Done: all notes were read.", *, chunk: int = 16) -> Script:
    """Return the benchmark's script: `steps` replies that each read `notes/note_iii.txt`, then `final`.

    It keeps no state: the next step follows from the largest call id in the request, so any number of sessions can
    run one after another, and a compaction does not confuse it.

    Args:
        steps: tool calls before the final answer.
        final: the final answer.
        chunk: characters of it in one delta.
    """

    def reply(received: Received) -> Behaviour:
        name = next((name for name in READ_TOOLS if name in received.tool_names), None)
        if name is None:
            return status(400, {"error": {"message": f"none of {', '.join(READ_TOOLS)} is advertised"}})
        step = _next_step(received)
        if step >= steps:
            return say(final, chunk=chunk)
        wanted = tool(name, path=f"notes/note_{step:03d}.txt")
        return Reply(calls=(ScriptedCall(wanted.name, wanted.arguments, f"call_{step:06d}"),))

    return reply


def _next_step(received: Received) -> int:
    for message in reversed(received.messages):
        for wanted in reversed(message.get("tool_calls") or []):
            return int(wanted["id"].rpartition("_")[2]) + 1
    return 0


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
            row |= {"chat": True, "messages": len(received.messages), "step": _next_step(received)}
            row["tools"] = len(body.get("tools") or ())
            row["system_bytes"] = sum(len(str(message.get("content")).encode()) for message in system)
            row["tools_bytes"] = len(encode(body.get("tools") or []))
            row["prefix"] = rows[-1] if rows else None
        file.write(msgspec.json.encode(row) + b"\n")
        file.flush()

    return write


def main(argv: list[str] | None = None) -> None:
    """Run the server until SIGTERM, SIGINT, or the end of standard input with `--until-eof`."""
    parser = argparse.ArgumentParser(prog="python -m lmagent.testing", description="A scripted model server.")
    parser.add_argument("--port", type=int, default=0, help="0 (default) takes a free port")
    parser.add_argument("--script", type=Path, help="JSON file with the replies")
    parser.add_argument("--log", type=Path, help="one JSON line per request is appended here")
    parser.add_argument("--strict", action="store_true", help="refuse everything that the pickiest servers refuse")
    parser.add_argument("--window", type=int, help="refuse prompts of more tokens (bytes / 4)")
    parser.add_argument("--model", default="test-model", help="name of the model")
    parser.add_argument("--bench", action="store_true", help="the benchmark's script instead of --script")
    parser.add_argument("--steps", type=int, default=30, help="tool calls before the final answer (--bench)")
    parser.add_argument("--final-words", type=int, default=0, help="words of 8 characters in the answer (--bench)")
    parser.add_argument("--chunk", type=int, default=16, help="characters in one delta of the answer (--bench)")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")
    given = parser.parse_args(argv)
    if given.bench:
        words = "".join(f"w{number:06d} " for number in range(given.final_words))
        script = bench_script(given.steps, words or "Done: all notes were read.", chunk=given.chunk)
    elif given.script:
        script = load_script(given.script.read_bytes())
    else:
        parser.error("give --script FILE or --bench")
    window = given.window or 262_144  # stated in vLLM's form: the one that is really served
    listed = {"id": given.model, "object": "model", "owned_by": "test", "max_model_len": window}
    with (given.log or Path("/dev/null")).open("ab", buffering=0) as file:
        finished = request_log(file, lambda: server.prefix)
        server = ScriptedServer(
            script,
            strict=given.strict,
            window=given.window,
            models=(given.model,),
            routes={"/v1/models": {"object": "list", "data": [listed]}},
            port=given.port,
            finished=finished,
        )
        with server:
            sys.stdout.write(f"{server.port}\n")
            sys.stdout.flush()
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
