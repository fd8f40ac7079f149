"""Agents in files of the workspace and of the user: who they are, and where they can be asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.config.trust import trust
from lmagent.core.agent import NamedAgent
from lmagent.core.commands import Submit
from lmagent.core.errors import ConfigError
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.projects.agentfiles import of_markdown, of_toml
from lmagent.testing import ScriptedServer, call, say

REVIEWER = """\
---
name: code-reviewer
description: Reads changes and names faults
tools: Read, Grep, Bash(git diff:*)
model: sonnet
color: blue
---
You review code. Name each fault with its line.
"""
WRITER = """\
name = "Writer"
description = "Writes release notes"
system_prompt = "You write."
tools = ["read", "write"]
[parameters]
temperature = 0.9
[permissions]
mode = "auto"
allow = ["write(notes/**)"]
deny = ["read(secret/**)"]
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("AGENT_DATA_DIR", str(tmp_path / "data"))
    root = tmp_path / "ws"
    for folder in (".lmagent", ".claude"):
        (root / folder / "agents").mkdir(parents=True)
    (root / ".claude" / "agents" / "reviewer.md").write_text(REVIEWER)
    (root / ".lmagent" / "agents" / "writer.toml").write_text(WRITER)
    return root


def opened(workspace: Path, script: Sequence[Any], do: Any, **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the bodies of the model's requests, and what was said to the user."""
    said = list[str]()

    async def go(url: str) -> None:
        flags = {"llm_url": url, "llm_model": "m", "permission_mode": "normal"}
        host = await open_host(HostOptions(workspace, flags, **options), say=said.append)
        try:
            await do(host)
        finally:
            await host.aclose()

    with ScriptedServer(script) as server:
        anyio.run(go, server.base_url)
        return [chat.body for chat in server.chats], said


async def asked(host: Host, text: str = "go", agent: str = "") -> None:
    session = await host.new_session(agent=agent)
    await session.send(Submit(message=user(text)))
    await run_until_idle(session)


def names(workspace: Path) -> list[str]:
    found = list[NamedAgent]()

    async def do(host: Host) -> None:
        found.extend(host.registry.agents)

    opened(workspace, [], do)
    return [agent.name for agent in found]


def test_a_markdown_file_has_the_form_of_claude_code() -> None:
    made = of_markdown(REVIEWER, ".claude/agents/reviewer.md")
    assert (made.name, made.description, made.model) == ("code-reviewer", "Reads changes and names faults", "")
    assert made.tools == ("Read", "Grep", "Bash")
    assert made.system == "You review code. Name each fault with its line."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("You review.", "does not begin with front matter"),
        ("---\nname: [a]\n---\nx", "has no name, or no text"),
        ("---\nname: a\n---\n", "has no name, or no text"),
        ("---\nname: lmagent\n---\nx", "cannot be an agent's name"),
        ("---\nname: a\nname: b\n---\nx", "x.md:2:1: the key 'name' is here twice"),
    ],
)
def test_a_file_that_is_no_agent_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        of_markdown(text, "x.md")


def test_a_toml_file_has_the_keys_of_agent_yaml() -> None:
    made = of_toml(WRITER, "writer.toml")
    assert (made.name, made.system, made.options.temperature) == ("writer", "You write.", 0.9)
    assert made.tools == ("read", "write")
    for broken, said in (("name = 1", "Expected `str`"), ("nam = 'x'", "unknown field `nam`"), ("name =", "x.toml")):
        with pytest.raises(ConfigError, match=said):
            of_toml(broken, "x.toml")
    with pytest.raises(ConfigError, match="need a project"):
        of_toml('name = "x"\n[[tools]]\nname = "a"\npath = "a.py"', "x.toml")


def test_the_agents_of_a_folder_count_once_it_is_trusted_and_the_users_own_always(
    workspace: Path, tmp_path: Path
) -> None:
    own = tmp_path / "config" / "lmagent" / "agents"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text('name = "Mine"\nsystem_prompt = "x"\n')
    assert names(workspace) == ["mine"]
    trust(tmp_path / "data", workspace)
    assert names(workspace) == ["mine", "writer", "code-reviewer"]


def test_an_agent_of_a_folder_can_only_ask_for_less_than_the_settings_allow(workspace: Path, tmp_path: Path) -> None:
    trust(tmp_path / "data", workspace)

    async def do(host: Host) -> None:
        session = await host.new_session(agent="writer")
        assert session.state.mode == "normal"
        assert session.wiring.rules.allow == host.rules.allow
        assert "read(secret/**)" in session.wiring.rules.deny

    opened(workspace, [], do)


