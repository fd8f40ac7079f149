"""Fake worker: speaks a worker's protocol without an engine, and fails on request.

    python -m lmagent.testing.fakeworker

The file that the `WorkerSpec` names as the model is a `FakeModel` as JSON. It answers `/health`, `/v1/models` and
`/v1/chat/completions` (also as a stream); the last word of the last message can be `crash`, `hang`, `half` (it crashes
in the middle of a stream) or `slow:SECONDS`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.modelserver import lifeline
from lmagent.modelserver.spec import Hello

Fault = Literal["", "silent", "dies", "fails", "garbage", "killed", "deaf"]


class FakeModel(Struct, frozen=True):
    """The behaviour of a fake worker.

    Attributes:
        load: seconds that loading takes.
        fault: "silent" never says hello and does nothing; "dies" aborts while it loads; "fails" says why it cannot
            load; "garbage" says something else than hello; "killed" is killed while it loads; "deaf" ignores the end of
            its input, and SIGTERM.
        error: the text that it writes to its log and reports with a failure.
        memory: bytes that it takes.
    """

    load: float = 0.0
    fault: Fault = ""
    error: str = ""
    memory: int = 0


def write_model(path: Path, model: FakeModel) -> Path:
    """Write a model's file and return its path."""
    path.write_bytes(msgspec.json.encode(model))
    return path


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    key = ""
    alias = ""

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def do_GET(self) -> None:
        """Health, and the one model."""
        if self.path == "/health":
            self._json(200, {"status": "ok"})
        elif self._known():
            self._json(200, {"object": "list", "data": [{"id": self.alias, "object": "model", "pid": os.getpid()}]})

    def do_POST(self) -> None:
        """A chat."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
        if not self._known():
            return
        word = str(body.get("messages", [{"content": ""}])[-1]["content"]).rpartition(" ")[2]
        if word == "crash":
            signal.raise_signal(signal.SIGSEGV)  # in this thread: not a byte more is written
        if word == "hang":
            time.sleep(3600)
        if word.startswith("slow:"):
            time.sleep(float(word[5:]))
        if body.get("stream"):
            self._stream(word == "half")
        else:
            message = {"role": "assistant", "content": f"{self.alias} {os.getpid()}"}
            self._json(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    def _stream(self, half: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for word in ("one ", "two ", "three"):
            self._chunk(f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': word}}]})}\n\n")
            if half:
                signal.raise_signal(signal.SIGSEGV)  # in this thread: not a byte more is written
        self._chunk("data: [DONE]\n\n")
        self._chunk("")

    def _chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())

    def _known(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {self.key}":
            return True
        self._json(401, {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}})
        return False

    def _json(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that went away."""


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
    _Handler.key, _Handler.alias = spec.key, spec.alias
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    lifeline.say(Hello(address, os.getpid(), round(time.monotonic() - began, 3)))
    if model.fault == "deaf":
        time.sleep(3600 + len(ballast))
    lifeline.wait()


if __name__ == "__main__":
    main()
