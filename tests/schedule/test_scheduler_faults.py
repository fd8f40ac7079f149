"""What goes wrong around a scheduler: clocks, tables, servers, files that are being written."""

from __future__ import annotations

import time

import anyio
import pytest
from schedule_kit import a_host, a_turn, endings, inputs, ledger, run, scheduling, until, write_jobs

from lmagent.app.runner import Runner
from lmagent.core.errors import StoreError
from lmagent.dispatch import embedded
from lmagent.schedule.ledger import Ledger
from lmagent.schedule.scheduler import Scheduler
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say


def test_a_clock_that_is_set_ahead_wakes_what_waits_and_one_that_is_put_back_repeats_nothing(workspace):
    async def check() -> None:
        write_jobs(workspace, {"id": "nightly", "schedule": "daily 02:30", "prompt": "Report."})
        with ScriptedServer([say("WAIT: in 3 hours: the release"), *[say("Done.")] * 9]) as server:
            async with a_host(workspace, server) as host:
                session, _ = await a_turn(host)
                await host.release(session.state.session)
                async with scheduling(host):
                    await until(lambda: ledger(workspace))
                    host.clock.shift = 2 * 86400.0
                    await until(lambda: sorted(endings(workspace)) == ["done", "done", "waiting"])
                    host.clock.shift = 0.0
                    await anyio.sleep(1)
                    host.clock.shift = 2 * 86400.0
                    await anyio.sleep(1)
        assert sorted(endings(workspace)) == ["done", "done", "waiting"]

    run(check)


def test_a_fault_in_one_session_is_told_and_stops_no_other(workspace):
    async def check() -> None:
        said: list[str] = []
        broken: set[str] = set()

        def note(session: str) -> str:
            if session in broken or not broken:
                broken.add(session)
                raise RuntimeError("a note that fails")
            return ""

        with ScriptedServer(lambda _: say("Done.")) as server:
            async with a_host(workspace, server) as host:
                host.registry.session_notes.append(note)
                async with scheduling(host, said) as scheduler:
                    scheduler.inbox.submit("one task", time.time())
                    scheduler.inbox.submit("another task", time.time())
                    await until(lambda: endings(workspace) == ["done"])
                    await until(lambda: any("unexpected error: RuntimeError: a note that fails" in t for t in said))

    run(check)


@pytest.mark.parametrize("kind", ["inbox", "cron", "wait"])
def test_work_that_no_model_server_can_be_reached_for_is_done_when_there_is_one(workspace, kind):
    async def check() -> None:
        said: list[str] = []
        with ScriptedServer([]) as server:
            gone = server.base_url
        if kind == "wait":
            with ScriptedServer([say("WAIT: +1s: a moment")]) as server:
                async with a_host(workspace, server) as host:
                    await a_turn(host)
        with ScriptedServer(lambda _: say("Done."), strict=True) as server:
            async with a_host(workspace, server, llm_url=gone, llm_max_retries=1) as host:
                async with scheduling(host, said) as scheduler:
                    if kind == "inbox":
                        scheduler.inbox.submit("a task", time.time())
                    elif kind == "cron":
                        write_jobs(workspace, {"id": "tick", "schedule": "every 1s", "prompt": "Tick."})
                    await until(lambda: any("the turn waits for the model server" in text for text in said))
            assert "done" not in endings(workspace)
            assert "error" not in endings(workspace)
            async with a_host(workspace, server) as host, scheduling(host):
                await until(lambda: "done" in endings(workspace))
            assert server.objections == []
        jobs = [job for job in inputs(workspace) if job.startswith(kind)]
        assert jobs
        assert len(jobs) == len(set(jobs))

    run(check)


def test_work_that_no_model_server_was_there_for_in_a_day_ends_as_an_error(workspace):
    async def check() -> None:
        said: list[str] = []
        with ScriptedServer([]) as server:
            gone = server.base_url
        with ScriptedServer([]) as server:
            async with a_host(workspace, server, llm_url=gone, llm_max_retries=1) as host:
                async with scheduling(host, said) as scheduler:
                    scheduler.inbox.submit("a task", time.time())
                    await until(lambda: any("the turn waits for the model server" in text for text in said))
                    host.clock.shift = 86400.0
                    await until(lambda: endings(workspace) == ["error"])
                    await until(lambda: not scheduler.dispatcher.queue)

    run(check)


