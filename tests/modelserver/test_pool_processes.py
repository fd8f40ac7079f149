"""The pool over real processes: every request gets an answer or an error, and nothing is left."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import time
from contextlib import closing, suppress
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest
from pool_kit import noted, process_pool
from worker_kit import alive, fake_entry, group, until

from lmagent.modelserver.spec import ModelServerError, ModelSettings


class RealClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(anyio.sleep)


def post(running, body) -> str:
    """One request over a connection of its own."""
    address = urlsplit(running.address)
    with closing(http.client.HTTPConnection(address.hostname, address.port, timeout=60)) as connection:
        headers = {"Authorization": f"Bearer {running.key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        return connection.getresponse().read().decode()


async def ask(pool, name, words="hello", *, stream=False) -> str:
    """What a router does: a lease, a request, its answer."""
    body = {"messages": [{"role": "user", "content": words}], "stream": stream}
    async with pool.lease(name) as running:
        return await anyio.to_thread.run_sync(post, running, body)


def test_a_worker_answers_and_one_that_dies_in_a_request_fails_that_request(tmp_path):
    async def main() -> None:
        entries = [fake_entry(tmp_path, name) for name in ("a", "b")]
        async with process_pool(tmp_path, RealClock(), *entries, budget=1 << 34) as pool:
            assert '"content":"a ' in await ask(pool, "a")
            assert "[DONE]" in await ask(pool, "b", stream=True)
            for words in ("please crash", "half"):
                with pytest.raises(ModelServerError) as error:
                    await ask(pool, "a", words, stream=words == "half")
                assert error.value.code == "worker_crashed"
                assert "SIGSEGV" in error.value.message
            assert '"content":"a ' in await ask(pool, "a")
            assert "[DONE]" in await ask(pool, "b", stream=True)
            pids = [row.pid for row in pool.statuses()]
            assert all(alive(pid) for pid in pids)
        assert not any(alive(pid) for pid in pids)
        until(lambda: [group(pid) for pid in pids] == [[], []])

    anyio.run(main)


async def lift(pool, name) -> None:
    with suppress(ModelServerError):
        await pool.load(name)


async def kill_at_random(pool, chance, pids, answers) -> None:
    """Kill some worker again and again; lift every quarantine.

    Before each kill the workers have answered something: on a slow machine none would live until it has loaded.
    """
    answered = 0
    async with anyio.create_task_group() as tasks:
        while True:
            await anyio.sleep(0.4)
            rows = [row for row in pool.statuses() if row.pid]
            pids.update(row.pid for row in rows)
            if rows and len(answers) > answered:
                answered = len(answers)
                os.kill(chance.choice(rows).pid, signal.SIGKILL)
            for row in pool.statuses():
                if row.state == "quarantined":
                    tasks.start_soon(lift, pool, row.entry.name)


@pytest.mark.crash
def test_workers_killed_at_random_leave_no_request_without_an_answer_and_no_process(tmp_path):
    chance = random.Random(1)
    answers, errors, pids = [], [], set()

    async def client(pool) -> None:
        for _ in range(5):
            try:
                answers.append(await ask(pool, chance.choice("abc"), "slow:0.1", stream=chance.random() < 0.5))
            except (ModelServerError, OSError, http.client.HTTPException) as error:
                errors.append(error)
                await anyio.sleep(0.1)

    async def main() -> None:
        entries = [fake_entry(tmp_path, name) for name in ("a", "b", "c")]
        async with process_pool(tmp_path, RealClock(), *entries, budget=1 << 34) as pool:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kill_at_random, pool, chance, pids, answers)
                async with anyio.create_task_group() as clients:
                    for _ in range(20):
                        clients.start_soon(client, pool)
                tasks.cancel_scope.cancel()

    anyio.run(main)
    assert len(answers) + len(errors) == 100
    assert answers, errors[:6]
    assert all(isinstance(error, ModelServerError) for error in errors), errors
    assert all("[DONE]" in answer or '"content"' in answer for answer in answers)
    until(lambda: not any(group(pid) for pid in pids))


def test_fifty_alternating_clients_of_two_models_share_a_memory_for_one(tmp_path):
    async def main() -> None:
        # What fake workers take is measured in megabytes; with a budget of less than two of them only one fits.
        budget = 35 << 20
        entries = [fake_entry(tmp_path, name, needed=20 << 20) for name in ("a", "b")]
        done = []
        async with process_pool(tmp_path, RealClock(), *entries, budget=budget) as pool:

            async def client(number) -> None:
                name = "ab"[number % 2]
                for _ in range(2):
                    assert f'"content":"{name} ' in await ask(pool, name)
                    done.append(name)

            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(client, number)
            assert len(done) == 100
            assert all(row.crashes == 0 for row in pool.statuses())
            assert sum(bool(row.pid) for row in pool.statuses()) == 1

    anyio.run(main)


def test_a_model_that_is_idle_for_its_time_is_ended(tmp_path):
    async def main() -> None:
        entries = [fake_entry(tmp_path, "a", settings=ModelSettings(threads=1, ttl=0.3, sleep=0))]
        async with process_pool(tmp_path, RealClock(), *entries, budget=1 << 34, tick=0.05) as pool:
            pid = (await pool.load("a")).pid
            await noted(pool, "a: unloaded")
            assert not alive(pid)

    anyio.run(main)
