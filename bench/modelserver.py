"""Load, unload, sleep, crashes and memory of the model server's workers, on the real engine with a tiny random model.

    python bench/modelserver.py [--quick]

Needs the packages `xllamacpp` and `gguf`. The figures are those of the pool and its processes; what the router adds is
measured elsewhere. A thread each for the requests, so times of a request have some milliseconds of Python in them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from lmagent.modelserver.pool.machine import machine_memory
from lmagent.modelserver.pool.pool import PoolOptions, WorkerPool, open_pool
from lmagent.modelserver.pool.process import Processes
from lmagent.modelserver.spec import ModelEntry, ModelServerError, ModelSettings, ModelStatus, RunningModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from testkit.gguf import build_tiny_gguf

READY_BAR = 1.0
WAKE_BAR = 0.5
LARGE = 1 << 40
THREADS = anyio.CapacityLimiter(200)


class SystemClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(anyio.sleep)


class Shelf:
    def __init__(self, entries: Sequence[ModelEntry]) -> None:
        self._entries = {entry.name: entry for entry in entries}

    def entries(self) -> Sequence[ModelEntry]:
        return [self._entries[name] for name in sorted(self._entries)]

    def find(self, name: str) -> ModelEntry:
        return self._entries[name]


def entry(model: Path, name: str, *, needed: int = 40 << 20, **settings: Any) -> ModelEntry:
    chosen = {"context": 2048, "threads": 1, "sleep": 0, "ttl": 0, **settings}
    return ModelEntry(name, "llama", model, ModelSettings(**chosen), size=model.stat().st_size, needed=needed)


@asynccontextmanager
async def pool_of(
    folder: Path, *entries: ModelEntry, budget: int = LARGE, tick: float = 0.2
) -> AsyncGenerator[WorkerPool]:
    clock = SystemClock()
    workers = Processes(folder / "logs")
    async with open_pool(
        Shelf(entries), workers, clock, PoolOptions(budget, tick, folder / "logs" / "server.log")
    ) as pool:
        yield pool


def status(pool: WorkerPool, name: str) -> ModelStatus:
    return next(row for row in pool.statuses() if row.entry.name == name)


def send(running: RunningModel, stream: bool, tokens: int) -> str:
    address = urlsplit(running.address)
    body = {"messages": [{"role": "user", "content": "go on"}], "max_tokens": tokens, "stream": stream}
    with closing(http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)) as connection:
        headers = {"Authorization": f"Bearer {running.key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
    if answer.status != 200 or (stream and "[DONE]" not in text):
        raise ConnectionError(f"{answer.status}: {text[-200:]}")
    return text


async def ask(pool: WorkerPool, name: str, *, stream: bool = False, tokens: int = 8) -> str:
    async with pool.lease(name) as running:
        return await anyio.to_thread.run_sync(send, running, stream, tokens, limiter=THREADS)


def living(group: int) -> bool:
    """Whether a process of the group is there and no zombie."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split() if folder.name.isdigit() else []
            if fields and int(fields[2]) == group and fields[0] not in "ZX":
                return True
    return False


async def ready_and_unload(folder: Path, model: Path, rounds: int) -> dict[str, Any]:
    """From spawn to ready; what the worker takes, and what is left of it."""
    loads, unloads = [], []
    taken, left = 0, False
    async with pool_of(folder, entry(model, "m", context=131072)) as pool:
        await pool.load("m")  # the engine's own code is in the page cache from here on
        await pool.unload("m")
        before = machine_memory().free
        for _ in range(rounds):
            began = time.monotonic()
            row = await pool.load("m")
            loads.append(time.monotonic() - began)
            taken = max(taken, row.memory)
            began = time.monotonic()
            await pool.unload("m")
            unloads.append(time.monotonic() - began)
            await anyio.sleep(0.2)
            left = left or living(row.pid)
        after = machine_memory().free
    return {
        "ready_s": round(statistics.median(loads), 3),
        "ready_worst_s": round(max(loads), 3),
        "unload_s": round(statistics.median(unloads), 3),
        "worker_mb": round(taken / 1e6, 1),
        "free_lost_mb": round((before - after) / 1e6, 1),
        "left": left,
        "ok": statistics.median(loads) <= READY_BAR and not left,
    }


async def wake(folder: Path, model: Path, rounds: int) -> dict[str, Any]:
    """A request to a worker that sleeps, against the time of a load."""
    times, asleep, awake = [], 0, 0
    async with pool_of(folder, entry(model, "m", context=131072, sleep=1)) as pool:
        load = (await pool.load("m")).loaded_s
        for _ in range(rounds):
            await ask(pool, "m")
            awake = status(pool, "m").memory
            while status(pool, "m").state != "sleeping":  # noqa: ASYNC110
                await anyio.sleep(0.1)
            await anyio.sleep(1.0)
            asleep = status(pool, "m").memory
            began = time.monotonic()
            await ask(pool, "m", tokens=1)
            times.append(time.monotonic() - began)
    median = statistics.median(times)
    return {
        "wake_s": round(median, 3),
        "load_s": round(load, 3),
        "awake_mb": round(awake / 1e6, 1),
        "asleep_mb": round(asleep / 1e6, 1),
        "ok": median <= WAKE_BAR + load and asleep < awake,
    }


