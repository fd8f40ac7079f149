"""Fake worker: speaks a worker's protocol without an engine, and fails on request.

    python tests/testkit/fakeworker.py

The file that the `WorkerSpec` names as the model is a `FakeModel` as JSON. It answers `/health`, `/v1/models` and
`/v1/chat/completions` (also as a stream); the last word of the last message can be `crash`, `hang`, `half` (it crashes
in the middle of a stream) or `slow:SECONDS`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.modelserver.engine import lifeline
from lmagent.modelserver.spec import Hello
from lmagent.testing.loopback import Hang, LoopbackServer, Received, Response

Fault = Literal["", "silent", "dies", "fails", "garbage", "killed", "deaf"]


class FakeModel(Struct, frozen=True):
    """The behaviour of a fake worker.

    "silent" never says hello and does nothing; "dies" aborts while it loads; "fails" says why it cannot load; "garbage"
    says something else than hello; "killed" is killed while it loads; "deaf" ignores the end of its input, and SIGTERM.
    """

    load: float = 0.0  # seconds that loading takes
    fault: Fault = ""
    error: str = ""  # the text that it writes to its log and reports with a failure
    memory: int = 0  # bytes that it takes


def write_model(path: Path, model: FakeModel) -> Path:
    """Write a model's file and return its path."""
    path.write_bytes(msgspec.json.encode(model))
    return path


def _handler(alias: str, key: str) -> Callable[[Received], Awaitable[Response]]:
    async def answer(received: Received) -> Response:
        if received.path == "/health":
            return _json(200, {"status": "ok"})
        if received.headers.get("authorization") != f"Bearer {key}":
            return _json(401, {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}})
        if received.method == "GET":
            return _json(200, {"object": "list", "data": [{"id": alias, "object": "model", "pid": os.getpid()}]})
        word = str(received.messages[-1]["content"] if received.messages else "").rpartition(" ")[2]
        if word == "crash":
            signal.raise_signal(signal.SIGSEGV)  # in this thread: not a byte more is written
        if word == "hang":
            return Response((), before_head=(Hang(),))
        if word.startswith("slow:"):
            await asyncio.sleep(float(word[5:]))
        if received.fields.get("stream"):
            return Response(_stream(half=word == "half"), 200, {"Content-Type": "text/event-stream"}, "chunked")
        message = {"role": "assistant", "content": f"{alias} {os.getpid()}"}
        return _json(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    return answer


async def _stream(*, half: bool) -> AsyncIterator[bytes]:
    for word in ("one ", "two ", "three"):
        chunk = {"choices": [{"index": 0, "delta": {"content": word}}]}
        yield b"data: " + msgspec.json.encode(chunk) + b"\n\n"
        if half:
            signal.raise_signal(signal.SIGSEGV)
    yield b"data: [DONE]\n\n"


def _json(status: int, body: Any) -> Response:
    return Response((msgspec.json.encode(body),), status, {"Content-Type": "application/json"})


def _misbehave(model: FakeModel) -> None:
    if model.error:
        sys.stderr.write(f"{model.error}\n")
        sys.stderr.flush()
    if model.fault == "silent":
        time.sleep(3600)
    if model.fault == "dies":
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.abort()
    if model.fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if model.fault == "fails":
        lifeline.fail(model.error)
    if model.fault == "garbage":
        sys.stdout.write("Loading, please wait\n")
        sys.stdout.flush()


def main() -> None:
    """Serve until standard input ends, or misbehave."""
    began = time.monotonic()
    spec = lifeline.read_spec()
    model = decode_json(Path(spec.model).read_bytes(), FakeModel)
    if model.fault == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        lifeline.hold()
    ballast = b"x" * model.memory
    time.sleep(model.load)
    _misbehave(model)
    server = LoopbackServer(_handler(spec.alias, spec.key)).__enter__()
    lifeline.say(Hello(server.url, os.getpid(), round(time.monotonic() - began, 3)))
    if model.fault == "deaf":
        time.sleep(3600 + len(ballast))
    lifeline.wait()


if __name__ == "__main__":
    main()
