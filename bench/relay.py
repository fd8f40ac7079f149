"""The relay's cost: CPU of the router's process for each event that it passes on, beside a raw splice of two sockets.

    python bench/relay.py [--quick]

A cheap upstream emits events of a usual size, 20 a second and stream, over 100 and then 200 streams at once; nobody
parses them. The router and the splice (asyncio.Protocol, one `write` a read) do the same work in turns, each in a
process of its own, whose CPU is read from /proc. The last line is the figures as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from lmagent.modelserver.http.router import Router
from lmagent.modelserver.http.serving import serve
from lmagent.modelserver.pool.journal import Journal
from lmagent.modelserver.spec import ModelEntry, ModelStatus, RunningModel

RATE = 20
LIMIT_US = 90.0
"""Bar: microseconds of CPU an event."""
LIMIT_RATIO = 4.0
"""Bar: as many times the splice's CPU. On a machine that is slow or busy the microseconds of both grow."""

CHUNK = {
    "id": "chatcmpl-w0795EFRqzs8B2dws56TN9S6kRbuOvH5",
    "object": "chat.completion.chunk",
    "created": 1795266767,
    "model": "m",
    "system_fingerprint": "b0-unknown",
    "choices": [{"index": 0, "delta": {"content": " hello"}, "finish_reason": None}],
}
EVENT = b"data: " + json.dumps(CHUNK, separators=(",", ":")).encode() + b"\n\n"
FRAME = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
ASK = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


async def upstream(events: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
                b"Connection: close\r\n\r\n"
            )
            for _ in range(events):
                writer.write(FRAME)
                await asyncio.sleep(1 / RATE)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            writer.close()

    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = await asyncio.start_server(answer, sock=listener)
    print(listener.getsockname()[1], flush=True)
    await server.serve_forever()


class Splice(asyncio.Protocol):
    """One half of a pair of sockets; what comes is written to the other."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.peer: Splice | None = None
        self.early: list[bytes] = []
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.port:
            self.opening = asyncio.get_running_loop().create_task(self.open())

    async def open(self) -> None:
        other = Splice()
        other.peer = self
        await asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", self.port)
        self.peer = other
        other.transport.writelines(self.early)

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self.early.append(data)
        else:
            self.peer.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer is not None:
            self.peer.transport.close()


async def splice(port: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = await asyncio.get_running_loop().create_server(lambda: Splice(port), sock=listener)
    print(listener.getsockname()[1], flush=True)
    await server.serve_forever()


class OneModel:
    """A catalogue and pool of one model that is always there."""

    def __init__(self, port: int) -> None:
        self.entry = ModelEntry("m", "llama")
        self.journal, self.evictions = Journal(Path(os.devnull)), 0
        self.running = RunningModel(self.entry, f"http://127.0.0.1:{port}", "", "m")

    def entries(self) -> list[ModelEntry]:
        return [self.entry]

    def find(self, name: str) -> ModelEntry:
        return self.entry

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[RunningModel]:
        yield self.running

    def statuses(self) -> list[ModelStatus]:
        return [ModelStatus(self.entry, "ready")]

    async def load(self, name: str) -> ModelStatus:
        return self.statuses()[0]

    async def unload(self, name: str) -> ModelStatus:
        return self.statuses()[0]

    def log(self, name: str) -> Path:
        return Path(os.devnull)


async def router(port: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    pool = OneModel(port)
    await serve(Router(pool, pool), listener)


async def stream(port: int) -> int:
    """Events of one stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASK)
    events = 0
    while data := await reader.read(65_536):
        events += data.count(b"data: ")
    writer.close()
    return events


async def streams(port: int, count: int) -> int:
    found: list[int] = []

    async def one() -> None:
        found.append(await stream(port))

    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(one)
    return sum(found)


class Part:
    """A process of the bench."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def cpu(self) -> float:
        """Seconds of CPU so far (proc(5): fields 14 and 15 of stat)."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def measured(part: Part, count: int, events: int) -> float:
    """Microseconds of CPU an event; fails where an event was lost."""
    before = part.cpu()
    seen = asyncio.run(streams(part.port, count))
    if seen != count * events:
        raise SystemExit(json.dumps({"ok": False, "error": f"{seen} of {count * events} events came"}))
    return (part.cpu() - before) / seen * 1e6


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    events, rounds = (40, 1) if quick else (100, 3)
    figures: dict[str, Any] = {"events_per_stream": events}
    ratios: list[float] = []
    source = Part("--upstream", str(events))
    parts = {"router": Part("--router", str(source.port)), "splice": Part("--splice", str(source.port))}
    try:
        for part in parts.values():
            asyncio.run(streams(part.port, 3))
        for count in (100, 200):
            costs: dict[str, list[float]] = {name: [] for name in parts}
            for _ in range(rounds):
                for name, part in parts.items():
                    costs[name].append(measured(part, count, events))
            ratios += [ours / floor for ours, floor in zip(costs["router"], costs["splice"], strict=True)]
            figures |= {f"{name}_us_{count}": round(statistics.median(cost), 1) for name, cost in costs.items()}
    finally:
        for part in (*parts.values(), source):
            part.close()
    worst = max(figures["router_us_100"], figures["router_us_200"])
    figures["ratio"] = round(statistics.median(ratios), 2)
    figures["ok"] = worst <= LIMIT_US or figures["ratio"] <= LIMIT_RATIO
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    PARTS = {"--upstream": upstream, "--router": router, "--splice": splice}
    if len(sys.argv) == 3 and sys.argv[1] in PARTS:
        asyncio.run(PARTS[sys.argv[1]](int(sys.argv[2])))
    else:
        sys.exit(main())