async def kill_at_random(pool: WorkerPool, chance: random.Random, killed: list[int], pids: set[int]) -> None:
    """Kill some worker again and again; try again at once what failed or crashed too often."""

    async def lift(name: str) -> None:
        with suppress(ModelServerError):
            await pool.load(name)

    async with anyio.create_task_group() as tasks:
        while True:
            await anyio.sleep(chance.uniform(0.1, 0.5))
            rows = [row for row in pool.statuses() if row.pid]
            pids.update(row.pid for row in rows)
            if rows:
                killed.append(chance.choice(rows).pid)
                os.kill(killed[-1], chance.choice((signal.SIGKILL, signal.SIGSEGV)))
            for row in pool.statuses():
                if row.state == "quarantined" or row.reason:
                    tasks.start_soon(lift, row.entry.name)


async def crashes(folder: Path, model: Path, total: int) -> dict[str, Any]:
    """Mixed requests while workers are killed at random: what became of each."""
    chance = random.Random(0)
    names = ("a", "b", "c")
    outcome: Counter[str] = Counter()
    killed: list[int] = []
    pids: set[int] = set()
    left = iter(range(total))

    async def client(pool: WorkerPool) -> None:
        for _ in left:
            try:
                await ask(pool, chance.choice(names), stream=chance.random() < 0.5, tokens=chance.choice((1, 8, 64)))
                outcome["answered"] += 1
            except ModelServerError as error:
                outcome[error.code] += 1
                await anyio.sleep(0.05)
            except (OSError, http.client.HTTPException) as error:
                outcome[f"LOST {type(error).__name__}"] += 1

    began = time.monotonic()
    entries = [entry(model, name, parallel=4) for name in names]
    async with pool_of(folder, *entries) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(kill_at_random, pool, chance, killed, pids)
        async with anyio.create_task_group() as clients:
            for _ in range(20):
                clients.start_soon(client, pool)
        tasks.cancel_scope.cancel()
    await anyio.sleep(0.5)
    orphans = sum(living(pid) for pid in pids)
    lost = sum(count for code, count in outcome.items() if code.startswith("LOST"))
    return {
        "requests": total,
        "kills": len(killed),
        "outcome": dict(outcome),
        "orphans": orphans,
        "seconds": round(time.monotonic() - began, 1),
        "ok": sum(outcome.values()) == total and not lost and not orphans and outcome["answered"] > 0,
    }


async def two_models(folder: Path, model: Path, each: int) -> dict[str, Any]:
    """Fifty clients, every other one for the other model, in a memory for one."""
    waits: dict[str, list[float]] = {"a": [], "b": []}
    failures: list[str] = []
    entries = [entry(model, name, parallel=2, needed=30 << 20) for name in waits]
    async with pool_of(folder, *entries, budget=58 << 20) as pool:
        began = time.monotonic()

        async def client(number: int) -> None:
            name = "ab"[number % 2]
            for _ in range(each):
                asked = time.monotonic()
                try:
                    await ask(pool, name)
                except (ModelServerError, OSError, http.client.HTTPException) as error:
                    failures.append(str(error))
                waits[name].append(time.monotonic() - asked)

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(client, number)
        took = time.monotonic() - began
        lines = pool.journal.path.read_text().splitlines()
    loads = sum("loading" in line and "unloading" not in line for line in lines)
    return {
        "requests": 50 * each,
        "loads": loads,
        "seconds": round(took, 1),
        "median_wait_s": {name: round(statistics.median(times), 2) for name, times in waits.items()},
        "longest_wait_s": {name: round(max(times), 2) for name, times in waits.items()},
        "failures": failures[:3],
        "ok": not failures and loads <= 2 * each + 2,
    }


async def measure(quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = build_tiny_gguf(folder / "tiny.gguf")
        rounds = 3 if quick else 10
        figures: dict[str, Any] = {
            "ready_and_unload": await ready_and_unload(folder, model, rounds),
            "wake": await wake(folder, model, 2 if quick else 5),
            "crashes": await crashes(folder, model, 200 if quick else 1000),
            "two_models": await two_models(folder, model, 2 if quick else 5),
        }
    figures["ok"] = all(row["ok"] for row in figures.values())
    return figures


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    figures = anyio.run(partial(measure, parser.parse_args().quick))
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
