"""Sessions of sub-agents in the lists, in exports, and watched live from another process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
from agents_kit import a_host, by_brief, children_of, do, report, use

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, hang, say

SCRIPT = {
    "": [use("delegate", objective="write it"), say("All done.")],
    "write it": [call("write", path="a.txt", content="hello\n"), report(summary="It says hello.")],
}


def cli(workspace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lmagent", "sessions", "-w", str(workspace), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(workspace)},
        cwd=workspace,
        timeout=60,
        check=False,
    )


def played(workspace: Path) -> tuple[str, str]:
    """Ids of a session and its sub-agent's."""

    async def main() -> tuple[str, str]:
        with ScriptedServer(by_brief(SCRIPT)) as server:
            async with a_host(workspace, server) as host:
                session = await host.new_session()
                await do(session, "have it written")
                assert host.latest() == session.state.session
                return session.state.session, children_of(host, session)[0]

    return anyio.run(main)


def test_the_list_shows_sub_agents_below_their_session_when_they_are_asked_for(tmp_path: Path) -> None:
    main, child = played(tmp_path)
    plain, whole, found = (cli(tmp_path, "list", *more).stdout for more in ((), ("--all",), ("--search", "objective")))
    assert main in plain
    assert child not in plain
    _, first, second = whole.splitlines()
    assert first.startswith(main)
    assert second.startswith(child)
    assert "↳ write it" in second
    assert child in found, "what is looked for is found wherever it was said"


def test_a_sub_agents_session_is_shown_and_exported_like_any_other(tmp_path: Path) -> None:
    _, child = played(tmp_path)
    shown = cli(tmp_path, "show", child)
    assert "write it" in shown.stdout
    assert "Created a.txt" in shown.stdout
    assert cli(tmp_path, "export", child, "--format", "html").returncode == 0


def test_what_a_model_called_the_work_commands_no_terminal(tmp_path: Path) -> None:
    _, child = played(tmp_path)
    log = tmp_path / ".lmagent" / "sessions" / child / "events.jsonl"
    log.write_text(log.read_text().replace("write it", r"write\u001b]0;it\u0007 \u202eit\r now"))
    listed, shown = cli(tmp_path, "list", "--all").stdout, cli(tmp_path, "show", child).stdout
    assert "↳ write]0;it it now" in listed
    for text in (listed, shown):
        assert not set(text) & {"\x1b", "\x07", "\u202e"}


def test_watching_a_session_that_has_ended_shows_its_end_and_ends(tmp_path: Path) -> None:
    main, child = played(tmp_path)
    lines = cli(tmp_path, "watch", main).stdout.splitlines()
    assert lines[0] == f"{main}  have it written"
    assert re.fullmatch(r"  done · turn 1 · 4 steps, [\d,]+ tokens", lines[1])
    assert lines[2] == f"  ↳ write it  [{child}]  ok"
    assert lines[3].startswith("      done · turn 1 · 2 steps")


def test_a_session_that_calls_itself_its_sub_agent_is_watched_all_the_same(tmp_path: Path) -> None:
    main, child = played(tmp_path)
    log = tmp_path / ".lmagent" / "sessions" / main / "events.jsonl"
    log.write_text(log.read_text().replace(f'"child":"{child}"', f'"child":"{main}"'))
    watched = cli(tmp_path, "watch", main)
    assert (watched.returncode, watched.stderr) == (0, "")
    assert watched.stdout.count("done · turn 1") == 1


def test_a_watcher_names_the_command_that_continues_an_interrupted_session(tmp_path: Path) -> None:
    _, child = played(tmp_path)
    log = tmp_path / ".lmagent" / "sessions" / child / "events.jsonl"
    log.write_text(log.read_text()[: log.read_text().rindex('{"type":"turn.finished"')])
    assert f"lmagent --resume {child} continues it" in cli(tmp_path, "watch", child).stdout


def watching(workspace: Path, session: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lmagent", "sessions", "-w", str(workspace), "watch", session],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(workspace)},
        cwd=workspace,
    )


def read_until(watcher: subprocess.Popen[str], words: str) -> str:
    assert watcher.stdout is not None
    for line in watcher.stdout:
        if words in line:
            return line
    raise AssertionError(f"{words} was never shown")


def main_session(workspace: Path) -> str:
    """The session that is no sub-agent's; empty where there is none yet."""
    for log in workspace.glob(".lmagent/sessions/*/events.jsonl"):
        head, is_whole, _ = log.read_bytes().partition(b"\n")
        if is_whole and not json.loads(head).get("parent"):
            return log.parent.name
    return ""


