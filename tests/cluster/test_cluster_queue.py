"""The queue of a cluster: its port's suite, and two processes that serve one workspace."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager

import anyio
import pytest
from cluster_kit import Cluster, until
from testkit.postgres import postgres

from lmagent.app.clock import SystemClock
from lmagent.cluster.database import Database
from lmagent.cluster.queue import ClusterDispatcher
from lmagent.core.errors import ConfigError, StoreError
from lmagent.core.ports import Clock, Dispatcher, DispatchJob
from lmagent.dispatch.embedded import ATTEMPTS
from lmagent.testing.conformance import DispatcherConformance


def dispatcher_of(known: Cluster, workspace: str = "work", **options) -> ClusterDispatcher:
    """Return a dispatcher, as of a process of its own."""
    return ClusterDispatcher(known.store(workspace), SystemClock(), **{"backoff": 0.01, **options})


class TestClusterDispatcher(DispatcherConformance):
    @pytest.fixture(autouse=True)
    def _cluster(self, known: Cluster) -> None:
        self._made = known

    def make(self) -> tuple[Dispatcher, Clock]:
        return dispatcher_of(self._made), SystemClock()


@asynccontextmanager
async def served(
    dispatcher: ClusterDispatcher, ran: list[str], seconds: float = 0.0, ends: anyio.Event | None = None
) -> AsyncGenerator[None]:
    """Run jobs that take so many seconds, or until `ends` is set."""

    async def handler(job: DispatchJob) -> None:
        ran.append(job.id)
        await (ends.wait() if ends is not None else anyio.sleep(seconds))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatcher.serve, handler)
        yield
        tasks.cancel_scope.cancel()


def die(dispatcher: ClusterDispatcher, known: Cluster) -> None:
    """Let a process count as dead, although its handlers run on."""
    dispatcher.drain()
    known.sql(f"UPDATE job SET process = -1 WHERE process = {dispatcher._presence.id}")


def test_two_processes_share_the_jobs_and_run_each_once(known: Cluster) -> None:
    async def main() -> None:
        one, two = dispatcher_of(known, lanes=2), dispatcher_of(known, lanes=2)
        first: list[str] = []
        second: list[str] = []
        async with served(one, first, 0.02), served(two, second, 0.02):
            for number in range(40):
                await one.submit(DispatchJob(f"web:{number}", f"lane{number % 7}"))
            await until(lambda: len(first) + len(second) >= 40 and not (one.running or two.running))
        assert sorted(first + second) == sorted(f"web:{number}" for number in range(40))
        assert first
        assert second

    anyio.run(main)
    assert known.sql("SELECT count(*) FROM procrastinate_jobs") == "0"


def test_the_jobs_of_a_dead_process_run_elsewhere_within_the_lease(known: Cluster) -> None:
    async def main() -> None:
        dead, alive = dispatcher_of(known), dispatcher_of(known)
        ran: list[str] = []
        async with served(dead, ran, 60):
            await dead.submit(DispatchJob("web:1", "lane"))
            await until(lambda: ran == ["web:1"])
            die(dead, known)
            async with served(alive, ran):
                await until(lambda: ran == ["web:1", "web:1"], 3)
                await until(lambda: not alive.running)
        assert known.sql("SELECT state, run FROM job") == "done|2"

    anyio.run(main)


def test_a_process_that_was_taken_for_dead_changes_nothing_of_the_next_delivery(known: Cluster) -> None:
    async def main() -> None:
        stopped, other = dispatcher_of(known), dispatcher_of(known)
        ran: list[str] = []
        first, second = anyio.Event(), anyio.Event()
        async with served(stopped, ran, ends=first):
            await stopped.submit(DispatchJob("web:1", "lane"))
            await until(lambda: ran == ["web:1"])
            die(stopped, known)
            async with served(other, ran, ends=second):
                await until(lambda: bool(other.running))
                first.set()
                await until(lambda: not stopped.running)
                assert known.sql("SELECT state FROM job") == "queued"
                second.set()
                await until(lambda: not other.running)
        assert known.sql("SELECT state, run FROM job") == "done|2"

    anyio.run(main)


def test_users_come_before_cron_and_the_inbox(known: Cluster) -> None:
    async def main() -> None:
        dispatcher = dispatcher_of(known, lanes=1)
        for id in ("cron:night:1", "inbox:a", "web:1", "wait:2"):
            await dispatcher.submit(DispatchJob(id, id))
        ran: list[str] = []
        async with served(dispatcher, ran):
            await until(lambda: len(ran) == 4)
        assert ran == ["web:1", "wait:2", "cron:night:1", "inbox:a"]

    anyio.run(main)


def test_a_repeat_of_a_finished_job_is_known_to_another_process_for_a_day(known: Cluster) -> None:
    async def main() -> None:
        ran: list[str] = []
        dispatcher = dispatcher_of(known)
        async with served(dispatcher, ran):
            await dispatcher.submit(DispatchJob("web:1", "lane"))
            await until(lambda: ran == ["web:1"] and not dispatcher.running)
        await dispatcher_of(known).submit(DispatchJob("web:1", "lane"))
        assert known.sql("SELECT state FROM job") == "done"
        known.sql("UPDATE job SET changed = now() - interval '25 hours'")
        late = dispatcher_of(known)
        async with served(late, ran):
            await until(lambda: known.sql("SELECT count(*) FROM job") == "0")
            await late.submit(DispatchJob("web:1", "lane"))
            await until(lambda: ran == ["web:1", "web:1"])

    anyio.run(main)


def test_a_job_that_is_due_runs_although_the_process_that_submitted_it_has_gone(known: Cluster) -> None:
    async def main() -> None:
        clock = SystemClock()
        await dispatcher_of(known).submit(DispatchJob("wait:1", "lane", clock.now() + 0.5))
        ran: list[str] = []
        async with served(dispatcher_of(known), ran):
            assert ran == []
            await until(lambda: ran == ["wait:1"], 3)

    anyio.run(main)


def test_due_times_are_right_although_the_clock_of_the_machine_is_wrong(known: Cluster) -> None:
    class WrongClock(SystemClock):
        def now(self) -> float:
            return super().now() - 600

    async def main() -> None:
        dispatcher = dispatcher_of(known)
        dispatcher._clock = clock = WrongClock()
        ran: list[str] = []
        async with served(dispatcher, ran):
            await dispatcher.submit(DispatchJob("wait:1", "lane", clock.now() + 0.3))
            await until(lambda: ran == ["wait:1"], 3)

    anyio.run(main)


def test_a_job_that_failed_too_often_rests_with_its_reason_and_gets_another_chance(known: Cluster) -> None:
    async def main() -> None:
        rests: list[str] = []
        dispatcher = dispatcher_of(known, given_up=lambda job, error: rests.append(f"{job.id}: {error}"))
        tries: list[str] = []

        async def handler(job: DispatchJob) -> None:
            tries.append(job.id)
            if len(tries) <= ATTEMPTS:
                raise StoreError("the disk is full")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatcher.serve, handler)
            await dispatcher.submit(DispatchJob("web:1", "lane"))
            await until(lambda: bool(rests) and not dispatcher.running)
            assert rests == ["web:1: the disk is full"]
            assert known.sql("SELECT state, failure FROM job") == "due|the disk is full"
            known.sql("UPDATE job SET run_at = now()")
            await until(lambda: len(tries) == ATTEMPTS + 1)
            tasks.cancel_scope.cancel()

    anyio.run(main)


def test_a_draining_process_ends_its_jobs_and_another_takes_the_rest(known: Cluster) -> None:
    async def main() -> None:
        leaving, staying = dispatcher_of(known, lanes=1), dispatcher_of(known, lanes=1)
        first: list[str] = []
        second: list[str] = []
        async with served(leaving, first, 0.3):
            for number in range(3):
                await leaving.submit(DispatchJob(f"web:{number}", f"lane{number}"))
            await until(lambda: first == ["web:0"])
            leaving.drain()
            async with served(staying, second):
                await until(lambda: second == ["web:1", "web:2"] and not leaving.running)
        assert first == ["web:0"]
        assert known.sql("SELECT DISTINCT state FROM job") == "done"

    anyio.run(main)


def test_jobs_go_only_to_the_processes_that_serve_their_workspace(known: Cluster) -> None:
    async def main() -> None:
        ran: list[str] = []
        other, mine = dispatcher_of(known, "other"), dispatcher_of(known, "work")
        await other.submit(DispatchJob("web:1", "lane"))
        await mine.submit(DispatchJob("web:1", "lane"))
        async with served(mine, ran):
            await until(lambda: bool(ran) and not mine.running)
            await anyio.sleep(0.1)
        assert ran == ["web:1"]
        assert known.sql("SELECT workspace FROM job WHERE state = 'queued'") == "other"

    anyio.run(main)


def test_a_job_that_was_begun_without_the_answer_arriving_is_begun_again(known: Cluster) -> None:
    async def main() -> None:
        dispatcher = dispatcher_of(known)
        await dispatcher.submit(DispatchJob("web:1", "lane"))
        known.sql(f"SELECT * FROM job_take('work', {dispatcher._presence.id})")
        ran: list[str] = []
        async with served(dispatcher, ran):
            await until(lambda: ran == ["web:1"], 3)

    anyio.run(main)


def test_a_job_that_is_forgotten_while_a_worker_takes_it_is_passed_over(known: Cluster) -> None:
    async def main() -> None:
        dispatcher = dispatcher_of(known)
        for number in (1, 2):
            await dispatcher.submit(DispatchJob(f"web:{number}", "lane"))
        known.sql("DELETE FROM job WHERE id = 'web:1'")
        ran: list[str] = []
        async with served(dispatcher, ran):
            await until(lambda: ran == ["web:2"] and not dispatcher.running)
        assert known.sql("SELECT count(*) FROM procrastinate_jobs") == "0"

    anyio.run(main)


def test_cut_connections_and_a_restart_of_the_database_lose_no_job() -> None:
    async def main(made: Cluster, restart: Callable[[], None]) -> None:
        said: list[str] = []
        dispatcher = dispatcher_of(made, say=said.append)
        ran: list[str] = []
        async with served(dispatcher, ran, 0.05):
            for number in range(20):
                await dispatcher.submit(DispatchJob(f"web:{number}", f"lane{number % 4}"))
            await until(lambda: len(ran) >= 4)
            await anyio.to_thread.run_sync(restart)
            await until(lambda: len(set(ran)) == 20 and not dispatcher.running, 30)
            await dispatcher.submit(DispatchJob("web:20", "lane"))
            await until(lambda: ran[-1] == "web:20")
        assert len(ran) == 21, (ran, made.sql("SELECT id, run, state, changed FROM job ORDER BY run DESC LIMIT 3"))
        assert len(said) % 2 == 0

    with postgres() as server, ExitStack() as stack:
        known = Database(server.url())
        known.migrate()
        known.close()
        made = Cluster(server.url(), stack)

        def restart() -> None:
            server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            server.stop()
            server.start()

        anyio.run(main, made, restart)


def test_a_name_of_a_workspace_that_is_too_long_for_a_queue_is_refused(known: Cluster) -> None:
    with pytest.raises(ConfigError, match="longer than 40 bytes"):
        dispatcher_of(known, "w" * 41)
