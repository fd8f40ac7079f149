"""The pool lends, loads and ends workers."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from pool_kit import entry, memory_pool, refused, run, settled, status

from lmagent.modelserver.http.router import Router
from lmagent.modelserver.spec import LoadOptions, ModelEntry, ModelServerError


def test_first_requests_at_the_same_time_wait_for_one_load():
    async def main() -> None:
        async with memory_pool(entry("a"), slow=True) as (pool, workers, _):
            got = []

            async def ask() -> None:
                async with pool.lease("a") as running:
                    got.append(running)

            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(ask)
                await settled()
                assert (status(pool, "a").state, status(pool, "a").waiting) == ("loading", 10)
                workers.started[0].load()
            assert workers.names == ["a"]
            assert len(got) == 10
            assert (got[0].address, got[0].key, got[0].model) == ("http://127.0.0.1:1000", "key-1000", "a")
            row = status(pool, "a")
            assert (row.state, row.pid, row.requests, row.active, row.memory) == ("ready", 1000, 10, 0, 10)

    run(main)


def test_a_model_that_is_in_use_is_not_evicted_and_then_makes_room():
    async def main() -> None:
        async with memory_pool(entry("a"), entry("b")) as (pool, workers, _):
            order = []

            async def ask(name) -> None:
                async with pool.lease(name):
                    order.append(name)

            async with anyio.create_task_group() as tasks:
                async with pool.lease("a"):
                    tasks.start_soon(ask, "b")
                    await settled()
                    assert order == []
                    assert not workers.started[0].stopped
                    tasks.start_soon(ask, "a")  # behind `b`: it must not keep `a` busy for ever
                    await settled()
                    assert order == []
            assert order == ["b", "a"]
            assert workers.names == ["a", "b", "a"]

    run(main)


def test_what_was_measured_counts_and_not_what_was_estimated():
    async def main() -> None:
        async with memory_pool(entry("a", 6), entry("b", 6), entry("c", 6)) as (pool, workers, clock):
            workers.takes = {"a": 3}
            for name in ("a", "b"):
                await pool.load(name)
            assert not workers.started[0].stopped  # 3 + 6 fit into 10, though 6 + 6 would not
            workers.started[0].taken = 9
            await clock.advance(1)
            workers.started[0].taken = 1  # the most that it had while it is awake counts
            assert status(pool, "b").state == "ready"
            await pool.load("c")
            assert [worker.stopped for worker in workers.started] == [True, True, False]

    run(main)


def test_a_model_that_can_never_fit_is_refused_with_figures():
    async def main() -> None:
        async with memory_pool(entry("big", 20 << 30, parallel=2), budget=8 << 30) as (pool, workers, _):
            error = await refused(pool, "big")
            assert (error.status, error.code) == (507, "out_of_memory")
            assert "20.0 GiB of memory with a context of 4096 tokens x 2 slots" in error.message
            assert "8.0 GiB" in error.message
            assert "smaller context or a smaller quantisation" in error.fix
            assert workers.names == []

    run(main)


def test_an_idle_model_sleeps_then_goes_and_its_memory_is_given_to_others_meanwhile():
    async def main() -> None:
        models = entry("a", sleep=10, ttl=100), entry("b", sleep=0, ttl=0)
        async with memory_pool(*models) as (pool, workers, clock):
            async with pool.lease("a"):
                await clock.advance(200)  # a request that runs keeps it awake
                assert status(pool, "a").state == "ready"
            await clock.advance(5)
            assert (status(pool, "a").state, status(pool, "a").idle_s) == ("ready", 5)
            workers.started[0].taken = 0
            await clock.advance(10)
            assert status(pool, "a").state == "sleeping"
            async with pool.lease("b"):
                assert status(pool, "a").state == "sleeping"  # its memory is b's now
                assert not workers.started[0].stopped
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(pool.load, "a")
                    await settled()
                    assert status(pool, "a").state == "sleeping"  # to wake it, b would have to go
                    tasks.cancel_scope.cancel()
            await pool.load("a")
            assert workers.started[1].stopped
            assert (status(pool, "a").state, workers.names) == ("ready", ["a", "b"])
            await clock.advance(101)
            assert status(pool, "a").state == "unloaded"

    run(main)


def test_unload_waits_for_running_requests_and_lets_no_new_one_in_before():
    async def main() -> None:
        async with memory_pool(entry("a")) as (pool, workers, _), anyio.create_task_group() as tasks:
            done = []

            async def unload() -> None:
                done.append((await pool.unload("a")).state)

            async def ask() -> None:
                async with pool.lease("a") as running:
                    done.append(running.address)

            async with pool.lease("a"):
                tasks.start_soon(unload)
                await settled()
                tasks.start_soon(ask)
                await settled()
                assert done == []
                assert not workers.started[0].stopped
            await settled()
            assert len(done) == 2
            assert "http://127.0.0.1:1001" in done  # by another worker than the one that was unloaded

    run(main)


def test_options_of_a_load_hold_until_the_model_is_unloaded():
    async def main() -> None:
        async with memory_pool(entry("a")) as (pool, workers, _):
            await pool.load("a")
            await pool.load("a", LoadOptions(gpu_layers=8, flash_attention="on"))
            async with pool.lease("a"):
                pass
            await pool.load("a")
            await pool.unload("a")
            async with pool.lease("a"):
                pass
            given = [(worker.entry.settings.gpu_layers, worker.entry.settings.context) for worker in workers.started]
            assert given == [(-1, 4096), (8, 4096), (-1, 4096)]
            assert workers.started[0].stopped

    run(main)


def test_options_for_the_next_load_leave_a_model_that_is_loaded_as_it_is():
    async def main() -> None:
        async with memory_pool(entry("a")) as (pool, workers, _):
            assert pool.prefer("a", LoadOptions(gpu_layers=8)).entry.settings.gpu_layers == 8
            assert workers.names == []
            async with pool.lease("a"):
                assert pool.prefer("a", LoadOptions(gpu_layers=2)).entry.settings.gpu_layers == 8
            async with pool.lease("a"):
                pass
            assert [worker.entry.settings.gpu_layers for worker in workers.started] == [8]

    run(main)


def test_a_load_that_nobody_waits_for_is_broken_off_by_unload():
    async def main() -> None:
        async with memory_pool(entry("a"), slow=True) as (pool, workers, _):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pool.load, "a")
                await settled()
                tasks.cancel_scope.cancel()
            assert (await pool.unload("a")).state == "unloaded"
            assert workers.started[0].stopped
            assert status(pool, "a").reason == ""
            assert (await pool.unload("a")).state == "unloaded"

    run(main)


def test_a_model_whose_file_is_removed_while_it_is_loaded_can_be_unloaded():
    async def main() -> None:
        async with memory_pool(entry("a", ttl=0.0)) as (pool, workers, _):
            await pool.load("a")
            del pool.shelf.models["a"]
            router = Router(pool.shelf, pool)
            sent = []

            async def receive():
                return {"type": "http.request", "body": b'{"model": "a"}', "more_body": False}

            async def send(message):
                sent.append(message)

            head = {"method": "POST", "path": "/api/unload", "headers": [(b"host", b"localhost")]}
            await router.app({"type": "http", "query_string": b"", "root_path": "", **head}, receive, send)
            assert sent[0]["status"] == 200
            assert json.loads(sent[1]["body"])["state"] == "unloaded"
            assert workers.started[0].stopped
            assert pool.statuses() == []
            with pytest.raises(ModelServerError, match="no model"):
                await pool.unload("a")

    run(main)


def test_a_client_that_hangs_up_while_it_waits_leaves_no_trace():
    async def main() -> None:
        async with memory_pool(entry("a"), entry("b")) as (pool, _, _):
            async with pool.lease("a"):
                with anyio.move_on_after(0.05):
                    async with pool.lease("b"):
                        raise AssertionError("there is no room")
                assert status(pool, "b").waiting == 0
                async with pool.lease("a"):  # nobody blocks it any more
                    assert status(pool, "a").active == 2
            assert status(pool, "a").active == 0

    run(main)


def test_models_of_other_servers_are_lent_without_a_process():
    async def main() -> None:
        other = ModelEntry("far", "upstream", url="http://h:11434/v1", upstream="llama3", key="k")
        async with memory_pool(other, budget=1) as (pool, workers, _):
            async with pool.lease("far") as running:
                assert (running.address, running.key, running.model) == ("http://h:11434", "k", "llama3")
                assert (status(pool, "far").state, status(pool, "far").active) == ("ready", 1)
            assert workers.names == []
            assert (status(pool, "far").requests, status(pool, "far").active) == (1, 0)

    run(main)


def test_options_for_a_model_of_another_server_are_refused_and_not_kept():
    async def main() -> None:
        other = ModelEntry("far", "upstream", url="http://h:11434/v1", upstream="llama3")
        async with memory_pool(other, budget=1) as (pool, _, _):
            with pytest.raises(ModelServerError, match="model of another server, http://h:11434/v1") as error:
                await pool.load("far", LoadOptions(gpu_layers=8))
            assert (error.value.status, error.value.code) == (400, "model_elsewhere")
            assert pool.prefer("far", LoadOptions(gpu_layers=8)).entry.settings.gpu_layers == other.settings.gpu_layers
            assert (await pool.load("far")).state == "ready"

    run(main)


def test_what_the_library_knows_to_be_broken_is_not_tried():
    async def main() -> None:
        async with memory_pool(replace(entry("a"), broken="it is cut off")) as (pool, workers, _):
            error = await refused(pool, "a")
            assert (error.status, error.code) == (422, "model_broken")
            assert "it is cut off" in error.message
            assert (await refused(pool, "nothing")).status == 404
            assert workers.names == []

    run(main)


def test_new_settings_are_taken_with_the_next_request_that_finds_the_model_idle():
    async def main() -> None:
        async with memory_pool(entry("a")) as (pool, workers, _):
            async with pool.lease("a"):
                pass
            pool.shelf.models["a"] = entry("a", parallel=2)
            async with pool.lease("a") as running:
                assert running.entry.settings.parallel == 2
            assert workers.names == ["a", "a"]

    run(main)


def test_closing_refuses_requests_and_leaves_no_worker():
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            async with memory_pool(entry("a"), entry("b")) as (pool, workers, _):
                codes = []

                async def waits() -> None:
                    codes.append((await refused(pool, "b")).code)

                lease = pool.lease("a")
                await lease.__aenter__()
                tasks.start_soon(waits)
                await settled()
        assert codes == ["shutting_down"]
        assert workers.started[0].stopped
        await lease.__aexit__(None, None, None)
        assert (await refused(pool, "a")).code == "shutting_down"

    run(main)


def test_events_tell_what_happens(tmp_path):
    async def main() -> None:
        async with memory_pool(entry("a"), entry("b"), journal=tmp_path / "server.log") as (pool, workers, _):
            for name in ("a", "b"):
                async with pool.lease(name):
                    pass
            workers.started[1].crash("it fell over")
            await settled()
            lines = (tmp_path / "server.log").read_text().splitlines()
            assert [line.split(" ", 1)[1] for line in lines] == [
                "a: loading",
                "a: ready after 0.0 s, 0 MiB",
                "a: unloading, it makes room",
                "a: unloaded",
                "b: loading",
                "b: ready after 0.0 s, 0 MiB",
                "b: crashed, 0 requests lost: it fell over",
            ]
            assert pool.log("a") == Path("logs/a.log")

    run(main)