@pytest.mark.parametrize("between", ["", '[{"id": "tick", "sched', None])
def test_a_job_whose_file_is_being_rewritten_is_neither_dropped_nor_begun_anew(workspace, between):
    async def check() -> None:
        job = {"id": "nightly", "schedule": "daily 02:30", "prompt": "Report."}
        write_jobs(workspace, job)
        with ScriptedServer(lambda _: say("Here it is.")) as server:
            async with a_host(workspace, server) as host:
                host.clock.shift = -86400
                async with scheduling(host):
                    await until(lambda: ledger(workspace))
            async with a_host(workspace, server) as host:
                file, claim = workspace / "cron.json", Ledger.append

                def claim_and_rewrite(self, *entries):
                    claim(self, *entries)
                    if any(entry.what == "claimed" for entry in entries):
                        file.unlink() if between is None else file.write_text(between)

                scheduler = Scheduler(Runner(host, lambda _: None))
                scheduler.ledger.append = claim_and_rewrite.__get__(scheduler.ledger)  # type: ignore[method-assign]
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(scheduler.run)
                    await until(lambda: ledger(workspace)[-1]["what"] == "claimed")
                    await anyio.sleep(1.5)
                    assert ledger(workspace)[-1]["what"] == "claimed"
                    write_jobs(workspace, job)
                    await until(lambda: ledger(workspace)[-1]["what"] == "ran")
                    tasks.cancel_scope.cancel()
        assert [entry["what"] for entry in ledger(workspace)] == ["on", "claimed", "ran"]
        assert endings(workspace) == ["done"]

    run(check)


def test_a_job_whose_session_is_open_elsewhere_says_so_once_and_runs_when_that_is_closed(workspace):
    async def check() -> None:
        write_jobs(workspace, {"id": "tick", "schedule": "every 1s", "prompt": "Tick.", "session_id": "log"})
        said: list[str] = []
        with ScriptedServer(lambda _: say("Tock.")) as server:
            async with a_host(workspace, server) as person, a_host(workspace, server) as host:
                await person.new_session("log")
                async with scheduling(host, said):
                    await until(lambda: any("waits until session log is closed" in text for text in said))
                    await anyio.sleep(2.5)
                    assert sum("waits until" in text for text in said) == 1
                    assert not endings(workspace)
                    await person.release("log")
                    await until(lambda: endings(workspace))

    run(check)


def test_a_job_that_is_removed_for_good_counts_no_more(workspace):
    async def check() -> None:
        write_jobs(workspace, {"id": "tick", "schedule": "daily 02:30", "prompt": "Tick."})
        with ScriptedServer([]) as server:
            async with a_host(workspace, server) as host, scheduling(host):
                await until(lambda: ledger(workspace))
                (workspace / "cron.json").unlink()
                await until(lambda: ledger(workspace)[-1]["what"] == "off")

    run(check)


def test_a_clock_that_was_hours_ahead_and_is_set_right_does_not_silence_a_job(workspace):
    async def check() -> None:
        write_jobs(workspace, {"id": "tick", "schedule": "every 1s", "prompt": "Tick."})
        with ScriptedServer(lambda _: say("Tock.")) as server:
            async with a_host(workspace, server) as host:
                host.clock.shift = 20 * 3600.0
                async with scheduling(host):
                    await until(lambda: endings(workspace))
                    host.clock.shift = 0.0
                    before = len(endings(workspace))
                    await until(lambda: len(endings(workspace)) >= before + 3)
        jobs = inputs(workspace)
        assert len(jobs) == len(set(jobs))

    run(check)


def test_a_job_that_was_given_up_is_tried_again_by_a_scheduler_that_goes_on(workspace, monkeypatch):
    monkeypatch.setattr(embedded, "REST", 3.0)

    async def check() -> None:
        said: list[str] = []
        broken = True

        def note(session: str) -> str:
            if broken:
                raise StoreError("the disk is full")
            return ""

        with ScriptedServer([say("Done.")]) as server:
            async with a_host(workspace, server) as host:
                host.registry.session_notes.append(note)
                scheduler = Scheduler(Runner(host, said.append))
                scheduler.dispatcher._backoff = 0.001
                scheduler.inbox.submit("a task", time.time())
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(scheduler.run)
                    await until(lambda: any("failed several times" in text for text in said))
                    broken = False
                    await until(lambda: endings(workspace) == ["done"])
                    tasks.cancel_scope.cancel()

    run(check)
