"""The other commands: sessions, tools, configuration, doctor, cassettes."""

from __future__ import annotations

import json
import re

import pytest
from program import clear

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say


def test_sessions_are_listed_shown_exported_forked_and_deleted(program):
    with ScriptedServer([call("read", path="a.txt"), say("It says alpha.")]) as server:
        program.task(server, "what does a.txt say?")
    (row,) = [json.loads(line) for line in program.run("sessions", "list", "--json").stdout.splitlines()]
    assert (row["title"], row["status"], row["turns"]) == ("what does a.txt say?", "done", 1)
    shown = program.run("sessions", "show", row["id"][:15]).stdout
    assert "It says alpha." in shown
    assert "<tools>" not in shown
    assert "<tools>" in program.run("sessions", "show", "last", "--all").stdout
    exported = program.run("sessions", "export", "last", "--format", "jsonl").stdout
    assert [json.loads(line) for line in exported.splitlines()] == program.events()
    html = program.run("sessions", "export", row["id"], "--html", "-o", "out.html")
    assert html.returncode == 0
    assert "It says alpha." in (program.workspace / "out.html").read_text()
    fork = program.run("sessions", "fork", row["id"]).stdout.strip()
    assert len(program.run("--list-sessions").stdout.splitlines()) == 3
    assert program.run("sessions", "rm", fork).returncode == 0
    heading, only = program.run("sessions").stdout.splitlines()
    assert heading.split() == ["SESSION", "AGE", "STATUS", "TURNS", "TITLE", "MODEL"]
    assert only.split() == [row["id"], "now", "done", "1", "what", "does", "a.txt", "say?", "test-model"]
    assert clear(program.run("sessions", "rm", "nope"))


def test_a_fork_goes_on_without_touching_the_original(program):
    with ScriptedServer([say("one"), say("two")], strict=True) as server:
        program.task(server, "first")
        original = program.events()
        fork = program.run("sessions", "fork", "last").stdout.strip()
        run = program.task(server, "--resume", fork, "second")
        assert (run.returncode, run.stdout) == (0, "two\n")
        assert server.prefix.breaks == []
    log = next(path for path in program.workspace.glob(".lmagent/sessions/*/events.jsonl") if path.parent.name != fork)
    assert [json.loads(line) for line in log.read_text().splitlines()] == original


