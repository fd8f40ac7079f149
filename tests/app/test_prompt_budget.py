"""What a model reads before the task: how much it is, and what it says of the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from lmagent.app.options import HostOptions
from lmagent.app.prompt import Environment, approvals_note
from lmagent.app.wiring import open_host
from lmagent.config.settings import Settings
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

TASK = "Do the task."


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    return empty_workspace


def prompts(workspace: Path, window: int, *script: Any, attended: bool = False) -> list[dict[str, Any]]:
    async def main() -> list[dict[str, Any]]:
        with ScriptedServer([*script, say("Done.")]) as server:
            flags = {"llm_url": server.base_url, "context_window": window}
            host = await open_host(HostOptions(workspace, flags, attended=attended), say=lambda _: None)
            try:
                session = await host.new_session()
                await session.send(Submit(message=user(TASK)))
                await run_until_idle(session)
            finally:
                await host.aclose()
            return [request.body for request in server.chats]

    return anyio.run(main)


def size(body: dict[str, Any]) -> int:
    """Bytes of the tool block and of all texts, but for the task's own."""
    texts = [message["content"] for message in body["messages"]]
    assert texts[-1].endswith(TASK)
    return len(msgspec.json.encode(body["tools"])) + sum(len(text.encode()) for text in texts) - len(TASK)


@pytest.mark.parametrize(
    ("window", "most"), [(4096, 4500), (8192, 4500), (16_384, 6900), (32_768, 6900), (262_144, 6900)]
)
def test_what_comes_before_the_task_stays_within_its_budget(workspace: Path, window: int, most: int) -> None:
    (body,) = prompts(workspace, window)
    assert size(body) - len(str(workspace)) <= most


def test_most_work_is_shown_one_way_to_keep_tasks(workspace: Path) -> None:
    (body,) = prompts(workspace, 32_768)
    text = str(body["messages"])
    assert "- todo_add(" in text
    assert not any(name in text for name in ("manage_tasks", "task_state_", "task_reconcile", "plan_complete_step"))


def test_a_batch_brings_the_tools_for_it(workspace: Path) -> None:
    begin = call("use_tool", name="task_state_update", arguments={"objective": "rename all", "total_count": 2})
    first, second = prompts(workspace, 32_768, begin)[:2]
    assert "task_reconcile" not in str(first["messages"])
    assert "- task_reconcile(): " in str(second["messages"])


def test_the_machine_is_told_in_one_line_that_stays_as_it_is(workspace: Path) -> None:
    make = call("shell", command="git init -q . ; mkdir -p x/.git")
    first, *_, last = prompts(workspace, 32_768, make)
    (line,) = [row for row in first["messages"][1]["content"].splitlines() if row.startswith("<environment>")]
    assert line.endswith("</environment>")
    assert str(workspace) in line
    assert str(last["messages"]).count("<environment>") == 1


def note(workspace: Path, env: dict[str, str], **settings: Any) -> str:
    return Environment(workspace, Settings(**settings), env).note


def test_the_line_names_what_is_there_and_what_is_not(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = workspace / "bin"
    programs.mkdir()
    (programs / "python3.42").write_text("")
    (programs / "python3").symlink_to("python3.42")
    monkeypatch.setattr("lmagent.sandbox.environment.SYSTEM_PATH", ())
    for program in programs.iterdir():
        program.chmod(0o755)
    env = {"PATH": str(programs), "HOME": str(workspace.parent)}
    told = note(workspace, env, sandbox="bubblewrap")
    assert ", bash, python3.42, no git, no node. " in told
    assert "(not a git repository)" in told
    assert "no network, 120 s unless you give a timeout. /tmp and ~ are kept" in told
    subprocess.run(["git", "init", "-q", workspace], check=True)
    assert "(a git repository)" in note(workspace, env, sandbox="bubblewrap")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sandbox": "off"}, "not sandboxed"),
        ({"sandbox": "docker"}, "/workspace in commands"),
        ({"sandbox": "docker", "docker_network": "bridge"}, "with network"),
        ({"sandbox": "landlock"}, "use $TMPDIR"),
        ({"sandbox": "bubblewrap", "sandbox_hosts": ("pypi.org:443",)}, "no network but pypi.org:443"),
    ],
)
def test_the_line_follows_the_sandbox(workspace: Path, settings: dict[str, Any], words: str) -> None:
    assert words in note(workspace, {"PATH": "/usr/bin"}, **settings)


def test_a_note_says_whether_anybody_answers_approvals() -> None:
    assert approvals_note(attended=True) == "<approvals>The user answers approvals.</approvals>"
    assert "Nobody answers approvals: a call that needs one is denied." in approvals_note(attended=False)


def test_a_session_that_becomes_unattended_is_sent_only_what_changed(workspace: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        with ScriptedServer([say("Done.")] * 3) as server:
            flags = {"llm_url": server.base_url, "context_window": 32_768}
            name = ""
            for attended in (True, False, False):
                host = await open_host(HostOptions(workspace, flags, attended=attended), say=lambda _: None)
                try:
                    session = await (host.open_session(name) if name else host.new_session())
                    name = session.state.session
                    await session.send(Submit(message=user(TASK)))
                    await run_until_idle(session)
                finally:
                    await host.aclose()
            assert server.prefix.breaks == []
            return [request.body for request in server.chats]

    first, second, third = anyio.run(main)
    assert "The user answers approvals." in first["messages"][1]["content"]
    changed = second["messages"][len(first["messages"]) + 1 :]
    assert [message["content"] for message in changed] == [f"{approvals_note(attended=False)}\n\n{TASK}"]
    assert third["messages"][-1]["content"] == TASK
