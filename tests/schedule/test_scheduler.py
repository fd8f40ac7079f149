"""The scheduler at work in one process: waits, the inbox, cron jobs."""

from __future__ import annotations

import time

import anyio
from schedule_kit import (
    a_host,
    a_turn,
    endings,
    in_seconds,
    inputs,
    ledger,
    logs,
    run,
    scheduling,
    unfinished,
    until,
    write_jobs,
)

from lmagent.schedule.job_runner import occurrence_session
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say


def test_a_session_that_waits_is_woken_at_its_time(workspace):
    async def check() -> None:
        with ScriptedServer(
            [lambda _: say(f"WAIT: {in_seconds(3)}: the build"), say("The build is through.")]
        ) as server:
            async with a_host(workspace, server) as host:
                session, finished = await a_turn(host)
                name = session.state.session
                await host.release(name)
                async with scheduling(host):
                    await until(lambda: endings(workspace) == ["waiting", "done"])
            assert "You waited until" in server.chats[1].body["messages"][-1]["content"]
            assert "the build" in server.chats[1].body["messages"][-1]["content"]
            assert server.prefix.breaks == []
        received = (event for event in logs(workspace)[name] if event["type"] == "input.received")
        woken = next(event for event in received if event["origin"]["kind"] == "wait")
        assert 0 <= woken["ts"] - finished.until < 10

    run(check)


def test_a_session_whose_time_came_while_nobody_looked_is_woken_by_whoever_comes(workspace):
    async def check() -> None:
        with ScriptedServer([say("WAIT: +1s: a moment"), say("Done.")]) as server:
            async with a_host(workspace, server) as host:
                await a_turn(host)
            await anyio.sleep(1.2)
            for path in (workspace / ".lmagent").glob("state.db*"):
                path.unlink()
            async with a_host(workspace, server) as host, scheduling(host):
                await until(lambda: endings(workspace) == ["waiting", "done"])

    run(check)


def test_a_session_that_a_person_went_on_with_is_not_woken(workspace):
    async def check() -> None:
        with ScriptedServer([say("WAIT: in 3 hours: the release"), say("As you like.")]) as server:
            async with a_host(workspace, server) as host:
                session, _ = await a_turn(host)
                name = session.state.session
                await host.release(name)
                async with scheduling(host) as scheduler:
                    await until(lambda: scheduler.dispatcher.queue)
                    session = await host.open_session(name)
                    await a_turn(host, "never mind", session)
                    await host.release(name)
                    host.clock.shift = 4 * 3600.0
                    await until(lambda: not scheduler.dispatcher.queue)
        assert endings(workspace) == ["waiting", "done"]
        assert inputs(workspace) == ["cli:", "cli:"]

    run(check)


def test_a_wait_in_a_woken_turn_goes_on_and_on(workspace):
    async def check() -> None:
        replies = [say("WAIT: +1s: one"), say("WAIT: +1s: two"), say("WAIT: +1s: three"), say("All three.")]
        with ScriptedServer(replies) as server:
            async with a_host(workspace, server) as host:
                session, _ = await a_turn(host)
                await host.release(session.state.session)
                async with scheduling(host):
                    await until(lambda: endings(workspace) == ["waiting"] * 3 + ["done"])

    run(check)


def test_tasks_of_the_inbox_are_done_in_sessions_of_their_own(workspace):
    async def check() -> None:
        with ScriptedServer(lambda _: say("Done.")) as server:
            async with a_host(workspace, server) as host, scheduling(host) as scheduler:
                for number in range(5):
                    scheduler.inbox.submit(f"task {number}", time.time())
                await until(lambda: endings(workspace) == ["done"] * 5)
                await until(lambda: not scheduler.dispatcher.queue)
                assert scheduler.inbox.claim(time.time())[0] == []
        said = sorted(
            event["message"]["parts"][0]["text"]
            for events in logs(workspace).values()
            for event in events
            if event["type"] == "input.received"
        )
        assert said == [f"task {number}" for number in range(5)]

    run(check)


