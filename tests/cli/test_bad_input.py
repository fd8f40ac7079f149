"""Bad input gets one clear message with the next thing to do, and loses nothing."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from program import clear

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, call_raw, calls, say, tool


def test_a_workspace_that_does_not_exist_says_how_to_make_it(program):
    run = program.run("hi", "-w", str(program.home / "nowhere"))
    assert run.returncode == 1
    assert "does not exist" in clear(run)
    assert "mkdir -p" in run.stderr


def test_a_workspace_that_is_a_file_is_refused(program):
    run = program.run("hi", "-w", str(program.workspace / "a.txt"))
    assert run.returncode == 1
    assert "a.txt" in clear(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, and only root can become one")
def test_a_workspace_that_may_not_be_written_is_refused(program):
    program.home.parent.chmod(0o755)
    run = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", *program.command("hi", "-w", str(program.workspace))],
        env={**program.env, "HOME": "/nonexistent"},
        cwd="/",
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    if "Permission denied" in run.stderr and "lmagent:" not in run.stderr:
        pytest.skip("the interpreter itself cannot be run by another user here")
    assert run.returncode == 1
    assert "not writable" in clear(run) or "cannot" in run.stderr


CONFIGS = {
    "no TOML": ("permission_mode = ", "TOML"),
    "an unknown key": ('permision_mode = "auto"', "permission_mode"),
    "a wrong type": ("max_iterations = 'many'", "max_iterations"),
    "a wrong choice": ('permission_mode = "yolo"', "manual"),
    "a bad rule": ('permission_deny = ["write("]', "write("),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_cannot_be_read_names_the_file_and_the_fault(program, name):
    text, word = CONFIGS[name]
    config = program.home / ".config/lmagent/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(text + "\n")
    with ScriptedServer([say("hi")]) as server:
        run = program.task(server, "hi")
        assert server.chats == []
    assert run.returncode == 1
    assert word in clear(run)
    assert str(config) in run.stderr


def test_a_bad_value_in_the_environment_names_the_variable(program):
    run = program.run("hi", env={"LLM_TIMEOUT": "soon"})
    assert run.returncode == 1
    assert "LLM_TIMEOUT" in clear(run)


def test_a_folder_may_not_loosen_permissions_until_it_is_trusted(program):
    folder = program.workspace / ".lmagent"
    folder.mkdir()
    (folder / "config.toml").write_text('permission_mode = "auto"\n')
    with ScriptedServer([call("write", path="b.txt", content="x"), say("no"), *[say("ok")] * 2]) as server:
        assert program.task(server, "write").returncode == 4
        assert not (program.workspace / "b.txt").exists()
        trusted = program.run("config", "trust")
        assert trusted.returncode == 0, trusted.stderr
    with ScriptedServer([call("write", path="b.txt", content="x"), say("Written.")]) as server:
        assert program.task(server, "write").returncode == 0
    assert (program.workspace / "b.txt").exists()


def test_damaged_arguments_and_unknown_tools_go_back_to_the_model(program):
    script = [
        calls(tool("no_such_tool"), tool("read", path="a.txt")),
        call_raw("write", '{"path": "b.txt", "co'),
        call("write", path="c.txt", content="whole"),
        say("ok"),
    ]
    with ScriptedServer(script, strict=True) as server:
        assert program.task(server, "go", "--permission", "auto").returncode == 0
        told = [message["content"] for message in server.chats[2].body["messages"] if message["role"] == "tool"][-1]
    assert '{"path": "b.txt", "co' in told
    assert not (program.workspace / "b.txt").exists()


def test_a_damaged_log_is_survived_and_what_was_lost_is_said(program):
    with ScriptedServer([say("The codeword is apricot."), say("Still here.")], strict=True) as server:
        program.task(server, "tell me")
        (log,) = program.workspace.glob(".lmagent/sessions/*/events.jsonl")
        lines = log.read_bytes().splitlines(keepends=True)
        lines[3] = b"\x00\xff garbage\n"
        log.write_bytes(b"".join(lines) + b'{"type":"turn.sta')
        run = program.task(server, "--continue", "and now?")
    assert (run.returncode, run.stdout) == (0, "Still here.\n"), run.stderr
    assert "line 4 of the log was damaged and skipped" in clear(run)
    assert "cut off" in run.stderr


def test_a_full_disk_stops_before_acting(program):
    # A limit on the size of files stands in for a full disk: the write fails in the same way.
    with ScriptedServer([call("write", path="b.txt", content="x" * 100), say("Written.")]) as server:
        run = subprocess.run(
            ["bash", "-c", 'ulimit -f 6; exec "$0" "$@"', *program.command("go", "--permission", "auto")],
            env={**program.env, "LLM_URL": server.base_url},
            cwd=program.workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert run.returncode == 1, run.stderr
    assert "log could not be written" in clear(run)


def test_a_cassette_that_is_none_is_refused(program):
    run = program.run("hi", "--replay", str(program.workspace / "a.txt"))
    assert run.returncode == 1
    assert "cassette" in clear(run)
    missing = program.run("hi", "--replay", "nowhere.jsonl")
    assert missing.returncode == 1
    assert "nowhere.jsonl" in clear(missing)


def test_a_session_that_does_not_exist_names_those_that_do(program):
    with ScriptedServer([say("hi")]) as server:
        program.task(server, "one")
        run = program.task(server, "--resume", "nope", "two")
    assert run.returncode == 1
    assert "lmagent sessions list" in clear(run)


def test_a_schema_that_is_none_is_refused_before_any_model_call(program):
    (program.workspace / "schema.json").write_text('{"type": 5}')
    with ScriptedServer([say("{}")]) as server:
        run = program.task(server, "x", "--output-schema", "schema.json")
        missing = program.task(server, "x", "--output-schema", "nowhere.json")
        assert server.chats == []
    assert run.returncode == missing.returncode == 1
    assert "no valid JSON schema" in clear(run)
    assert "nowhere.json" in clear(missing)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("answers", "code", "out"),
    [
        (['{"n": 1}'], 0, '{"n": 1}\n'),
        (['Here it is:\n```json\n{"n": 2}\n```'], 0, '{"n": 2}\n'),
        (['{"n": "one"}', '{"n": 1}'], 0, '{"n": 1}\n'),
        (['{"n": "one"}', "no JSON"], 1, ""),
    ],
)
def test_the_answer_follows_the_schema_or_the_run_fails(program, answers, code, out):
    (program.workspace / "schema.json").write_text(json.dumps(SCHEMA))
    with ScriptedServer([say(text) for text in answers], strict=True) as server:
        run = program.task(server, "give n", "--output-schema", "schema.json")
        assert server.left == 0
    assert (run.returncode, run.stdout) == (code, out), run.stderr


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_an_answer_that_never_fits_the_schema_ends_with_what_is_wrong(program, flags):
    (program.workspace / "schema.json").write_text(json.dumps(SCHEMA))
    with ScriptedServer([say('{"n": "one"}'), say('{"n": "two"}')], strict=True) as server:
        run = program.task(server, "give n", "--output-schema", "schema.json", *flags)
    assert run.returncode == 1
    if not flags:
        assert "$.n: 'two' is not of type 'integer'" in clear(run)
        assert "lmagent sessions show" in run.stderr
        return
    last = json.loads(run.stdout.splitlines()[-1])
    assert (last["type"], last["level"], last["code"]) == ("notice", "error", "schema")
    assert "'two' is not of type 'integer'" in last["text"]


def test_a_folder_is_no_place_for_a_recording(program):
    with ScriptedServer([say("hi")]) as server:
        run = program.task(server, "hi", "--record", str(program.workspace))
        assert server.chats == []
    assert run.returncode == 64
    assert "--record" in clear(run)
    assert "is a directory" in run.stderr


@pytest.mark.parametrize("command", [("hi", "--resume", ""), ("--resume=",), ("chat", "--resume", " ")])
def test_an_empty_name_of_a_session_starts_no_new_one(program, command):
    run = program.run(*command)
    assert run.returncode == 64
    assert "--resume" in clear(run)
    assert "lmagent sessions list" in run.stderr
    assert program.events() == []


def test_a_key_reaches_no_log_no_output_and_no_cassette(program):
    key = "sk-live-0123456789abcdef"
    (program.workspace / "keys.txt").write_text(f"key: {key}\n")
    with ScriptedServer([call("read", path="keys.txt"), say("I saw a key.")]) as server:
        run = program.task(server, "read", "--json", "--record", "run.jsonl", env={"LLM_API_KEY": key})
        assert key not in json.dumps([request.body for request in server.chats])
        assert server.chats[0].headers["authorization"] == f"Bearer {key}"
    everything = run.stdout + run.stderr + (program.workspace / "run.jsonl").read_text() + json.dumps(program.events())
    assert key not in everything
    assert "[redacted]" in everything


@pytest.mark.parametrize(("typed", "meant"), [("sesions", "sessions"), ("doctr", "doctor"), ("modles", "models")])
def test_a_mistyped_command_is_not_sent_to_the_model(program, typed, meant):
    ran = program.run(typed)
    assert ran.returncode == 64
    assert f"did you mean 'lmagent {meant}'? As a task: lmagent run {typed}" in ran.stderr


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (("list",), "see lmagent models or lmagent sessions"),
        (("init",), "/init"),
        (("update", "--json"), "pipx"),
        (("-w", ".", "serve"), "lmagent web"),
        (("help", "ps"), "lmagent models"),
        (("help", "zork"), "lmagent --help"),
        (("versoin",), "lmagent version"),
        (("tools", "list"), "lmagent tool"),
    ],
)
def test_a_word_of_another_program_is_answered_without_asking_the_model(program, typed, named):
    with ScriptedServer([]) as server:
        ran = program.run(*typed, env={"LLM_URL": server.base_url})
        assert server.requests == []
    assert (ran.returncode, ran.stdout) == (64, "")
    assert named in clear(ran)
    assert program.events() == []


def test_words_in_quotes_or_after_run_are_a_task(program):
    with ScriptedServer([say("one"), say("two"), say("three")], strict=True) as server:
        assert program.task(server, "list the files").stdout == "one\n"
        assert program.task(server, "run", "list").stdout == "two\n"
        assert program.task(server, "--", "init").stdout == "three\n"


def test_help_and_version_are_words_too(program):
    assert program.run("help").stdout == program.run("--help").stdout
    assert program.run("help", "cron").stdout == program.run("cron", "--help").stdout
    assert program.run("version").stdout == program.run("--version").stdout


def test_a_task_without_quotes_in_a_script_is_answered_with_how_to_write_it(program):
    ran = program.run("fix", "the", "bug")
    assert ran.returncode == 64
    assert 'put the task in quotes: lmagent "fix the bug"' in ran.stderr


def test_an_unknown_option_is_a_usage_error(program):
    assert program.run("--no-such-option", "hello").returncode == 64
