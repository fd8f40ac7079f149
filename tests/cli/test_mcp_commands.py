"""`lmagent mcp …`, with a real server in the sandbox."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from testkit import tinymcp


def added(program, name: str = "tiny", *more: str):
    """Add the tests' server."""
    tinymcp.put(program.workspace)
    entry = tinymcp.entry()
    return program.run("mcp", "add", name, *more, "--path", entry["paths"][0], "--", entry["command"], *entry["args"])


def users_file(program) -> Path:
    return program.home / ".config" / "lmagent" / "mcp.json"


def test_a_server_is_added_started_once_listed_read_and_removed(program):
    ran = added(program, "tiny", "--env", "MOOD=fine")
    assert ran.returncode == 0, ran.stderr
    assert "echo(message: string, times?: integer, tone?)" in ran.stdout
    assert "uses it from its next start on" in ran.stderr
    assert "with 1 tool, 1 resource, 1 prompt; may do: sandbox" in ran.stdout
    entry = json.loads(users_file(program).read_text())["mcpServers"]["tiny"]
    assert entry["env"] == {"MOOD": "fine"}
    assert "tiny: idle, 1 tool, 1 resource, 1 prompt" in program.run("mcp").stdout
    (row,) = map(json.loads, program.run("mcp", "list", "--json").stdout.splitlines())
    assert (row["name"], row["status"], row["tools"]) == ("tiny", "idle", ["echo"])
    assert "tiny is here" in program.run("mcp", "logs", "tiny").stdout
    assert json.loads(program.run("mcp", "test", "tiny", "--json").stdout)["manifest"]["tools"][0]["name"] == "echo"
    assert f"removed tiny from {users_file(program)}" in program.run("mcp", "remove", "tiny").stdout
    assert "no MCP server is configured" in program.run("mcp").stdout


def test_a_server_that_does_not_start_stays_with_the_reason_and_the_next_command(program):
    ran = program.run("mcp", "add", "gone", "--", "no-such-command-anywhere")
    assert ran.returncode == 1
    assert "no-such-command-anywhere" in ran.stderr
    assert "gone" in json.loads(users_file(program).read_text())["mcpServers"]
    assert program.run("mcp", "test", "gone").returncode == 1


def test_an_address_where_no_server_listens_is_named(program):
    ran = program.run("mcp", "add", "away", "http://127.0.0.1:9/mcp", "--header", "X-Team: blue")
    assert ran.returncode == 1
    assert "127.0.0.1:9" in ran.stderr
    entry = json.loads(users_file(program).read_text())["mcpServers"]["away"]
    assert entry == {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Team": "blue"}}


def test_a_server_of_the_workspace_waits_until_the_folder_is_trusted(program):
    ran = added(program, "tiny", "--scope", "workspace")
    assert (ran.returncode, "lmagent config trust" in ran.stderr) == (0, True)
    assert "tiny: untrusted" in program.run("mcp").stdout
    program.run("config", "trust")
    assert program.run("mcp", "test", "tiny").returncode == 0


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (("x", "npx", "-y", "it"), "options of the server's command follow --"),
        (("bad\\name", "--", "true"), "use letters, digits"),
        (("x", "--env", "A", "--", "true"), "--env KEY=VALUE"),
        (("x", "--header", "A", "http://127.0.0.1:9"), "--header 'Name: value'"),
        (("x", "--header", "A: b", "--", "true"), "use --env"),
        (("x", "--env", "A=b", "http://127.0.0.1:9"), "use --header"),
        (("x", "http://127.0.0.1:9", "more"), "nothing can follow an address"),
        (("x", "--network", "http://a b", "--", "true"), "http://a b"),
        (("taken", "--", "true"), "lmagent mcp remove taken"),
    ],
)
def test_what_cannot_be_added_is_refused_with_the_fix_and_nothing_is_written(program, typed, named):
    file = users_file(program)
    file.parent.mkdir(parents=True)
    before = '{"mcpServers": {"taken": {"command": "true"}}}'
    file.write_text(before)
    ran = program.run("mcp", "add", *typed)
    assert ran.returncode in (1, 64)
    assert named in ran.stderr
    assert file.read_text() == before


def test_a_broken_file_is_named_with_its_line_and_nothing_else_fails(program):
    file = users_file(program)
    file.parent.mkdir(parents=True)
    file.write_text('{\n  "mcpServers": {\n')
    ran = program.run("mcp")
    assert ran.returncode == 0
    assert f"{file}:" in ran.stdout
    ran = program.run("mcp", "add", "x", "--", "true")
    assert (ran.returncode, "correct it" in ran.stderr) == (1, True)


@pytest.mark.parametrize("verb", ["test", "logs", "remove"])
def test_an_unknown_server_is_answered_with_the_way_to_add_one(program, verb):
    ran = program.run("mcp", verb, "nope")
    assert (ran.returncode, "lmagent mcp add" in ran.stderr) == (1, True)


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        (["npx", "-y", "it"], ["packages"]),
        (["/usr/bin/uv", "tool", "run", "it"], ["packages"]),
        (["node", "npx"], None),
    ],
)
def test_a_command_that_fetches_packages_may_reach_their_registries(program, command, needs):
    ran = program.run("mcp", "add", "it", "--", *command, env={"ENABLE_MCP": "false"})
    assert json.loads(users_file(program).read_text())["mcpServers"]["it"].get("network") == needs
    assert ("fetches packages" in ran.stdout) == (needs is not None)
    assert "MCP servers are switched off" in ran.stderr