def test_nobody_is_asked_and_what_would_need_a_person_is_denied(workspace):
    async def check() -> None:
        script = [call("write", path="x.txt", content="x"), say("I could not write it.")]
        with ScriptedServer(script) as server:
            async with a_host(workspace, server) as host, scheduling(host) as scheduler:
                host.attended = True
                scheduler.inbox.submit("write x", time.time())
                await until(lambda: endings(workspace) == ["done"])
        assert not (workspace / "x.txt").exists()
        (events,) = logs(workspace).values()
        assert [event["by"] for event in events if event["type"] == "approval.resolved"] == ["unattended"]

    run(check)


def test_a_task_that_cannot_be_read_is_reported_and_kept(workspace):
    async def check() -> None:
        said: list[str] = []
        with ScriptedServer([]) as server:
            async with a_host(workspace, server) as host, scheduling(host, said) as scheduler:
                scheduler.inbox.folder.mkdir(parents=True)
                (scheduler.inbox.folder / "odd.task").write_bytes(b"\xff\xff")
                await until(lambda: any("is not UTF-8" in text for text in said))
                await until(lambda: not scheduler.dispatcher.queue)
        assert [path.read_bytes() for path in (workspace / ".lmagent/inbox/failed").iterdir()] == [b"\xff\xff"]
        assert not logs(workspace)

    run(check)


def test_a_cron_job_runs_when_it_is_due_and_its_times_are_on_record(workspace):
    async def check() -> None:
        write_jobs(workspace, {"id": "tick", "schedule": "every 1s", "prompt": "Tick."})
        with ScriptedServer(lambda _: say("Tock.")) as server:
            async with a_host(workspace, server) as host, scheduling(host):
                await until(lambda: sum(entry["what"] == "ran" for entry in ledger(workspace)) >= 3)
        ran = [entry for entry in ledger(workspace) if entry["what"] == "ran"]
        assert len({entry["at"] for entry in ran}) == len(ran)
        for entry in ran:
            assert entry["session"] == occurrence_session("tick", entry["at"])
            assert entry["outcome"] == "done"
            begun = next(event for event in logs(workspace)[entry["session"]] if event["type"] == "input.received")
            assert begun["origin"] == {"kind": "cron", "key": f"tick:{entry['at']}"}
            assert 0 <= begun["ts"] - entry["at"] < 10

    run(check)


def test_a_cron_job_with_a_session_goes_on_in_it(workspace):
    async def check() -> None:
        write_jobs(workspace, {"id": "tick", "schedule": "every 1s", "prompt": "Tick.", "session_id": "log"})
        with ScriptedServer(lambda _: say("Tock.")) as server:
            async with a_host(workspace, server) as host, scheduling(host):
                await until(lambda: len(endings(workspace)) >= 2)
            assert set(endings(workspace)) == {"done"}
            assert server.prefix.breaks == []
        assert list(logs(workspace)) == ["log"]

    run(check)


def test_a_job_that_missed_its_times_runs_once_when_a_scheduler_comes(workspace):
    async def check() -> None:
        write_jobs(workspace, {"id": "nightly", "schedule": "daily 02:30", "prompt": "Report."})
        said: list[str] = []
        with ScriptedServer(lambda _: say("Here it is.")) as server:
            async with a_host(workspace, server) as host:
                host.clock.shift = -5 * 86400
                async with scheduling(host):
                    await until(lambda: [entry["what"] for entry in ledger(workspace)] == ["on"])
            async with a_host(workspace, server) as host, scheduling(host, said):
                await until(lambda: [entry["what"] for entry in ledger(workspace)][-1] == "ran")
                await anyio.sleep(0.5)
        assert [entry["what"] for entry in ledger(workspace)] == ["on", "missed", "claimed", "ran"]
        assert "cron nightly: missed 4 times while no scheduler ran" in said

    run(check)


