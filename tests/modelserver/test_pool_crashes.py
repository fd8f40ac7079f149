"""What a crash and a failed load mean for the requests behind them."""

from __future__ import annotations

import anyio
import pytest
from pool_kit import entry, memory_pool, refused, run, settled, status

from lmagent.modelserver.spec import ModelServerError

pytestmark = pytest.mark.long


def test_a_load_that_fails_is_told_to_all_who_wait_and_not_tried_again_for_each():
    async def main() -> None:
        async with memory_pool(entry("a"), slow=True) as (pool, workers, clock):
            errors = []

            async def ask() -> None:
                errors.append(await refused(pool, "a"))

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(ask)
                await settled()
                workers.started[0].fail("the file is damaged")
            assert len(errors) == 5
            assert all("could not be loaded: the file is damaged" in error.message for error in errors)
            assert "the file is damaged" in status(pool, "a").reason
            assert "not tried again for" in (await refused(pool, "a")).message
            assert workers.names == ["a"]
            await clock.advance(3)
            workers.slow = False
            async with pool.lease("a"):
                assert status(pool, "a").reason == ""

    run(main)


def test_load_tries_at_once_what_failed_a_moment_ago():
    async def main() -> None:
        async with memory_pool(entry("a"), slow=True) as (pool, workers, _):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(refused, pool, "a")
                await settled()
                workers.started[0].fail("no luck")
            workers.slow = False
            assert (await pool.load("a")).state == "ready"

    run(main)


def test_a_crash_fails_its_own_requests_and_the_next_one_gets_a_new_worker():
    async def main() -> None:
        async with memory_pool(entry("a"), entry("b"), budget=20) as (pool, workers, _):
            async with pool.lease("b"):
                lost = None
                try:
                    async with pool.lease("a"):
                        workers.started[1].crash("out of ideas")
                        raise ConnectionResetError("the stream broke off")
                except ModelServerError as error:
                    lost = error
                assert lost is not None
                assert (lost.code, lost.status) == ("worker_crashed", 502)
                assert "out of ideas" in lost.message
                assert status(pool, "b").state == "ready"
            assert (status(pool, "a").state, status(pool, "a").crashes) == ("unloaded", 1)
            async with anyio.create_task_group() as tasks:
                got = []

                async def ask() -> None:
                    async with pool.lease("a") as running:
                        got.append(running.address)

                tasks.start_soon(ask)
                await settled()
            assert got == ["http://127.0.0.1:1002"]

    run(main)


def test_a_worker_that_just_died_is_not_given_away():
    async def main() -> None:
        async with memory_pool(entry("a")) as (pool, workers, clock):
            await pool.load("a")
            async with anyio.create_task_group() as tasks:
                workers.started[0].crash()  # and nobody has taken notice yet
                tasks.start_soon(pool.load, "a")
                await settled()
                await clock.advance(2)
            assert workers.names == ["a", "a"]
            assert status(pool, "a").state == "ready"

    run(main)


async def crash_once(pool, workers, clock) -> None:
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            async with pool.lease("a"):
                workers.started[-1].crash("it fell over")

        tasks.start_soon(ask)
        await settled()
        await clock.advance(10)
    await settled()


def test_three_crashes_put_a_model_in_quarantine_which_ends_and_load_lifts():
    async def main() -> None:
        async with memory_pool(entry("a")) as (pool, workers, clock):
            for _ in range(3):
                await crash_once(pool, workers, clock)
            row = status(pool, "a")
            assert (row.state, row.crashes) == ("quarantined", 3)
            assert "it fell over" in row.reason
            error = await refused(pool, "a")
            assert (error.status, error.code) == (503, "quarantined")
            assert "3 times in 10 minutes" in error.message
            assert "it fell over" in error.message
            assert "lmagent models load a" in error.fix
            await clock.advance(300)
            assert status(pool, "a").state == "unloaded"
            for _ in range(3):
                await crash_once(pool, workers, clock)
            assert status(pool, "a").state == "quarantined"
            assert (await pool.load("a")).state == "ready"

    run(main)
