"""Undo, redo and diff in a session: for edits and for commands, and never against the user."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import pytest

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.errors import LmagentError
from lmagent.core.messages import user
from lmagent.core.view import View
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    (empty_workspace / "a.txt").write_text("alpha\n")
    (empty_workspace / "b.txt").write_text("beta\n")
    return empty_workspace


async def slash(host: Host, session: Session, line: str) -> str:
    return (await dispatch(line, SlashContext(host, session, View()))).text


async def play(workspace: Path, script, then) -> None:
    with ScriptedServer(script) as server:
        flags = {"llm_url": server.base_url, "permission_mode": "auto"}
        host = await open_host(HostOptions(workspace, flags), say=lambda _: None)
        try:
            session = await host.new_session()
            await session.send(Submit(message=user("do it")))
            await run_until_idle(session)
            await then(host, session, server)
        finally:
            await host.aclose()


def test_an_edit_is_taken_back_and_done_again(workspace):
    script = [
        call("read", path="a.txt"),
        call("edit", path="a.txt", old_text="alpha", new_text="omega"),
        call("write", path="new/c.txt", content="new\n"),
        say("Done."),
        say("I see."),
    ]

    async def then(host, session, server):
        assert (workspace / "new/c.txt").exists()
        assert "+omega" in await slash(host, session, "/diff")
        assert "new/c.txt" in await slash(host, session, "/undo")
        assert not (workspace / "new").exists()
        assert "a.txt" in await slash(host, session, "/undo")
        assert (workspace / "a.txt").read_text() == "alpha\n"
        assert "changed nothing" in await slash(host, session, "/diff")
        assert "a.txt" in await slash(host, session, "/redo all")
        assert (workspace / "a.txt").read_text() == "omega\n"
        assert (workspace / "new/c.txt").read_text() == "new\n"
        await session.send(Submit(message=user("and now?")))
        await run_until_idle(session)
        assert "took back your changes" in str(server.chats[-1].body["messages"])
        assert server.prefix.breaks == []

    anyio.run(play, workspace, script, then)


@needs_bubblewrap
def test_what_a_command_destroyed_comes_back_and_the_users_own_change_stays(workspace):
    (workspace / "tree").mkdir()
    for number in range(200):
        (workspace / "tree" / f"{number}.txt").write_text(f"{number}\n")
    os.symlink("a.txt", workspace / "link")
    (workspace / "b.txt").chmod(0o755)
    script = [
        call("shell", command="rm -rf tree link; sed -i s/alpha/x/ a.txt; chmod 600 b.txt; echo made > made"),
        say("Gone."),
    ]

    async def then(host, session, _):
        assert not (workspace / "tree").exists()
        (workspace / "mine.txt").write_text("mine\n")
        (workspace / "made").write_text("mine now\n")
        text = await slash(host, session, "/undo")
        assert "left alone: made" in text
        assert sorted(os.listdir(workspace / "tree")) == sorted(f"{n}.txt" for n in range(200))
        assert (workspace / "tree/7.txt").read_text() == "7\n"
        assert os.readlink(workspace / "link") == "a.txt"
        assert (workspace / "a.txt").read_text() == "alpha\n"
        assert (workspace / "b.txt").stat().st_mode & 0o777 == 0o755
        assert (workspace / "mine.txt").read_text() == "mine\n"
        assert (workspace / "made").read_text() == "mine now\n"

    anyio.run(play, workspace, script, then)


@needs_bubblewrap
def test_a_turn_is_taken_back_as_a_whole_also_after_a_restart(workspace):
    script = [
        call("shell", command="echo 1 > one"),
        call("shell", command="echo 2 > two; rm a.txt"),
        say("Done."),
    ]

    async def then(host, session, server):
        name = session.state.session
        await host.aclose()
        flags = {"llm_url": server.base_url}
        again = await open_host(HostOptions(workspace, flags), say=lambda _: None)
        try:
            resumed = await again.open_session(name)
            text = await slash(again, resumed, "/undo turn")
            assert all(path in text for path in ("one", "two", "a.txt"))
        finally:
            await again.aclose()
        assert sorted(path for path in os.listdir(workspace) if path[0] != ".") == ["a.txt", "b.txt"]

    anyio.run(play, workspace, script, then)


def test_with_nothing_to_take_back_it_says_so(workspace):
    async def then(host, session, _):
        for line, word in (("/undo", "nothing to undo"), ("/redo", "nothing to redo"), ("/undo x", "does not know")):
            with pytest.raises(LmagentError, match=word):
                await slash(host, session, line)

    anyio.run(play, workspace, [say("Hi.")], then)


@needs_bubblewrap
def test_a_command_that_changes_nothing_leaves_no_trace_in_the_log(workspace):
    async def then(host, session, _):
        assert [event for event in host.store.read(session.state.session) if isinstance(event, ev.FilesChanged)] == []

    anyio.run(play, workspace, [call("shell", command="ls; cat a.txt"), say("Looked.")], then)