def test_a_startup_job_runs_once_for_all_schedulers_that_run(workspace):
    async def check() -> None:
        write_jobs(workspace, {"id": "hello", "schedule": "startup", "prompt": "Hello."})
        with ScriptedServer(lambda _: say("Hello!")) as server:
            async with a_host(workspace, server) as host, scheduling(host, startup=True):
                await until(lambda: endings(workspace) == ["done"])
                async with a_host(workspace, server) as other, scheduling(other, startup=True):
                    await anyio.sleep(0.5)
            assert endings(workspace) == ["done"]
            await anyio.sleep(1)
            async with a_host(workspace, server) as host, scheduling(host, startup=True):
                await until(lambda: endings(workspace) == ["done", "done"])

    run(check)


def test_a_bad_job_is_told_of_once_and_the_good_ones_run(workspace):
    async def check() -> None:
        said: list[str] = []
        write_jobs(
            workspace,
            {"id": "bad", "schedule": "evry 5m", "prompt": "x"},
            {"id": "good", "schedule": "every 1s", "prompt": "Tick."},
        )
        with ScriptedServer(lambda _: say("Tock.")) as server:
            async with a_host(workspace, server) as host, scheduling(host, said):
                await until(lambda: "done" in endings(workspace))
        (problem,) = [text for text in said if "'bad'" in text]  # the letters alone may be in a session's id
        assert "cron.json line 1: job 'bad': schedule: 'evry 5m' is not a valid schedule" in problem

    run(check)


def test_a_job_that_is_switched_off_while_it_is_scheduled_stops(workspace):
    async def check() -> None:
        job = {"id": "tick", "schedule": "every 1s", "prompt": "Tick."}
        write_jobs(workspace, job)
        with ScriptedServer(lambda _: say("Tock.")) as server:
            async with a_host(workspace, server) as host, scheduling(host):
                await until(lambda: endings(workspace))
                write_jobs(workspace, {**job, "enabled": False})
                await until(lambda: "off" in [entry["what"] for entry in ledger(workspace)])
                await until(lambda: not unfinished(workspace))  # what had begun by then is done
                before = len(endings(workspace))
                await anyio.sleep(1.5)
                assert len(endings(workspace)) == before

    run(check)


def test_two_schedulers_do_everything_once(workspace):
    async def check() -> None:
        write_jobs(workspace, {"id": "tick", "schedule": "every 1s", "prompt": "Tick."})
        with ScriptedServer(lambda _: say("Done.")) as server:
            async with a_host(workspace, server) as one, a_host(workspace, server) as two:
                async with scheduling(one) as first, scheduling(two):
                    for number in range(10):
                        first.inbox.submit(f"task {number}", time.time())
                    await until(lambda: sum(entry["what"] == "ran" for entry in ledger(workspace)) >= 3)
                    await until(lambda: sum(job.startswith("inbox:") for job in inputs(workspace)) == 10)
                    await until(lambda: len(endings(workspace)) >= 13)
        jobs = inputs(workspace)
        assert len(jobs) == len(set(jobs))
        claimed = [entry["at"] for entry in ledger(workspace) if entry["what"] == "claimed"]
        assert len(claimed) == len(set(claimed))

    run(check)


def test_a_scheduler_that_is_stopped_leaves_its_turns_to_the_next_one(workspace):
    async def check() -> None:
        slow = call("shell", command="true")
        with ScriptedServer([slow, say("Done.")]) as server:
            async with a_host(workspace, server) as host:
                begun = anyio.Event()

                async with scheduling(host) as scheduler:
                    scheduler.inbox.submit("a long task", time.time())
                    host.served, real = _Hanging(host.served, begun), host.served
                    await begun.wait()
                host.served = real
            assert endings(workspace) == []
            async with a_host(workspace, server) as host, scheduling(host):
                await until(lambda: endings(workspace) == ["done"])
        assert len(inputs(workspace)) == 1

    run(check)


class _Hanging:
    """A server whose replies never come."""

    def __init__(self, served, begun: anyio.Event) -> None:
        self._served, self._begun = served, begun

    def __getattr__(self, name: str):
        return getattr(self._served, name)

    def for_session(self, *arguments, **more):
        outer, session = self, self._served.for_session(*arguments, **more)

        class Waiting:
            conversation = getattr(session, "conversation", None)

            async def stream(self, request):
                outer._begun.set()
                await anyio.sleep_forever()
                yield session

            async def aclose(self) -> None: ...

        return Waiting()
