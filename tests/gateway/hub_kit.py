"""A hub in this process, with a scripted model behind it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.config.trust import trust
from lmagent.core.events import DurableEvent
from lmagent.core.messages import user
from lmagent.gateway.broadcast.stream import Watcher
from lmagent.gateway.gateway import Gateway


@asynccontextmanager
async def hub_on(workspace: Path, base_url: str, *, prepare: Callable[[Host], None] = lambda host: None, **flags: Any):
    """A hub that runs; on the way out it leaves, as a gateway that ends does."""
    workspace.mkdir(exist_ok=True)
    given = {"llm_url": base_url, "llm_model": "scripted", "llm_retry_delay": 0.0, **flags}
    given.setdefault("agent_data_dir", workspace.parent / "data")
    trust(given["agent_data_dir"], workspace)
    host = await open_host(HostOptions(workspace, given), say=lambda text: None)
    prepare(host)
    said: list[str] = []
    hub = Gateway(host, say=said.append)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.run)
            try:
                yield hub
            finally:
                with anyio.CancelScope(shield=True):
                    await hub.end()
                tasks.cancel_scope.cancel()
    finally:
        await host.aclose()


class Seen:
    """What a watcher was given."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.is_over = False
        self._news = anyio.Event()

    @property
    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.events if event.get("seq")]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def text(self, kind: str = "text.delta") -> str:
        return "".join(event["text"] for event in self.events if event["type"] == kind)

    async def take(self, watching: Watcher) -> None:
        while frames := await watching.take():
            for frame in frames:
                event = json.loads(frame.data)
                assert event.get("seq", 0) == frame.seq
                self.events.append(event)
            self._news.set()
        self.is_over = True
        self._news.set()

    async def until(self, done: Callable[[Seen], bool], *, seconds: float = 20) -> None:
        with anyio.fail_after(seconds):
            while not done(self):
                self._news = anyio.Event()
                await self._news.wait()

    async def until_type(self, kind: str, count: int = 1) -> None:
        await self.until(lambda seen: seen.types.count(kind) >= count)


@asynccontextmanager
async def watcher(hub: Gateway, session: str, after: int = 0) -> AsyncIterator[Seen]:
    """Somebody who watches a session and reads all that comes; has read what there was, and is told the rest live."""
    seen = Seen()
    async with anyio.create_task_group() as tasks, hub.broadcast.watch(session, after) as watching:
        tasks.start_soon(seen.take, watching)
        await until(lambda: watching._live or seen.is_over)
        yield seen
        tasks.cancel_scope.cancel()


def recorded(hub: Gateway, session: str) -> list[DurableEvent]:
    """The log."""
    return list(hub.host.store.read(session))


async def until(done: Callable[[], bool], *, seconds: float = 20) -> None:
    """Wait for something that tells nobody."""
    with anyio.fail_after(seconds):
        while not done():  # noqa: ASYNC110 - see above
            await anyio.sleep(0.02)


async def asked(hub: Gateway, session: str, *words: str) -> None:
    """Each is said, and answered."""
    for text in words:
        await hub.runner.submit(session, user(text))
        await (await hub.runner.open(session)).until_idle()
