"""A pool over workers without processes, and over fake processes."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from worker_kit import fake_program

from lmagent.modelserver.engine.cause import Cause
from lmagent.modelserver.pool.pool import PoolOptions, open_pool
from lmagent.modelserver.pool.process import Processes, StartError
from lmagent.modelserver.spec import Hello, LoadOptions, ModelEntry, ModelServerError, ModelSettings
from lmagent.testing.fakes.clock import FakeClock


class Shelf:
    """A catalogue of what it was given."""

    def __init__(self, *entries: ModelEntry) -> None:
        self.models = {entry.name: entry for entry in entries}

    def entries(self):
        return [self.models[name] for name in sorted(self.models)]

    def find(self, name: str) -> ModelEntry:
        if name not in self.models:
            raise ModelServerError(f"there is no model {name}", status=404, code="model_not_found")
        return self.models[name]

    def adjusted(self, entry: ModelEntry, options: LoadOptions) -> ModelEntry:
        """As the library does it, but for the memory."""
        given = {name: value for name in options.__struct_fields__ if (value := getattr(options, name)) is not None}
        return replace(entry, settings=replace(entry.settings, **given))


class MemoryWorker:
    """A worker that is nothing but its own record; the test says when it is ready, crashes, or is gone."""

    def __init__(self, entry: ModelEntry, pid: int) -> None:
        self.entry = entry
        self.pid = pid
        self.address, self.key = "", f"key-{pid}"
        self.taken = entry.needed
        self.stopped = False
        self._loaded = anyio.Event()
        self._gone = anyio.Event()
        self._failure: Cause | None = None
        self._end = Cause("its process ended with status 0")

    async def ready(self) -> Hello:
        await self._loaded.wait()
        if self._failure:
            raise StartError(self._failure)
        self.address = f"http://127.0.0.1:{self.pid}"
        return Hello(self.address, self.pid)

    async def ended(self) -> Cause:
        await self._gone.wait()
        return self._end

    def alive(self) -> bool:
        return not self._gone.is_set()

    def memory(self, *, awake: bool = True) -> int:
        return 0 if self._gone.is_set() else self.taken

    def tidy(self) -> None:
        pass

    async def stop(self) -> None:
        self.stopped = True
        if not self._loaded.is_set():
            self.fail("its process ended with status 0")
        self._gone.set()

    def load(self) -> None:
        self._loaded.set()

    def fail(self, text: str, code: str = "load_failed") -> None:
        self._failure = Cause(text, code=code)
        self._loaded.set()

    def crash(self, text: str = "SIGSEGV") -> None:
        self._end = Cause(text)
        self._gone.set()


class MemoryWorkers:
    """Starts workers that load at once, unless `slow`.

    Attributes:
        started: all of them, in order.
    """

    def __init__(self, *, slow: bool = False) -> None:
        self.started: list[MemoryWorker] = []
        self.slow = slow
        self.takes: dict[str, int] = {}

    def start(self, entry, spec) -> MemoryWorker:
        worker = MemoryWorker(entry, 1000 + len(self.started))
        worker.taken = self.takes.get(entry.name, entry.needed)
        self.started.append(worker)
        if not self.slow:
            worker.load()
        return worker

    def log(self, name: str) -> Path:
        return Path("logs") / f"{name}.log"

    @property
    def names(self) -> list[str]:
        return [worker.entry.name for worker in self.started]


def entry(name: str, needed: int = 10, **settings) -> ModelEntry:
    return ModelEntry(
        name, "llama", Path(f"/models/{name}.gguf"), ModelSettings(context=4096, threads=1, **settings), needed=needed
    )


@asynccontextmanager
async def memory_pool(*entries, budget=10, slow=False, journal=Path(os.devnull)):
    """A pool, its workers and its clock."""
    clock, workers = FakeClock(), MemoryWorkers(slow=slow)
    shelf = Shelf(*entries)
    async with open_pool(shelf, workers, clock, PoolOptions(budget, 1.0, journal)) as pool:
        pool.shelf = shelf  # for tests that change it
        yield pool, workers, clock


@asynccontextmanager
async def process_pool(folder, clock, *entries, budget=10, program=fake_program, tick=0.2):
    """A pool over real processes."""
    workers = Processes(folder / "logs", program)
    options = PoolOptions(budget, tick, folder / "logs" / "server.log")
    async with open_pool(Shelf(*entries), workers, clock, options) as pool:
        yield pool


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await anyio.sleep(0.001)


async def noted(pool, text: str) -> None:
    """Wait until the pool's log has a text."""
    with anyio.fail_after(30):
        while text not in pool.journal.path.read_text():  # noqa: ASYNC110
            await anyio.sleep(0.05)


def status(pool, name):
    return next(row for row in pool.statuses() if row.entry.name == name)


def run(test) -> None:
    anyio.run(test)


async def refused(pool, name) -> ModelServerError:
    with pytest.raises(ModelServerError) as error:
        async with pool.lease(name):
            pass
    return error.value
