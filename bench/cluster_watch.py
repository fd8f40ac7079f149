"""Cluster: watchers of two gateways while one is killed. Each recorded event is to arrive once and in order.

    python bench/cluster_watch.py [--quick] [--watchers 500] [--sessions 40]

PostgreSQL (without fsync), two workers, two gateways, the model and this program are processes of one machine; the
watchers are in one more. Of ten watchers, nine watch a session, the others all sessions; one of each seven uses
`/api/socket`. Half of them are at each gateway. While the sessions run, the first gateway gets SIGKILL, and its
watchers resume at the other with their last id or cursor, as a browser does: after 1 to 1.5 s.

`lost` and `doubled` count events, `disordered` watchers, once all is recorded and has had time to arrive. `resumed`
is the time from the signal until the last watcher has its stream again. Latency is the time from an event's record to
its arrival at a watcher that was connected then; events that were recorded while a watcher was away are not counted.
The figures contain the time of the watchers' own process, which decodes all events on one core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "gateway")]

STEPS, STEP = 6, 1.0
"""Steps of a session, and the seconds that the model takes for each."""

RETRY = 1.0, 1.5
"""Seconds until a watcher comes back."""

ARRIVAL = 30.0
"""Seconds that events have to arrive after the last one was recorded."""

Event = dict[str, Any]


class Watcher:
    """One client, which begins at the first of its gateways and resumes at the others."""

    def __init__(self, ports: list[int], session: str, *, by_socket: bool) -> None:
        self.ports = ports
        self.session = session
        self.by_socket = by_socket
        self.place = ""
        self.seen: list[tuple[str, int]] = []
        self.delays: list[float] = []
        self.opened: list[float] = []
        self._tries = 0

    async def run(self, headers: dict[str, str]) -> None:
        while True:
            port = self.ports[self._tries % len(self.ports)]
            self._tries += 1
            with suppress(OSError, EOFError, ValueError, WebSocketException):
                await (self._socket if self.by_socket else self._stream)(port, headers)
            await asyncio.sleep(random.uniform(*RETRY))

    def take(self, event: Event) -> None:
        if event["seq"]:
            self.seen.append((event["session"], event["seq"]))
            if event["ts"] >= self.opened[-1]:
                self.delays.append(time.time() - event["ts"])

    async def _stream(self, port: int, headers: dict[str, str]) -> None:
        path = f"/api/sessions/{self.session}/events" if self.session else "/api/events"
        fields = {"Host": f"127.0.0.1:{port}", **headers, **({"Last-Event-ID": self.place} if self.place else {})}
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        try:
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
            if b" 200 " not in await reader.readline():
                raise ValueError("refused")
            while (await reader.readline()).strip():  # the head
                pass
            place = ""
            while line := await reader.readline():
                if line.startswith(b"retry:"):
                    self.opened.append(time.time())
                elif line.startswith(b"id: "):
                    place = line[4:].decode().strip()
                elif line.startswith(b"data: "):
                    self.take(json.loads(line[6:]))
                    self.place, place = place or self.place, ""
                elif not line.strip() and place:  # where the stream begins
                    self.place, place = place, ""
        finally:
            writer.close()

    async def _socket(self, port: int, headers: dict[str, str]) -> None:
        watch: Event = {"type": "watch_all", "id": "a", "after": self.place}
        if self.session:
            watch |= {"type": "watch", "session": self.session, "after": int(self.place or 0)}
        url = f"ws://127.0.0.1:{port}/api/socket"
        async with connect(url, additional_headers=headers, max_size=None, proxy=None) as socket:
            await socket.send(json.dumps(watch))
            async for text in socket:
                message = json.loads(text)
                if message["type"] == "ended":
                    raise ValueError(text)
                if message["type"] == "watching":
                    self.opened.append(time.time())
                for event in message.get("events", ()):
                    self.take(event)
                    if self.session and event["seq"]:
                        self.place = str(event["seq"])
                self.place = message.get("cursor", self.place)


async def watch(given: Event) -> None:
    """Be all watchers: print when all are there, and their figures once standard input says what was recorded."""
    ports, sessions, count = given["ports"], given["sessions"], given["watchers"]
    watchers = [
        Watcher(ports if number % 2 else ports[::-1], sessions[number // 2 % len(sessions)], by_socket=number % 7 == 0)
        for number in range(count)
    ]
    for watcher in watchers[::10]:
        watcher.session = ""
        watcher.ports = random.choice((ports, ports[::-1]))
    async with anyio.create_task_group() as tasks:
        for watcher in watchers:
            tasks.start_soon(watcher.run, given["headers"])
        await until(lambda: all(watcher.opened for watcher in watchers), 600)
        print("ready", flush=True)
        told = json.loads(await asyncio.to_thread(sys.stdin.readline))
        wanted = [places(watcher, told["recorded"], told["before"]) for watcher in watchers]
        await until(lambda: all(len(all) <= len(one.seen) for one, all in zip(watchers, wanted, strict=True)), ARRIVAL)
        await asyncio.sleep(1)  # an event that comes twice may come late
        print(json.dumps(figures(watchers, wanted, told["killed"])), flush=True)
        tasks.cancel_scope.cancel()


async def until(holds: Callable[[], bool], seconds: float) -> None:
    with anyio.move_on_after(seconds):
        while not holds():  # noqa: ASYNC110 (many watchers make it hold)
            await asyncio.sleep(0.05)


def places(watcher: Watcher, recorded: dict[str, list[int]], before: dict[str, list[int]]) -> set[tuple[str, int]]:
    """Return session and `seq` of the events that a watcher is to get; of all sessions, those that came after it."""
    if watcher.session:
        return {(watcher.session, seq) for seq in recorded[watcher.session]}
    return {(session, seq) for session, seqs in recorded.items() for seq in seqs if seq not in before[session]}


def figures(watchers: list[Watcher], wanted: list[set[tuple[str, int]]], killed: float) -> Event:
    """Return what arrived at watchers of that which each was to get; `killed`: when the gateway was."""
    lost = sum(len(events - set(one.seen)) for one, events in zip(watchers, wanted, strict=True))
    doubled = sum(count - 1 for one in watchers for count in Counter(one.seen).values())
    resumed = [one.opened[-1] - killed for one in watchers if one.opened[-1] > killed]
    return {
        "events": sum(map(len, wanted)),
        "lost": lost,
        "doubled": doubled,
        "disordered": sum(not in_order(one.seen) for one in watchers),
        "resumed": len(resumed),
        "last_resumed_s": round(max(resumed, default=0.0), 2),
        "of_a_session": latency(one for one in watchers if one.session),
        "of_all_sessions": latency(one for one in watchers if not one.session),
    }


def latency(watchers: Iterable[Watcher]) -> dict[str, float]:
    delays = sorted(delay * 1000 for one in watchers for delay in one.delays)
    return {"median_ms": round(statistics.median(delays), 1), "p99_ms": round(delays[int(len(delays) * 0.99)], 1)}


def in_order(seen: list[tuple[str, int]]) -> bool:
    last: dict[str, int] = {}
    for session, seq in seen:
        if seq <= last.get(session, 0):
            return False
        last[session] = seq
    return True


# --- the cluster ------------------------------------------------------------------------------------------------------


def script(received: Any) -> Any:
    from lmagent.testing.script import call, say, slow

    done = sum(message["role"] == "tool" for message in received.fields["messages"])
    return slow(say("done") if done >= STEPS else call("list", path="."), first=STEP * random.uniform(0.5, 1.5))


def memory_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return round(int(found[1]) / 1024, 1)


def recorded(running: Any) -> dict[str, list[int]]:
    rows = running.sql("SELECT id, event.seq FROM event JOIN session ON event.session = number ORDER BY event.seq")
    found: dict[str, list[int]] = {}
    for session, seq in rows:
        found.setdefault(session, []).append(seq)
    return found


def run(folder: Path, watchers: int, sessions: int) -> None:
    from clustered_kit import Clustered  # pyright: ignore[reportMissingImports]

    from lmagent.testing import ScriptedServer

    env = {
        "PERMISSION_MODE": "auto",
        "SANDBOX": "off",
        "ENABLE_MEMORY": "false",
        "LMAGENT_UNDO_MB": "0",
        "LLM_PARALLEL": "64",
    }
    with ScriptedServer(script, slots=64) as model:
        running = Clustered(folder, model, (), env)
        running.count = 2
        running.start()
        try:
            with running.another_gateway(folder / "other") as other:
                measure(running, other, watchers, sessions)
        finally:
            running.stop()


def measure(running: Any, other: Any, watchers: int, sessions: int) -> None:
    names = [other.ask("POST", "/api/sessions", {}).json["session"] for _ in range(sessions)]
    before, idle = recorded(running), memory_mb(other.process.pid)
    given = {"ports": [running.port, other.port], "headers": running.headers, "sessions": names, "watchers": watchers}
    command = [sys.executable, __file__, "--watch"]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def tell(what: Event) -> None:
            print(json.dumps(what), file=process.stdin, flush=True)

        tell(given)
        assert process.stdout.readline().strip() == "ready"
        print(f"{watchers} watchers of {sessions} sessions are there after {time.monotonic() - began:.1f} s")
        watched, message = memory_mb(other.process.pid), {"role": "user", "parts": [{"type": "text", "text": "go"}]}
        asked = time.time()
        for name in names:
            answer = other.ask("POST", f"/api/sessions/{name}/commands", {"type": "submit", "message": message})
            assert answer.status == 202, answer.body
        while ended(running, "tool.finished") < sessions * STEPS / 3:
            time.sleep(0.1)
        killed = time.time()
        running.kill()
        while ended(running, "turn.finished") < sessions:
            time.sleep(0.3)
        print(f"killed {killed - asked:.1f} s after the sessions began, which ended after {time.time() - asked:.1f} s")
        tell({"recorded": recorded(running), "before": before, "killed": killed})
        found = json.loads(process.stdout.readline())
    print(json.dumps(found))
    last = memory_mb(other.process.pid)
    print(f"memory of the gateway that stays: {idle} MB without watchers, {watched} with half of them, {last} with all")


def ended(running: Any, type: str) -> int:
    """Count the recorded events of a type."""
    return running.sql(f"SELECT count(*) FROM event WHERE convert_from(line, 'UTF8') LIKE '%\"type\":\"{type}\"%'")[0][
        0
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--watchers", type=int, default=500)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.watch:
        asyncio.run(watch(json.loads(sys.stdin.readline())))
        return
    if given.quick:
        given.watchers, given.sessions = 40, 6
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"load before: {load}; {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), given.watchers, given.sessions)


if __name__ == "__main__":
    main()
