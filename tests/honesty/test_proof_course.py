"""The check as a call of lmagent's own: permission, Stop, a crash at each of its events, trust, and the view."""

from __future__ import annotations

import json
import shutil

import anyio
import pytest
from playing import RUNS, play, play_replies

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Continue, Interrupt, Submit, Undo
from lmagent.core.messages import user
from lmagent.core.view import NoticeBlock, ToolBlock, View, reduce
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

READ = call("read", path="calc.py")
FIX = call("edit", path="calc.py", old_text="a - b", new_text="a + b")
WORSE = call("edit", path="calc.py", old_text="a - b", new_text="a * a + b")
MEND = call("edit", path="calc.py", old_text="a * a + b", new_text="a + b")


@pytest.fixture
def project(folder):
    for name, content in RUNS["files"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder


def log_of(project):
    (path,) = project.glob(".lmagent/sessions/*/events.jsonl")
    return path


def kinds(project) -> list[tuple[str, str]]:
    """The events of lmagent's own calls."""
    events = [json.loads(line) for line in log_of(project).read_text().splitlines()]
    return [(one["type"], one.get("status", "")) for one in events if one.get("call_id", "").startswith("lmagent-")]


async def watched(project, replies, react, **flags):
    """A turn in which `react` answers the view after each event; returns its end and the last view."""
    views = [View()]
    with ScriptedServer(replies) as server:
        given = {"llm_url": server.base_url, "sandbox": "off", "permission_allow": ("edit",), **flags}
        host = await open_host(HostOptions(project, given, attended=True), say=lambda _: None)
        try:
            session = await host.new_session()
            wake_send, wake = anyio.create_memory_object_stream[View](1000)

            def listen(event: ev.Event) -> None:
                views.append(reduce(views[-1], event))
                wake_send.send_nowait(views[-1])

            session.listen(listen)
            await session.send(Submit(message=user("Mend it.")))

            async def answer() -> None:
                async for view in wake:
                    await react(session, view)

            end = None
            async with wake_send, wake, anyio.create_task_group() as tasks:
                tasks.start_soon(answer)
                end = await run_until_idle(session)
                tasks.cancel_scope.cancel()
            assert end is not None
            return end, views[-1]
        finally:
            await host.aclose()


@pytest.mark.parametrize(("approved", "proof"), [(True, "verified"), (False, "unchecked")])
def test_a_check_that_needs_permission_asks_the_user(project, approved, proof):
    asked: list[str] = []

    async def react(session, view):
        for pending in view.approvals:
            if pending.id not in asked:
                asked.append(pending.id)
                assert pending.summary == "shell make test"
                await session.send(Approve(approval=pending.id, approved=approved))

    end, view = anyio.run(lambda: watched(project, [READ, FIX, say("Done.")], react, check="ask"))
    assert (end.outcome, end.proof, len(asked)) == ("done", proof, 1)
    notices = [block.text for block in view.blocks if isinstance(block, NoticeBlock)]
    assert any(text.startswith(f"{proof}: ") for text in notices)


def test_the_view_shows_the_check_like_a_call(project):
    async def react(session, view):
        return None

    _, view = anyio.run(lambda: watched(project, [READ, FIX, say("Done.")], react, check="auto"))
    (block,) = [one for one in view.blocks if isinstance(one, ToolBlock) and one.call_id.startswith("lmagent-")]
    assert (block.summary, block.status) == ("shell make test", "ok")


def test_stop_ends_a_check_that_runs(project):
    sent: list[str] = []

    async def react(session, view):
        running = [one for one in view.blocks if isinstance(one, ToolBlock) and one.status == "running"]
        if not sent and any(one.call_id.startswith("lmagent-") for one in running):
            sent.append("stop")
            await session.send(Interrupt())

    flags = {"check": "auto", "check_commands": ("sleep 600",)}
    end, view = anyio.run(lambda: watched(project, [READ, FIX, say("Done.")], react, **flags))
    assert (end.outcome, end.cause) == ("interrupted", "interrupt")
    assert not [one for one in view.blocks if isinstance(one, ToolBlock) and one.status == "running"]
    assert kinds(project)[-1] == ("tool.finished", "interrupted")


async def resumed(project):
    def answer(received):
        """What the model does after the check has failed: it mends the code once."""
        return MEND if "a * a" in (project / "calc.py").read_text() else say("Mended.")

    with ScriptedServer(answer) as server:
        given = {"llm_url": server.base_url, "permission_mode": "auto", "sandbox": "off", "check": "auto"}
        host = await open_host(HostOptions(project, given), say=lambda _: None)
        try:
            session = await host.open_session(log_of(project).parent.name)
            await session.send(Continue())
            end = await run_until_idle(session)
            return end, session.state
        finally:
            await host.aclose()


def test_a_crash_at_every_event_of_a_check_ends_in_the_same_verdict(project, tmp_path):
    replies = [READ, WORSE, say("Done."), MEND, say("Mended.")]
    (whole,) = anyio.run(lambda: play_replies(project, replies, ["Mend it."], check="auto"))
    assert whole.proof == "verified"
    lines = log_of(project).read_bytes().splitlines(keepends=True)
    own = [at for at, line in enumerate(lines) if b'"call_id":"lmagent-' in line]
    for cut in range(own[0], len(lines)):
        copy = tmp_path / f"copy{cut}"
        shutil.copytree(project, copy)
        log_of(copy).write_bytes(b"".join(lines[:cut]).replace(str(project).encode(), str(copy).encode()))
        if sum(b'"type":"files.changed"' in line and b'"tool":"edit"' in line for line in lines[:cut]) < 2:
            (copy / "calc.py").write_text(RUNS["files"]["calc.py"].replace("a - b", "a * a + b"))  # as it was then
        end, state = anyio.run(resumed, copy)
        assert end is not None
        assert (end.outcome, end.proof) == ("done", "verified"), (cut, end.proof_reason)
        assert not state.started
        assert kinds(copy).count(("tool.started", "")) == sum(kind == "tool.finished" for kind, _ in kinds(copy))
        assert log_of(copy).read_bytes().splitlines()[:cut] == [
            line.rstrip(b"\n").replace(str(project).encode(), str(copy).encode()) for line in lines[:cut]
        ]


def test_a_folder_that_is_not_trusted_names_no_check_and_switches_none_on(project):
    config = project / ".lmagent" / "config.toml"
    config.parent.mkdir()
    config.write_text('check = "auto"\ncheck_timeout = 1\ncheck_commands = ["touch ../ran"]\n')
    (end,) = anyio.run(lambda: play_replies(project, [READ, FIX, say("Done.")], ["Mend it."]))
    assert (end.proof, kinds(project)) == ("unchecked", [])
    shutil.rmtree(project / ".lmagent" / "sessions")
    (project / "calc.py").write_text(RUNS["files"]["calc.py"])
    (end,) = anyio.run(lambda: play_replies(project, [READ, FIX, say("Done.")], ["Mend it."], check="auto"))
    assert end.proof_reason == "make test passed after the last change"
    assert not (project.parent / "ran").exists()


def test_a_change_that_the_user_took_back_needs_no_check(project):
    async def main():
        with ScriptedServer([READ, FIX, say("Done."), say("It subtracts.")]) as server:
            given = {"llm_url": server.base_url, "permission_mode": "auto", "sandbox": "off"}
            host = await open_host(HostOptions(project, given), say=lambda _: None)
            try:
                session = await host.new_session()
                await session.send(Submit(message=user("Mend it.")))
                first = await run_until_idle(session)
                await session.send(Undo())
                await session.send(Submit(message=user("What does it do?")))
                return first, await run_until_idle(session)
            finally:
                await host.aclose()

    first, second = anyio.run(main)
    assert first is not None
    assert second is not None
    assert (first.proof, second.proof) == ("unchecked", "")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")
def test_in_bubblewrap_an_earlier_command_cannot_prepare_the_check(folder):
    poison = "printf 'import os\\nos._exit(0)\\n' > $(python3 -m site --user-site)/usercustomize.py"
    prepare = ["shell", {"command": f"mkdir -p $(python3 -m site --user-site) && {poison}"}]
    lied = anyio.run(lambda: play(folder, {"calls": ["worse", prepare]}, check="auto", sandbox="bubblewrap"))
    assert (lied.proof, lied.proof_reason) == ("failed", "make test failed (exit code 2)")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")
def test_in_bubblewrap_a_harmless_earlier_command_leaves_the_work_verified(folder):
    run = {"calls": [["shell", {"command": "mkdir -p ~/x; echo hi > notes.md"}], "fix"]}
    assert anyio.run(lambda: play(folder, run, check="auto", sandbox="bubblewrap")).proof == "verified"
