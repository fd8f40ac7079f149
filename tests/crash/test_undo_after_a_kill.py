"""SIGKILL at every event of a real run, and in the middle of a command: all that calls changed can be taken back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from test_crash import EVENTS, answer, run
from testkit.amount import spread

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
from lmagent.engine.undo import change_for_user, user_change
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

pytestmark = pytest.mark.long

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    (empty_workspace / "notes.txt").write_text("a note\n")
    return empty_workspace


def files(workspace: Path) -> dict[str, str]:
    paths = [path for path in workspace.rglob("*") if ".lmagent" not in path.parts and path.is_file()]
    return {str(path.relative_to(workspace)): path.read_text() for path in paths}


async def slash(host: Host, session: Session, line: str) -> str:
    return (await dispatch(line, SlashContext(host, session, View()))).text


async def after_a_restart(workspace: Path, *lines: str) -> tuple[list[str], list[ev.DurableEvent]]:
    """What slash commands answer in the newest session, and what was recorded when it was opened."""
    host = await open_host(HostOptions(workspace, {"llm_url": "http://127.0.0.1:9"}), say=lambda _: None)
    try:
        latest = host.latest()
        if latest is None:
            return [], []
        session = await host.open_session(latest)
        return [await slash(host, session, line) for line in lines if session.state.changes], session.opening
    finally:
        await host.aclose()


@pytest.mark.crash
@pytest.mark.parametrize("kill_at", spread(range(1, EVENTS + 1), 4))
def test_what_calls_changed_before_a_kill_is_taken_back_after_a_restart(workspace: Path, kill_at: int) -> None:
    first = files(workspace)
    with ScriptedServer(answer, strict=True) as server:
        killed = run(workspace, server, kill_at, "before", "leave three stamps and write out.txt")
    assert killed.returncode in (0, -signal.SIGKILL), killed.stderr.decode()
    anyio.run(after_a_restart, workspace, "/undo all")
    assert files(workspace) == first


def start(workspace: Path, server: ScriptedServer) -> subprocess.Popen[bytes]:
    flags = ("-w", str(workspace), "--base-url", server.base_url, "--permission", "auto")
    return subprocess.Popen(
        [sys.executable, "-m", "lmagent", *flags, "do it"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=workspace,
    )


def kill_during(workspace: Path, command: str) -> None:
    """Run a command that ends with the file `made`, and then sleeps, and kill the agent."""
    with ScriptedServer([call("shell", command=command), say("Done.")]) as server:
        agent = start(workspace, server)
        deadline = time.monotonic() + 30
        while not (workspace / "made").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        agent.kill()
        agent.wait()
    assert (workspace / "made").exists()


async def save_and_die(workspace: Path) -> None:
    """The user's own change, by a process that dies when the file is written, and before that is recorded."""
    host = await open_host(HostOptions(workspace, {"llm_url": "http://127.0.0.1:9"}), say=lambda _: None)
    session = await host.new_session()

    async def write() -> None:
        (workspace / "notes.txt").write_text("the user's\n")
        os.kill(os.getpid(), signal.SIGKILL)

    await change_for_user(session, user_change(session, "edit", "notes.txt", "web"), "edit notes.txt", write)


def test_what_the_user_saved_before_a_kill_is_taken_back_after_a_restart(workspace: Path) -> None:
    first = files(workspace)
    script = "import sys, anyio, pathlib; sys.path[:0] = sys.argv[2:]; import test_undo_after_a_kill as it\n"
    script += "anyio.run(it.save_and_die, pathlib.Path(sys.argv[1]))"
    places = [str(workspace), str(Path(__file__).parent), str(Path(__file__).parents[1])]
    assert subprocess.run([sys.executable, "-c", script, *places], check=False).returncode == -signal.SIGKILL
    assert files(workspace) != first
    (text,), opening = anyio.run(after_a_restart, workspace, "/undo")
    assert "notes.txt" in text
    assert files(workspace) == first
    assert any(isinstance(event, ev.Notice) and "edit notes.txt was cut off" in event.text for event in opening)


@needs_bubblewrap
def test_a_command_that_was_killed_with_the_agent_is_taken_back_after_a_restart(workspace: Path) -> None:
    first = files(workspace)
    kill_during(workspace, "echo y > notes.txt; mkdir d; echo z > d/z; > made; sleep 60")
    (shown, text), opening = anyio.run(after_a_restart, workspace, "/diff", "/undo all")
    assert all(path in text for path in ("notes.txt", "d/z", "made"))
    assert "another program changed" in text
    assert "+y" in shown
    assert files(workspace) == first
    told = [event.text for event in opening if isinstance(event, ev.Notice)]
    assert any("was cut off; 4 paths changed" in line for line in told)


@needs_bubblewrap
def test_a_killed_command_is_recorded_once_and_its_state_is_let_go_of(workspace: Path, tmp_path: Path) -> None:
    kill_during(workspace, "echo y > notes.txt; > made; sleep 60")
    kept = list(tmp_path.glob(".local/share/lmagent/undo/*/running/*"))
    assert len(kept) == 1
    for _ in range(2):
        anyio.run(after_a_restart, workspace)
    (log,) = workspace.glob(".lmagent/sessions/*/events.jsonl")
    changed = [event for event in map(ev.decode, log.read_bytes().splitlines()) if isinstance(event, ev.FilesChanged)]
    assert [(event.interrupted, event.count) for event in changed] == [(True, 2)]
    assert not any(path.exists() for path in kept)


@needs_bubblewrap
def test_a_killed_command_can_still_be_taken_back_after_the_store_was_tidied(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session's end drops the oldest contents; nothing in a log refers to those of the killed call yet."""
    (workspace / "notes.txt").write_bytes(b"x" * 700_000)
    (workspace / "other.txt").write_bytes(b"y" * 700_000)
    first = files(workspace)
    kill_during(workspace, "rm notes.txt other.txt; > made; sleep 60")
    monkeypatch.setenv("LMAGENT_UNDO_MB", "1")

    async def another() -> None:
        with ScriptedServer([call("shell", command="echo x > new.txt"), say("Done.")]) as server:
            flags = {"llm_url": server.base_url, "permission_mode": "auto"}
            host = await open_host(HostOptions(workspace, flags), say=lambda _: None)
            session = await host.new_session()
            await session.send(Submit(message=user("go")))
            await run_until_idle(session)
            await slash(host, session, "/undo")
            await host.aclose()

    killed = next(workspace.glob(".lmagent/sessions/*")).name
    anyio.run(another)

    async def back() -> None:
        host = await open_host(HostOptions(workspace, {"llm_url": "http://127.0.0.1:9"}), say=lambda _: None)
        session = await host.open_session(killed)
        await slash(host, session, "/undo all")
        await host.aclose()

    anyio.run(back)
    assert files(workspace) == first
