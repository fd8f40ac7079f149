"""What others changed while a command ran is named before it is taken back; a store that is full refuses the call."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import anyio
import pytest

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.core.view import View
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    (empty_workspace / "notes.txt").write_text("mine\n")
    return empty_workspace


async def slash(host: Host, session: Session, line: str) -> str:
    return (await dispatch(line, SlashContext(host, session, View()))).text


async def play(workspace: Path, script, then, *, meanwhile=None) -> None:
    with ScriptedServer(script) as server:
        flags = {"llm_url": server.base_url, "permission_mode": "auto"}
        host = await open_host(HostOptions(workspace, flags), say=lambda _: None)
        try:
            session = await host.new_session()
            await session.send(Submit(message=user("do it")))
            async with anyio.create_task_group() as tasks:
                if meanwhile is not None:
                    tasks.start_soon(meanwhile)
                await run_until_idle(session)
            await then(host, session)
        finally:
            await host.aclose()


def a_user_at_work(workspace: Path):
    async def work() -> None:
        while not (workspace / "x").exists():  # noqa: ASYNC110  another process makes it
            await anyio.sleep(0.02)
        (workspace / "notes.txt").write_text("mine, edited\n")
        (workspace / "new.txt").write_text("mine too\n")

    return work


SHARED = r"The command ran for [2-9] s, so what you or another program changed"
LONG = [call("shell", command="echo y > x; sleep 1.6"), say("Done.")]


def test_what_the_user_changed_while_a_command_ran_is_named_and_redo_brings_it_back(workspace):
    async def then(host, session):
        assert re.search(SHARED, await slash(host, session, "/diff"))
        text = await slash(host, session, "/undo all")
        assert text.startswith("Undone: new.txt, notes.txt, x")
        assert re.search(SHARED, text)
        assert (workspace / "notes.txt").read_text() == "mine\n"
        await slash(host, session, "/redo all")
        assert (workspace / "notes.txt").read_text() == "mine, edited\n"
        assert (workspace / "new.txt").read_text() == "mine too\n"

    anyio.run(partial(play, meanwhile=a_user_at_work(workspace)), workspace, LONG, then)


def test_what_the_user_saved_once_more_is_left_alone(workspace):
    async def then(host, session):
        (workspace / "notes.txt").write_text("mine, saved once more\n")
        text = await slash(host, session, "/undo all")
        assert text.startswith("Undone: new.txt, x")
        assert "left alone: notes.txt" in text
        assert (workspace / "notes.txt").read_text() == "mine, saved once more\n"

    anyio.run(partial(play, meanwhile=a_user_at_work(workspace)), workspace, LONG, then)


def test_a_short_command_and_an_edit_are_taken_back_at_once(workspace):
    script = [call("shell", command="echo y > x"), call("write", path="w.txt", content="w"), say("Done.")]

    async def then(host, session):
        assert (await slash(host, session, "/undo")) == "Undone: w.txt"
        assert (await slash(host, session, "/undo")) == "Undone: x"

    anyio.run(play, workspace, script, then)


def full_disk(folder: Path) -> None:
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    (folder / "filling").write_bytes(b"x" * 200_000)


def test_a_call_is_refused_when_the_disk_of_the_store_is_full_and_the_session_goes_on(workspace, tmp_path):
    data = tmp_path / ".local" / "share" / "lmagent" / "undo"
    full_disk(data)
    (workspace / "big.txt").write_bytes(os.urandom(100_000))
    script = [
        call("shell", command="rm big.txt"),
        call("write", path="w.txt", content="theirs"),
        say("I could not."),
    ]

    async def then(host, session):
        events = list(host.store.read(session.state.session))
        results = [event for event in events if isinstance(event, ev.ToolFinished)]
        assert [event.status for event in results] == ["error", "ok"]
        assert results[0].data["code"] == "undo_failed"
        assert all(word in results[0].content for word in ("Not run", "the disk is full", "LMAGENT_UNDO_MB"))
        assert (workspace / "big.txt").exists()
        assert not any(isinstance(event, ev.ToolStarted) and event.tool == "shell" for event in events)
        assert [event.code for event in events if isinstance(event, ev.Notice)] == ["undo_failed"]
        assert (workspace / "w.txt").read_text() == "theirs"
        assert isinstance(events[-1], ev.TurnFinished)
        assert events[-1].outcome == "done"
        assert await slash(host, session, "/undo") == "Undone: w.txt"

    try:
        anyio.run(play, workspace, script, then)
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True, capture_output=True)
