"""A database that is away for seconds: sessions wait for it, and the process does everything else meanwhile."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import anyio
import pytest
from testkit.postgres import postgres

from lmagent.app.options import HostOptions
from lmagent.app.runner import Runner
from lmagent.app.wiring import open_host
from lmagent.cluster.database import Database
from lmagent.cluster.member import member_at
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

pytestmark = pytest.mark.anyio

AWAY = 3.0  # seconds


async def test_sessions_are_opened_and_closed_without_holding_up_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "work").mkdir()
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await anyio.sleep(0.01)
            gaps.append(time.monotonic() - before)

    with postgres() as server, ScriptedServer([say("hello")]) as model:
        known = Database(server.url())
        known.migrate()
        known.close()
        flags = {"cluster_url": server.url(), "llm_url": model.base_url, "llm_model": "scripted", "sandbox": "off"}
        host = await open_host(HostOptions(tmp_path / "work", flags), say=lambda _: None)
        runner = Runner(host, lambda _: None)
        async with runner.running(), anyio.create_task_group() as tasks:
            session = (await runner.begin()).id
            await runner.release(session)
            tasks.start_soon(tick)
            await anyio.sleep(0.1)
            server.stop()
            later = threading.Timer(AWAY, server.start)
            later.start()
            began = time.monotonic()
            async with runner.for_job(session) as opened:
                assert time.monotonic() - began > AWAY
                assert opened.id == session
                await anyio.to_thread.run_sync(later.join)
                server.stop()
            assert not runner.sessions
            tasks.cancel_scope.cancel()
        await host.aclose()
        member_at(server.url()).close()
    assert max(gaps) < 1.0