SEED_ONE = {
    "metadata": {"id": "20250101_120000_abc123", "task": "list files", "status": "active"},
    "messages": [
        {"role": "system", "content": "You are LMAgent."},
        {"role": "user", "content": "list the files"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        {"role": "assistant", "content": "There is a.txt."},
    ],
}
SEED_TWO = [
    {"role": "user", "content": "hello", "timestamp": "2025-02-03T10:00:00"},
    {"role": "assistant", "content": "Hi there.", "timestamp": "2025-02-03T10:00:05"},
]


def test_sessions_of_the_older_systems_move_in_and_go_on(program):
    one, two = program.home / "20250101_120000_abc123.json", program.home / "main.jsonl"
    one.write_text(json.dumps(SEED_ONE))
    two.write_text("".join(json.dumps(line) + "\n" for line in SEED_TWO))
    run = program.run("sessions", "import", str(one), str(two))
    assert run.returncode == 0, run.stderr
    assert "took" in run.stdout
    assert "left" in run.stdout
    with ScriptedServer([say("Only that one."), say("Again hi.")], strict=True) as server:
        assert program.task(server, "--resume", "20250101_120000_abc123", "is that all?").stdout == "Only that one.\n"
        assert "There is a.txt." in json.dumps(server.chats[0].body)
        assert program.task(server, "--resume", "main", "hello again").stdout == "Again hi.\n"


def test_a_tool_is_called_with_the_guards_that_the_agent_has(program):
    listed = program.run("tool", "list").stdout
    assert [line.split()[0] for line in listed.splitlines()][:3] == ["read", "write", "edit"]
    assert "alpha" in program.run("tool", "call", "read", '{"path": "a.txt"}').stdout
    outside = program.run("tool", "call", "read", '{"path": "../home/x"}')
    assert outside.returncode == 1
    assert "refused" in clear(outside)
    assert "not valid JSON" in program.run("tool", "call", "read", '{"path": ').stderr
    assert "There is no tool" in program.run("tool", "call", "nosuch", "{}").stderr


def test_the_configuration_says_where_each_value_comes_from(program):
    (program.workspace / ".env").write_text("LLM_MODEL=from-dotenv\n")
    text = program.run("config", "--origin", env={"LLM_TIMEOUT": "77"}).stdout
    rows = {line.split()[0]: line for line in text.splitlines()}
    assert "from-dotenv" in rows["llm_model"]
    assert ".env" in rows["llm_model"]
    assert "77" in rows["llm_timeout"]
    assert "LLM_TIMEOUT" in rows["llm_timeout"]
    assert json.loads(program.run("config", "--json").stdout)


def test_a_setting_is_set_and_unset_in_the_users_own_file_and_a_key_goes_to_the_private_one(program):
    folder = program.home / ".config/lmagent"
    run = program.run("config", "set", "llm_temperature", "0.2")
    assert run.stdout == f"llm_temperature is 0.2 ({folder / 'config.toml'})\n", run.stderr
    assert (folder / "config.toml").read_text() == "llm_temperature = 0.2\n"
    won = program.run("config", "set", "llm_temperature", "0.3", env={"LLM_TEMPERATURE": "0.9"}).stdout
    assert "llm_temperature is 0.9" in won
    assert "LLM_TEMPERATURE in the environment wins over it" in won
    assert "0.65" in program.run("config", "unset", "llm_temperature").stdout
    assert (folder / "config.toml").read_text() == ""
    program.run("config", "set", "llm_api_key", "sk-new-0123456789")
    assert "sk-new" in (folder / ".env").read_text()
    assert (folder / ".env").stat().st_mode & 0o777 == 0o600
    wrong = program.run("config", "set", "theme", "pink")
    assert wrong.returncode != 0
    assert "auto, light, dark or none" in wrong.stderr
    assert "did you mean theme?" in program.run("config", "set", "themes", "dark").stderr


def test_settings_of_an_older_system_move_in_and_keys_stay_out_of_the_config_file(program):
    env = program.home / "old.env"
    env.write_text('LLM_MODEL="qwen"\nLLM_API_KEY=sk-old-0123456789\nPERMISSION_MODE=manual\nWHATEVER=1\n')
    run = program.run("config", "import", str(env))
    assert run.returncode == 0, run.stderr
    assert "took" in run.stdout
    config = (program.home / ".config/lmagent/config.toml").read_text()
    assert 'llm_model = "qwen"' in config
    assert "sk-old" not in config
    shown = program.run("config").stdout
    assert "manual" in shown
    assert "sk-old" not in shown


def test_the_doctor_examines_the_server_and_gives_fixes(program):
    with ScriptedServer([say("OK"), call("report_word", word="hello")]) as server:
        run = program.run("doctor", "--json", "--base-url", server.base_url)
    findings = {item["name"]: item for item in json.loads(run.stdout)}
    assert run.returncode == 0, run.stderr
    assert findings["tool calls"]["state"] == "ok"
    assert findings["window"]["fix"]
    down = program.run("doctor", "--base-url", "http://127.0.0.1:9")
    assert down.returncode == 1
    assert "✗ server" in down.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(program, shell):
    assert "_LMAGENT_COMPLETE" in program.run("completion", shell).stdout


def test_a_recorded_run_plays_back_offline_with_real_tools(program):
    script = [call("read", path="a.txt"), call("write", path="b.txt", content="beta\n"), say("Both done.")]
    with ScriptedServer(script) as server:
        program.task(server, "go", "--permission", "auto", "--record", "run.jsonl")
    (program.workspace / "b.txt").unlink()
    cassette = program.workspace / "run.jsonl"
    another_day = re.sub(r"Today is \w+, \d{4}-\d\d-\d\d", "Today is Monday, 2001-01-01", cassette.read_text())
    assert "2001-01-01" in another_day
    cassette.write_text(another_day)
    replayed = program.run("go", "--permission", "auto", "--replay", "run.jsonl")
    assert (replayed.returncode, replayed.stdout) == (0, "Both done.\n"), replayed.stderr
    assert (program.workspace / "b.txt").read_text() == "beta\n"
    assert "differ" not in replayed.stderr
    (program.workspace / "a.txt").write_text("something else\n")
    (program.workspace / "b.txt").unlink()
    other = program.run("go", "--permission", "auto", "--replay", "run.jsonl")
    assert other.returncode == 1
    assert " of 3 requests not as recorded" in other.stderr
    recorded, now = (line for line in other.stderr.splitlines() if line.lstrip().startswith(("recorded:", "now:")))
    assert "alpha" in recorded
    assert "something else" in now


def test_help_and_version_are_there(program):
    assert "lmagent, version" in program.run("--version").stdout
    assert "sessions" in program.run("--help").stdout
    assert "--output-schema" in program.run("run", "--help").stdout
    wrong = program.run("--no-such-option")
    assert wrong.returncode == 64
    assert "No such option" in wrong.stderr


def test_a_command_that_prints_nothing_is_said_to_have_no_output(program):
    with ScriptedServer([call("shell", command="true"), say("Done.")], strict=True) as server:
        program.task(server, "go", "--permission", "auto", "--sandbox", "off")
        assert server.chats[1].body["messages"][-1]["content"] == "(no output)"
