"""What somebody who watches a session sees of its commands in the background."""

from __future__ import annotations

import anyio
from planned import running

from lmagent.app.watching import SHOWN, Tree, WatchedJobs
from lmagent.core import events as ev
from lmagent.core.messages import user
from lmagent.testing.script import call, say
from lmagent.tools.shell import jobs


def start(command: str):
    return call("shell", command=command, background=True)


UNTIL = "until [ -e go ]; do sleep 0.05; done; exit 3"


def test_jobs_are_shown_while_they_run_and_with_how_they_ended(folder, monkeypatch):
    monkeypatch.setattr(jobs, "FIRST_LOOK", 1.5)  # in which one that ends at once is seen to have

    async def go() -> None:
        script = [start("sleep 60"), start(UNTIL), start("true"), say("Begun.")]
        script += [
            call("jobs", action="wait", id="job2", until="exit"),
            call("jobs", action="kill", id="job1"),
            say("x"),
        ]
        async with running(folder, *script, sandbox="off") as run:

            def shown() -> list[str]:
                lines = Tree(run.host.store, run.session.state.session).lines()
                return [line.strip() for line in lines if " job" in line]

            await run.submit("begin")
            assert shown()[:2] == ["▸ job1 sleep 60 (running)", f"▸ job2 {UNTIL} (running)"]
            assert shown()[2].startswith("✓ job3 true (exit code 0 after ")
            (folder / "go").touch()
            await run.submit("and now?")
            assert shown()[0].startswith("✗ job1 sleep 60 (killed after ")
            assert shown()[1].startswith(f"✗ job2 {UNTIL} (exit code 3 after ")

    anyio.run(go)


def test_a_job_whose_end_the_model_is_told_of_is_shown_as_ended(folder):
    async def go() -> None:
        async with running(folder, start("sleep 1; exit 2"), say("Begun."), say("It ended."), sandbox="off") as run:
            await run.submit("begin")
            with anyio.fail_after(20):
                while run.host.registry.is_busy(run.session.state.session):  # noqa: ASYNC110  it tells the next turn
                    await anyio.sleep(0.02)
            await run.submit("and now?")
            (line,) = [one for one in Tree(run.host.store, run.session.state.session).lines() if " job" in one]
            assert "job1 sleep 1; exit 2 (exit code 2 after " in line

    anyio.run(go)


def test_a_job_ends_with_the_program_that_ran_it(folder):
    async def go() -> tuple[object, str]:
        async with running(folder, start("sleep 60"), say("Begun."), sandbox="off") as run:
            await run.submit("begin")
            return run.host.store, run.session.state.session

    store, session = anyio.run(go)
    assert "  ✗ job1 sleep 60 (ended with the program)" in Tree(store, session).lines()


def test_a_log_that_says_odd_things_shows_nothing_odd():
    jobs = WatchedJobs()
    for at in range(SHOWN + 2):
        jobs.apply(ev.ToolStarted(call_id=f"c{at}", tool="shell", effect="exec", summary=f"shell sleep {at}"))
        data = {"job": f"job{at}"} if at else {"job": 7}
        jobs.apply(ev.ToolFinished(call_id=f"c{at}", tool="shell", status="ok", content="", data=data))
    jobs.apply(ev.ToolFinished(call_id="x", tool="mcp", status="ok", content="", data={"job": "job1", "state": "done"}))
    jobs.apply(ev.MessageAdded(message=user("<jobs>job1 ended: exit code 0 after 1.0 s</jobs>"), origin="input"))
    jobs.apply(ev.MessageAdded(message=user("<jobs>job2 ended: exit code 0 after 1.0 s</jobs>"), origin="note"))
    lines = list(jobs.lines(alive=True))
    assert lines[-1] == "… 1 earlier jobs"
    assert lines[0] == "✓ job2 sleep 2 (exit code 0 after 1.0 s)"
    assert all("running" in line for line in lines[1:-1])