def test_a_watcher_in_another_process_sees_it_happen_until_its_end(tmp_path: Path) -> None:
    script = {**SCRIPT, "write it": [*SCRIPT["write it"][:1], hang(say("never ends"), chunks=1)]}
    with ScriptedServer(by_brief(script)) as server:
        flags = ("-w", str(tmp_path), "--base-url", server.base_url, "--permission", "auto", "-m", "scripted")
        agent = subprocess.Popen(
            [sys.executable, "-m", "lmagent", *flags, "have it written"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(tmp_path)},
            cwd=tmp_path,
        )
        deadline = time.monotonic() + 30
        while not (main := main_session(tmp_path)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        watcher = watching(tmp_path, main)
        try:
            read_until(watcher, "↳ write it")
            read_until(watcher, "step 2")
            agent.send_signal(signal.SIGINT)
            read_until(watcher, "interrupted · turn 1")
            assert watcher.wait(timeout=20) == 0
        finally:
            for process in (agent, watcher):
                process.kill()
                process.communicate()


def test_ctrl_c_ends_a_watcher_and_not_what_it_watches(tmp_path: Path) -> None:
    async def main() -> None:
        script = {"": [hang(say("never ends"), chunks=1)]}
        with ScriptedServer(by_brief(script)) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(do, session)
                    with anyio.fail_after(20):
                        while session.state.step == 0:  # noqa: ASYNC110
                            await anyio.sleep(0.01)
                    watcher = watching(tmp_path, session.state.session)
                    await anyio.to_thread.run_sync(read_until, watcher, "the model")
                    watcher.send_signal(signal.SIGINT)
                    assert await anyio.to_thread.run_sync(lambda: watcher.wait(20)) == 0
                    watcher.communicate()
                    assert session.state.turn_open
                    tasks.cancel_scope.cancel()

    anyio.run(main)


def test_a_person_can_go_on_with_a_sub_agents_session_and_with_a_copy_of_it(tmp_path: Path) -> None:
    _, child = played(tmp_path)

    async def main() -> None:
        with ScriptedServer([say("It is in a.txt."), report(), say("As I said.")]) as server:
            async with a_host(tmp_path, server) as host:
                finished = await do(await host.open_session(child), "where is it?")
                assert (finished.outcome, finished.answer) == ("done", "It is in a.txt.")
                fork = await host.fork_session(child)
                assert (await do(fork, "and now?")).answer == "As I said."
                assert host.latest() == fork.state.session
                assert fork.state.work.parent is None

    anyio.run(main)
    listed = cli(tmp_path, "list").stdout
    assert len(listed.splitlines()) == 3, "the copy is a person's own session"


def test_deleting_a_session_deletes_those_that_worked_for_it_and_no_others(tmp_path: Path) -> None:
    main, child = played(tmp_path)
    other, _ = played(tmp_path)
    log = tmp_path / ".lmagent" / "sessions" / main / "events.jsonl"
    lie = next(line for line in log.read_text().splitlines() if '"subagent.started"' in line).replace(child, other)
    seq = len(log.read_text().splitlines()) + 1
    with log.open("a") as stream:
        stream.write(re.sub(r'"seq":\d+', f'"seq":{seq}', lie) + "\n")
    assert cli(tmp_path, "rm", main).returncode == 0
    left = {path.name for path in (tmp_path / ".lmagent" / "sessions").iterdir()}
    assert main not in left
    assert child not in left
    assert other in left
    assert not (tmp_path / ".lmagent" / "agents" / child).exists()


def test_nothing_is_deleted_of_a_session_that_is_at_work(tmp_path: Path) -> None:
    main, child = played(tmp_path)

    async def held() -> None:
        with ScriptedServer(by_brief(SCRIPT)) as server:
            async with a_host(tmp_path, server) as host:
                await host.open_session(main)
                refused = await anyio.to_thread.run_sync(cli, tmp_path, "rm", main)
                assert refused.returncode == 1
                assert f"session {main} is in use; nothing was deleted" in refused.stderr

    anyio.run(held)
    assert (tmp_path / ".lmagent" / "sessions" / child / "events.jsonl").exists()
    assert (tmp_path / ".lmagent" / "agents" / child).exists()
    assert cli(tmp_path, "rm", main).returncode == 0
