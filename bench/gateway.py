"""What a gateway takes to stream many sessions at once, and what an idle one keeps of memory.

    python bench/gateway.py [--quick] [--socket] [--steady SESSIONS [SESSIONS ...]]

Three processes: the model (an event stream to every session, DELTAS a second each), the gateway (`lmagent web`), and
those who watch, one a session, over HTTP or (`--socket`) over a WebSocket each. All sessions are asked before the
model begins, so that all stream together. `lost` counts watchers that lack an event, have one twice, or have another
text than the model's; `cpu_us` is the processor time of the gateway a delta of the model, all it does included
(reading the model's stream, recording, handing on); `handed_on` how many pieces those deltas were handed on as, since
what waits together goes out together. `idle_kb` is the growth of its memory a session that is open and watched,
`released_kb` of one that was used, has been released, and is not watched.

The first round sends more than one core can take, so pieces wait and go out together. `--steady` measures numbers of
sessions that need not wait: the processor time a delta in the middle of their answers, where no turn begins or ends,
and then how long `GET /api/status` takes. `kept_pace` is the share of the model's pace that the model itself
kept: on a machine that is too busy for the model, the figures are those of a slower one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

SESSIONS, RATE, SECONDS = 500, 50, 2
STEADY, BEFORE, DURING = (20, 100, 300), 3.0, 4.0
"""Numbers of sessions; seconds from the first delta until it is measured, and for each of the two measurements."""

CPU_BAR, IDLE_BAR, STATUS_BAR = 100.0, 200.0, 100.0
TICKS = os.sysconf("SC_CLK_TCK")
TOKEN = "bench-token"
LISTED = b'{"object": "list", "data": [{"id": "m", "owned_by": "vllm", "max_model_len": 32768}]}'
"""A server that keeps many conversations at once; others would be asked one after the other."""


async def model(sessions: int, deltas: int) -> None:
    """Streams to all once all have asked: DELTAS pieces of text, each with its number."""
    waiting = anyio.Event()
    asked = sent = 0
    chunks = [_chunk({"choices": [{"index": 0, "delta": {"content": piece}}]}) for piece in _pieces(deltas)]
    usage = {"prompt_tokens": 100, "completion_tokens": deltas}
    end = _chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})
    end += _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    async def serve(stream: anyio.abc.SocketStream) -> None:
        nonlocal asked

        def count() -> None:
            nonlocal sent
            sent += 1

        async with stream:
            reader = BufferedByteReceiveStream(stream)
            try:
                while True:
                    head = await reader.receive_until(b"\r\n\r\n", 65_536)
                    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                    body = await reader.receive_exactly(int(length[1])) if length else b""
                    if not head.startswith(b"POST"):
                        body = LISTED if b"/models " in head else b'{"sent": %d}' % sent
                        status = b"200 OK" if b"/models " in head or b"/sent " in head else b"404 Not Found"
                        told = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                        await stream.send(b"HTTP/1.1 " + status + b"\r\n" + told + body)
                        continue
                    is_first = b"warm up" in body
                    asked += not is_first
                    if asked == sessions:
                        print("all asked", flush=True)
                        waiting.set()
                    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                    await stream.send(head)
                    if not is_first:
                        await waiting.wait()
                    await _stream(stream, chunks[:5] if is_first else chunks, end, count)
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=1024)
    print(listener.extra(anyio.abc.SocketAttribute.local_port), flush=True)
    await listener.serve(serve)


async def _stream(stream: anyio.abc.SocketStream, chunks: list[bytes], end: bytes, count: Callable[[], None]) -> None:
    began = time.monotonic() + random.random() / RATE  # servers do not answer all in the same moment
    for number, chunk in enumerate(chunks):
        await anyio.sleep(max(0.0, began + number / RATE - time.monotonic()))
        await stream.send(chunk)
        count()
    await stream.send(end)


def _pieces(deltas: int) -> list[str]:
    """What the model says: numbered words, twelve a line."""
    return [f"w{number:05}" + (" " if (number + 1) % 12 else "\n") for number in range(deltas)]


def _chunk(fields: dict[str, Any]) -> bytes:
    return _framed(b"data: " + json.dumps({"id": "c", "model": "m", **fields}).encode() + b"\n\n")


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Watched:
    """What one watcher was given."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.texts: list[str] = []
        self.is_over = False

    def take(self, event: dict[str, Any]) -> None:
        if event["seq"]:
            self.seqs.append(event["seq"])
            self.is_over = event["type"] == "turn.finished"
        elif event["type"] == "text.delta":
            self.texts.append(event["text"])


async def by_stream(stream: anyio.abc.SocketStream, host: str, session: str) -> AsyncIterator[dict[str, Any]]:
    """Events of a session over HTTP, as server-sent events."""
    await stream.send(f"GET /api/sessions/{session}/events HTTP/1.1\r\n{host}\r\n".encode())
    rest = b""
    while True:
        rest += await stream.receive(262_144)
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


