"""The embedded dispatcher: its port's suite, and what several processes and a lost table may do to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from lmagent.app.clock import SystemClock
from lmagent.core.ports import Clock, Dispatcher, DispatchJob
from lmagent.dispatch.embedded import LEASE, EmbeddedDispatcher
from lmagent.dispatch.table import JobTable
from lmagent.store.database import open_database
from lmagent.testing.conformance import DispatcherConformance
from lmagent.testing.fakes import FakeClock

WORKER = Path(__file__).with_name("dispatch_worker.py")


@pytest.fixture
def tables(tmp_path):
    made: list[JobTable] = []
    alive = {"me", "other"}

    def make(owner: str = "me") -> JobTable:
        path = tmp_path / "state.db"
        table = JobTable(lambda: open_database(path), path, owner, lambda name: name in alive)
        made.append(table)
        return table

    make.alive = alive  # type: ignore[attr-defined]
    yield make
    for table in made:
        table.close()


class TestEmbeddedDispatcher(DispatcherConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tables) -> None:
        self.tables = tables

    def make(self) -> tuple[Dispatcher, Clock]:
        clock = FakeClock(auto=True)
        return EmbeddedDispatcher(self.tables(), clock), clock


class TestEmbeddedDispatcherInRealTime(DispatcherConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tables) -> None:
        self.tables = tables

    def make(self) -> tuple[Dispatcher, Clock]:
        clock = SystemClock()
        return EmbeddedDispatcher(self.tables(), clock, backoff=0.001), clock


def test_what_was_submitted_is_there_for_another_process(tables):
    tables().add(DispatchJob("one", "lane"))
    (claim,) = tables("other").claim(0.0, 8, LEASE)
    assert claim.job == DispatchJob("one", "lane")


def test_two_processes_never_hold_one_lane(tables):
    first, second = tables(), tables("other")
    for number in range(3):
        first.add(DispatchJob(str(number), "lane"))
    assert [claim.job.id for claim in first.claim(0.0, 8, LEASE)] == ["0"]
    assert second.claim(0.0, 8, LEASE) == []


def test_the_job_of_a_process_that_is_gone_is_taken_over_at_once(tables):
    first, second = tables(), tables("other")
    first.add(DispatchJob("one", "lane"))
    first.claim(0.0, 8, LEASE)
    tables.alive.discard("me")
    assert [claim.job.id for claim in second.claim(1.0, 8, LEASE)] == ["one"]


def test_the_job_of_a_process_that_stands_still_is_taken_over_when_its_lease_ends(tables):
    first, second = tables(), tables("other")
    first.add(DispatchJob("one", "lane"))
    first.claim(0.0, 8, LEASE)
    assert second.claim(LEASE - 1, 8, LEASE) == []
    first.renew(LEASE - 1, LEASE)
    assert second.claim(LEASE + 1, 8, LEASE) == []
    assert [claim.job.id for claim in second.claim(2 * LEASE, 8, LEASE)] == ["one"]


def test_who_was_taken_over_and_finished_all_the_same_has_the_last_word(tables):
    first, second = tables(), tables("other")
    first.add(DispatchJob("one", "lane"))
    (mine,) = first.claim(0.0, 8, LEASE)
    (theirs,) = second.claim(2 * LEASE, 8, LEASE)
    first.done(mine, 2 * LEASE)
    second.give_back(theirs, 0.0)
    assert first.counts() == {"done": 1}


def test_a_table_that_is_deleted_is_made_anew_and_knows_what_is_held(tables, tmp_path):
    first = tables()
    first.add(DispatchJob("one", "lane"))
    first.claim(0.0, 8, LEASE)
    for path in tmp_path.glob("state.db*"):
        path.unlink()
    first.add(DispatchJob("two", "lane"))
    assert first.claim(1.0, 8, LEASE) == []
    assert tables("other").claim(1.0, 8, LEASE) == []
    assert first.counts() == {"claimed": 1, "queued": 1}


def test_a_damaged_table_is_replaced(tables, tmp_path):
    first = tables()
    first.add(DispatchJob("one", "lane"))
    first.close()
    for path in tmp_path.glob("state.db-*"):
        path.unlink()
    (tmp_path / "state.db").write_bytes(b"no database" * 1000)
    assert tables().add(DispatchJob("one", "lane"))


def test_a_job_that_was_given_up_gets_another_chance_when_somebody_serves_anew(tables):
    table = tables()
    table.add(DispatchJob("one", "lane"))
    (claim,) = table.claim(0.0, 8, LEASE)
    table.failed(claim, "no", retry_at=None)
    assert table.claim(1e9, 8, LEASE) == []
    table.revive(1e9)
    assert len(table.claim(1e9, 8, LEASE)) == 1


def test_a_clock_that_is_put_back_or_ahead_loses_and_repeats_nothing(tables):
    class JumpingClock(FakeClock):
        jump = 0.0

        def now(self) -> float:
            return super().now() + self.jump

    clock = JumpingClock(auto=True)
    dispatcher = EmbeddedDispatcher(tables(), clock)
    ran: list[str] = []
    jumps = iter([-86400.0, 86400.0, 0.0, 7200.0, -7200.0])

    async def main() -> None:
        for number in range(10):
            await dispatcher.submit(DispatchJob(str(number), f"lane {number % 3}", clock.now() + number))
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def handler(job: DispatchJob) -> None:
                    ran.append(job.id)
                    clock.jump = next(jumps, 0.0)
                    if len(ran) == 10:
                        tasks.cancel_scope.cancel()

                tasks.start_soon(dispatcher.serve, handler)

    anyio.run(main)
    assert sorted(ran, key=int) == [str(number) for number in range(10)]


@pytest.mark.crash
def test_processes_that_are_killed_at_random_lose_nothing_and_keep_the_order(tmp_path):
    log = tmp_path / "log"
    path = tmp_path / "state.db"
    table = JobTable(lambda: open_database(path), path, "none", lambda _: True)
    for number in range(60):
        table.add(DispatchJob(f"{number % 6}-{number:03}", f"lane {number % 6}"))
    command = [sys.executable, str(WORKER), str(path), str(log)]
    try:
        for round in range(12):
            workers = [subprocess.Popen([*command, str(3 + round % 5)]) for _ in range(2)]
            for worker in workers:
                worker.wait(60)
        last = subprocess.run([*command, "0"], timeout=60, check=False)
        assert last.returncode == 0
        assert table.counts() == {"done": 60}
    finally:
        table.close()
    records = [json.loads(line) for line in log.read_text().splitlines()]
    ended = [record["job"] for record in records if record["what"] == "end"]
    assert set(ended) == {f"{number % 6}-{number:03}" for number in range(60)}
    for lane in range(6):
        mine = [record["job"] for record in records if record["job"].startswith(f"{lane}-")]
        assert mine == sorted(mine), "the order in a lane was not kept"
    assert os.path.getsize(path)