def test_a_file_that_cannot_be_used_is_left_out_and_named_once(workspace: Path, tmp_path: Path) -> None:
    trust(tmp_path / "data", workspace)
    (workspace / ".lmagent" / "agents" / "a.md").write_text("no front matter")
    (workspace / ".lmagent" / "agents" / "b.toml").symlink_to("/etc/passwd")

    async def do(host: Host) -> None:
        assert [agent.name for agent in host.registry.agents] == ["writer", "code-reviewer"]
        assert [agent.name for agent in host.registry.agents] == ["writer", "code-reviewer"]

    _, said = opened(workspace, [], do)
    assert [line.split(":")[1].strip() for line in said if "left out" in line] == [
        "the agent in a.md is left out",
        "the agent in b.toml is left out",
    ]


def test_the_agent_of_the_command_line_is_that_of_new_sessions_and_its_model_wins(
    workspace: Path, tmp_path: Path
) -> None:
    trust(tmp_path / "data", workspace)
    bodies, _ = opened(workspace, [say("fine")], asked, agent="code-reviewer")
    assert bodies[0]["messages"][0]["content"].startswith("You review code.")
    offered = [tool["function"]["name"] for tool in bodies[0]["tools"]]
    assert offered == ["read", "grep", "read_artifact", "recall", "shell"]
    with pytest.raises(ConfigError, match="no agent named 'reviewr'"):
        opened(workspace, [], asked, agent="reviewr")


def test_a_task_is_delegated_to_an_agent_by_its_name(workspace: Path, tmp_path: Path) -> None:
    trust(tmp_path / "data", workspace)
    script = [
        call("delegate", objective="Find faults in a.py", agent="code-reviewer"),
        call("shell", command="echo hi"),
        call("report_result", status="ok", summary="No faults."),
        say("It is fine."),
    ]

    async def do(host: Host) -> None:
        await asked(host)

    bodies, _ = opened(workspace, script, do)
    first, child, _, last = bodies
    assert "agent: writer: Writes release notes; code-reviewer: Reads changes" in json.dumps(first["messages"])
    assert child["messages"][0]["content"].startswith("You review code.")
    assert "report_result" in [tool["function"]["name"] for tool in child["tools"]]
    assert "At the end call report_result" in json.dumps(child["messages"])
    assert "No faults." in json.dumps(last["messages"])


def test_a_sub_agent_of_an_agent_with_few_tools_has_its_text_its_tools_and_its_notes(
    workspace: Path, tmp_path: Path
) -> None:
    trust(tmp_path / "data", workspace)
    (workspace / ".claude" / "agents" / "lead.md").write_text(
        "---\nname: lead\ntools: delegate, read\n---\nYou lead.\n"
    )
    (workspace / "AGENTS.md").write_text("Use tabs.")
    script = [
        call("delegate", objective="Read a.py"),
        call("report_result", status="ok", summary="It is empty."),
        say("It is empty."),
    ]
    (first, child, last), _ = opened(workspace, script, lambda host: asked(host, agent="lead"))
    assert first["messages"][0] == child["messages"][0]
    assert [tool["function"]["name"] for tool in child["tools"]] == [
        *(tool["function"]["name"] for tool in first["tools"]),
        "report_result",
    ]
    notes = json.dumps([message["content"] for message in child["messages"]])
    for name in ("<environment>", "<workspace>", "<memory>", "<skills>"):
        assert name not in notes
    assert "It is empty." in json.dumps(last["messages"])


def test_rules_of_an_agent_are_put_in_plain_form_and_a_wrong_one_is_named(workspace: Path, tmp_path: Path) -> None:
    trust(tmp_path / "data", workspace)
    file = workspace / ".lmagent" / "agents" / "writer.toml"
    file.write_text(WRITER.replace('["read(secret/**)"]', '["read_file(./secret/)", "Bash(git push:*)"]'))

    async def do(host: Host) -> None:
        session = await host.new_session(agent="writer")
        assert session.wiring.rules.deny[-2:] == ("read(./secret)", "shell(git push *)")

    opened(workspace, [], do)
    file.write_text(WRITER.replace('["read(secret/**)"]', '["reed"]'))
    said = "names a tool that does not exist: 'reed' .the agent writer.\n  → did you mean read?"
    with pytest.raises(ConfigError, match=said):
        opened(workspace, [], lambda host: host.new_session(agent="writer"))


def test_a_task_for_an_agent_that_is_not_here_is_refused(workspace: Path, tmp_path: Path) -> None:
    trust(tmp_path / "data", workspace)
    script = [call("delegate", objective="Find faults", agent="reviewr"), say("ok")]
    bodies, _ = opened(workspace, script, asked)
    assert "there is no agent named 'reviewr' here" in json.dumps(bodies[-1]["messages"])