async def by_socket(stream: anyio.abc.SocketStream, host: str, session: str) -> AsyncIterator[dict[str, Any]]:
    """The same over `/api/socket`; frames as in RFC 6455, section 5.2."""
    reader = BufferedByteReceiveStream(stream)
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    upgrade = f"Connection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n"
    await stream.send(f"GET /api/socket HTTP/1.1\r\n{host}{upgrade}\r\n".encode())
    await reader.receive_until(b"\r\n\r\n", 65_536)
    wish = json.dumps({"type": "watch", "id": "1", "session": session}).encode()
    await stream.send(b"\x81" + bytes([0x80 | len(wish)]) + b"\0\0\0\0" + wish)
    while True:
        head = await reader.receive_exactly(2)
        size = head[1]
        if size >= 126:
            size = int.from_bytes(await reader.receive_exactly(2 if size == 126 else 8), "big")
        told = await reader.receive_exactly(size)
        if head[0] == 0x81:
            for event in json.loads(told).get("events", ()):
                yield event


async def watch(port: int, sessions: list[str], deltas: int, *, socket: bool) -> dict[str, Any]:
    """Watch all sessions until their turns have ended; what was missed, and how it came."""
    watched = [Watched() for _ in sessions]
    ready = 0
    coming = anyio.Semaphore(50)  # who has not shown a token yet may hold 256 connections, no more

    async def one(session: str, seen: Watched) -> None:
        nonlocal ready
        await coming.acquire()
        host = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            async for event in (by_socket if socket else by_stream)(stream, host, session):
                if not seen.seqs:
                    coming.release()
                    ready += 1
                    if ready == len(sessions):
                        print("ready", flush=True)
                seen.take(event)
                if seen.is_over:
                    return

    async with anyio.create_task_group() as tasks:
        for session, seen in zip(sessions, watched, strict=True):
            tasks.start_soon(one, session, seen)
    text = "".join(_pieces(deltas))
    wrong = [seen for seen in watched if seen.seqs != list(range(1, len(seen.seqs) + 1)) or "".join(seen.texts) != text]
    return {"lost": len(wrong), "handed_on": sum(len(seen.texts) for seen in watched)}


class Gateway:
    """`lmagent web` in a process of its own."""

    def __init__(self, folder: Path, model_port: int) -> None:
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LLM", "AGENT"))},
            "HOME": str(folder),
            "AGENT_DATA_DIR": str(folder / "data"),
            "AGENT_TOKEN": TOKEN,
            "LMAGENT_UNDO_MB": "0",
        }
        workspace = folder / "workspace"
        workspace.mkdir()
        command = [sys.executable, "-m", "lmagent", "web", "0", "--no-browser", "-w", str(workspace)]
        command += ["--base-url", f"http://127.0.0.1:{model_port}/v1", "-m", "m"]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = 0
        for line in self.process.stdout:
            if "://127.0.0.1:" in line:
                self.port = int(line.strip().rpartition(":")[2])
            if line.strip().startswith("PIN"):
                break
        self._connection = HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status < 300, content
        return json.loads(content)

    def say(self, session: str, text: str) -> None:
        """Submit an input."""
        message = {"role": "user", "parts": [{"type": "text", "text": text}]}
        self.ask("POST", f"/api/sessions/{session}/commands", {"type": "submit", "message": message})

    def warm_up(self) -> None:
        """Have loaded what is loaded with the first sessions and turns: that is not a session's."""
        names = [self.ask("POST", "/api/sessions", {})["session"] for _ in range(20)]
        for name in names:
            self.say(name, "warm up")
        while any(self.ask("GET", f"/api/sessions/{name}")["status"] != "done" for name in names):
            time.sleep(0.05)

    @property
    def cpu(self) -> float:
        """Seconds of processor time; fields 14 and 15 of /proc/PID/stat (proc(5))."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def memory_kb(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return float(found[1])


class Asked(NamedTuple):
    """A gateway whose sessions have all asked the model; kilobytes before there were sessions, and when idle."""

    gateway: Gateway
    watchers: subprocess.Popen[str]
    model_port: int
    empty: float
    idle: float

    @property
    def sent(self) -> int:
        """Deltas that the model has sent."""
        connection = HTTPConnection("127.0.0.1", self.model_port, timeout=60)
        connection.request("GET", "/sent")
        count = json.loads(connection.getresponse().read())["sent"]
        connection.close()
        return count


def spawn(*arguments: str) -> subprocess.Popen[str]:
    """This program in another part."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def asked(sessions: int, deltas: int, folder: Path, *, socket: bool) -> Iterator[Asked]:
    """Have all sessions asked and watched, the model about to begin."""
    server = spawn("--model", str(sessions), str(deltas))
    model_port = int(line_of(server))
    gateway = Gateway(folder, model_port)
    watchers: subprocess.Popen[str] | None = None
    try:
        gateway.warm_up()
        empty = gateway.memory_kb
        names = [gateway.ask("POST", "/api/sessions", {})["session"] for _ in range(sessions)]
        watchers = spawn("--watch", str(gateway.port), str(deltas), *(["--socket"] if socket else []))
        assert watchers.stdin is not None
        watchers.stdin.write(json.dumps(names) + "\n")
        watchers.stdin.flush()
        assert line_of(watchers) == "ready"
        idle = gateway.memory_kb
        for name in names:
            gateway.say(name, "go")
        assert line_of(server) == "all asked"
        yield Asked(gateway, watchers, model_port, empty, idle)
    finally:
        for process in (gateway.process, server, watchers):
            if process is not None:
                process.terminate()
                process.wait(30)


