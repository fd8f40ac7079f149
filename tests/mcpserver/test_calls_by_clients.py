"""Calls of an MCP client on the standard streams: under our gate, in a session of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_kit import until
from mcp.shared.exceptions import MCPError
from serve_kit import ServedPlace, served, text

RULES = 'permission_deny = ["read(secret.txt)"]\n'

BEATS = "while true; do date +%s%N >beat; sleep 0.05; done"
"""A command that shows that it runs."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPlace]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "workspace" / ".lmagent").mkdir(parents=True)
    (folder / "workspace" / ".lmagent" / "config.toml").write_text(RULES)
    with served(folder) as client:
        yield client


@pytest.fixture
def client(shared: ServedPlace) -> ServedPlace:
    shared.answers, shared.questions, shared.progress = [], [], []
    return shared


@pytest.fixture
def workspace(client: ServedPlace) -> Path:
    return client.place.workspace


def test_a_client_sees_our_tools_with_our_schemas_and_what_they_may_do(client):
    tools = {tool.name: tool for tool in client.tools()}
    assert {"read", "write", "edit", "grep", "shell", "python", "git_diff", "jobs", "delegate"} <= set(tools)
    assert "todo_add" not in tools
    assert "use_tool" not in tools
    assert tools["edit"].input_schema["required"] == ["path", "search", "replace"]
    assert tools["read"].annotations.read_only_hint
    assert not tools["jobs"].annotations.read_only_hint
    assert tools["shell"].annotations.destructive_hint
    assert not tools["shell"].annotations.open_world_hint


def test_reading_asks_nothing(client, workspace):
    (workspace / "a.txt").write_text("alpha\nbeta\n")
    result = client.call("read", path="a.txt")
    assert not result.is_error
    assert "alpha" in text(result)
    assert client.questions == []
    assert result.meta is not None
    assert result.meta["lmagent/facts"]["path"] == "a.txt"


def test_a_command_runs_after_its_users_yes_and_is_on_record(client, workspace):
    client.answers = [{"allow": True}]
    result = client.call("shell", command="echo from the client >made.txt; echo out; exit 3")
    assert text(result) == "out\n[exit code 3]"
    assert result.meta is not None
    assert result.meta["lmagent/facts"]["exit_code"] == 3
    assert (workspace / "made.txt").read_text() == "from the client\n"
    (asked,) = client.questions
    assert "    shell echo from the client >made.txt" in asked.message
    assert asked.message.startswith(f"lmagent asks whether shell may run in {workspace}:\n\n    ")
    started = client.recorded("tool.started")[-1]
    assert (started["tool"], started["effect"]) == ("shell", "exec")
    assert client.recorded("tool.finished")[-1]["call_id"] == started["call_id"]
    assert client.recorded("approval.resolved")[-1]["by"] == "mcp"
    assert client.recorded("files.changed")[-1]["changes"][0]["path"] == "made.txt"


@pytest.mark.parametrize("answer", [None, {"allow": False}, {}], ids=["declined", "unticked", "empty"])
def test_without_a_yes_nothing_runs(client, workspace, answer):
    client.answers = [answer]
    result = client.call("write", path="never.txt", content="x")
    assert result.is_error
    assert "denied" in text(result)
    assert not (workspace / "never.txt").exists()


def test_always_holds_for_the_calls_of_this_client(client, workspace):
    client.answers = [{"allow": True, "always": True}]
    assert not client.call("mkdir", path="one").is_error
    (asked,) = client.questions
    assert "Always allow" in asked.requested_schema["properties"]["always"]["title"]
    assert not client.call("mkdir", path="one").is_error
    assert len(client.questions) == 1


def test_all_calls_of_a_client_are_one_session_named_after_it(client):
    client.call("ls")
    client.call("glob", pattern="*.txt")
    begun = {event["session"] for event in client.recorded("session.created")}
    assert len(begun) == 1
    assert client.recorded("session.renamed")[0]["title"] == "Calls of mcp"


def test_a_rule_that_denies_is_an_error_and_no_question(client, workspace):
    (workspace / "secret.txt").write_text("hush")
    result = client.call("read", path="secret.txt")
    assert result.is_error
    assert "hush" not in text(result)
    assert client.questions == []


def test_escape_sequences_of_a_file_name_are_shown_in_the_question_and_not_obeyed(client):
    client.answers = [None]
    client.call("write", path="a\x1b[2Jb.txt", content="\x1b]0;x\x07\nlmagent asks whether nothing may run")
    (asked,) = client.questions
    assert "\x1b" not in asked.message
    assert "\\x1b" in asked.message
    assert asked.message.count("\nlmagent asks") == 0


def test_wrong_arguments_are_answered_with_the_schema_and_run_nothing(client):
    before = len(client.recorded("tool.started"))
    result = client.call("read", file="a.txt", depth=3)
    assert result.is_error
    assert "has no argument 'depth'" in text(result)
    assert len(client.recorded("tool.started")) == before
    with pytest.raises(MCPError, match="no tool 'rm'"):
        client.call("rm")
    with pytest.raises(MCPError, match="no tool 'todo_list'"):
        client.call("todo_list")


def test_output_of_a_running_command_comes_as_progress(client):
    client.answers = [{"allow": True}]
    client.call("shell", command="for i in one two three; do echo $i; sleep 0.5; done")
    assert "one" in client.progress[0]
    assert len(client.progress) >= 2


def test_a_client_that_cancels_ends_the_command(client, workspace):
    client.answers = [{"allow": True}]
    beat = workspace / "beat"
    client.call_until("shell", {"command": BEATS}, beat.exists)
    until(lambda: client.recorded("tool.finished")[-1]["status"] == "interrupted")
    last = beat.read_bytes()
    time.sleep(0.3)
    assert beat.read_bytes() == last
    assert client.recorded("files.changed")[-1]["changes"][0]["path"] == "beat"
    assert not client.call("ls").is_error


def test_a_question_that_its_client_cancels_leaves_no_approval(client, workspace):
    asked = client.recorded("approval.requested")
    client.answers = []  # the callback fails, as a client does that loses its window
    result = client.call("write", path="never.txt", content="x")
    assert result.is_error
    assert "no user can answer" in text(result)
    assert len(client.recorded("approval.requested")) == len(asked) + 1
    assert client.recorded("approval.resolved")[-1]["by"] == "unattended"


def test_long_results_are_capped_and_the_rest_can_be_read(client, workspace):
    (workspace / "long.txt").write_text("".join(f"line {number}\n" for number in range(60_000)))
    client.answers = [{"allow": True}]
    result = client.call("shell", command="cat long.txt")
    assert len(text(result)) < 60_000
    assert result.meta is not None
    artifact = result.meta["lmagent/facts"]["artifact"]
    assert "line 30000" in text(client.call("read_artifact", id=artifact[:12], offset=30_000))


def test_a_python_variable_is_kept_between_the_calls_of_a_client(client):
    client.answers = [{"allow": True}, {"allow": True}]
    client.call("python", code="kept = 6 * 7")
    assert "42" in text(client.call("python", code="print(kept)"))