def measure(sessions: int, deltas: int, folder: Path, *, socket: bool) -> dict[str, Any]:
    """One round."""
    with asked(sessions, deltas, folder, socket=socket) as it:
        gateway = it.gateway
        before, began = gateway.cpu, time.monotonic()
        figures = json.loads(line_of(it.watchers))
        cpu, seconds = gateway.cpu - before, time.monotonic() - began
        time.sleep(14)  # they are released 10 s after those who watched have gone
        return {
            "sessions": sessions,
            "deltas": sessions * deltas,
            "seconds": round(seconds, 1),
            **figures,
            "cpu_us": round(cpu / (sessions * deltas) * 1e6, 1),
            "idle_kb": round((it.idle - it.empty) / sessions, 1),
            "released_kb": round((gateway.memory_kb - it.empty) / sessions, 1),
        }


def steady(sessions: int, folder: Path, *, socket: bool) -> dict[str, Any]:
    """One round in which nothing has to wait, measured where no turn begins or ends."""
    deltas = int(RATE * (BEFORE + 2 * DURING + 2))
    with asked(sessions, deltas, folder, socket=socket) as it:
        time.sleep(BEFORE)
        before, sent, began = it.gateway.cpu, it.sent, time.monotonic()
        time.sleep(DURING)
        cpu, sent, seconds = it.gateway.cpu - before, it.sent - sent, time.monotonic() - began
        waits: list[float] = []
        while time.monotonic() - began < 2 * DURING:
            asks = time.monotonic()
            it.gateway.ask("GET", "/api/status")
            waits.append(time.monotonic() - asks)
            time.sleep(0.05)
        figures = json.loads(line_of(it.watchers))
        return {
            "sessions": sessions,
            **figures,
            "cpu_us": round(cpu / sent * 1e6, 1),
            "busy": round(cpu / seconds, 2),
            "kept_pace": round(sent / seconds / (sessions * RATE), 2),
            "status_p95_ms": round(sorted(waits)[int(len(waits) * 0.95)] * 1000, 1),
        }


def main() -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--socket", action="store_true", help="watch over WebSockets")
    parser.add_argument("--steady", nargs="*", type=int, metavar="SESSIONS", help="sessions that need not wait")
    parser.add_argument("--model", nargs=2, type=int)
    parser.add_argument("--watch", nargs=2, type=int)
    given = parser.parse_args()
    if given.model:
        anyio.run(model, *given.model)
    elif given.watch:
        names = json.loads(sys.stdin.readline())
        watching = partial(watch, given.watch[0], names, given.watch[1], socket=given.socket)
        print(json.dumps(anyio.run(watching)), flush=True)
    elif given.steady is not None:
        rounds: list[dict[str, Any]] = []
        for sessions in given.steady or STEADY:
            with tempfile.TemporaryDirectory() as folder:
                rounds.append(steady(sessions, Path(folder), socket=given.socket))
        bars = {"lost": 0, "cpu_us": CPU_BAR, "status_p95_ms": STATUS_BAR}
        holds = all(figures[name] <= bar for figures in rounds for name, bar in bars.items())
        print(json.dumps({"ok": holds, "rounds": rounds, "bars": bars}))
        return 0 if holds else 1
    else:
        sessions = 100 if given.quick else SESSIONS
        with tempfile.TemporaryDirectory() as folder:
            figures = measure(sessions, RATE * SECONDS, Path(folder), socket=given.socket)
        holds = figures["lost"] == 0 and figures["cpu_us"] <= CPU_BAR and figures["idle_kb"] <= IDLE_BAR
        print(json.dumps({"ok": holds, **figures, "bars": {"lost": 0, "cpu_us": CPU_BAR, "idle_kb": IDLE_BAR}}))
        return 0 if holds else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
