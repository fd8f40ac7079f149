"""What a script learns from a run."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from program import clear

from lmagent.testing import ScriptedServer, faults
from lmagent.testing.script import call, cut, error_in_stream, raw, say, slow, status


def test_done_is_0(program):
    with ScriptedServer([call("read", path="a.txt"), say("It says alpha.")], strict=True) as server:
        run = program.task(server, "read a.txt")
    assert (run.returncode, run.stdout) == (0, "It says alpha.\n")
    assert "✓ read a.txt" in run.stderr


FAILURES = {
    "empty replies": ([say("")] * 9, "empty"),
    "a page": ([faults.html_page()], "not"),
    "an error inside a 200": ([error_in_stream("out of memory")], "out of memory"),
    "a bad key": ([faults.bad_key()], "key"),
    "an unknown model": ([faults.unknown_model("nope")], "nope"),
    "a stream that breaks off again and again": ([cut(say("half an answer"), chunks=1)] * 9, "broke"),
    "nothing at all": ([raw([b""])] * 9, ""),
    "a server error again and again": ([status(500, {"error": {"message": "boom"}})] * 9, "boom"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_run_without_a_result_is_1_and_says_why(program, name):
    script, word = FAILURES[name]
    with ScriptedServer(script) as server:
        run = program.task(server, "hi", "--model", "nope")
    assert run.returncode == 1, run.stderr
    assert word in clear(run)
    assert program.events()[-1]["outcome"] == "error"


def test_nobody_listening_is_1_with_what_to_start(program):
    run = program.run("hi", "--base-url", "http://127.0.0.1:9")
    assert run.returncode == 1
    assert "nothing listens at http://127.0.0.1:9" in clear(run)
    assert "start " in run.stderr


def test_the_limit_is_2(program):
    script = [call("read", path="a.txt", offset=number) for number in range(1, 9)]
    with ScriptedServer(script) as server:
        run = program.task(server, "read on", "--max-iterations", "3")
    assert run.returncode == 2
    assert "limit of 3 steps" in run.stderr


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("BLOCKED: I may not.", "blocked"),
        ("WAIT: in 2 hours: the build", "waiting"),
        ("Which file do you mean?", "question"),
    ],
)
def test_waiting_for_a_person_is_3(program, text, outcome):
    with ScriptedServer([say(text)]) as server:
        run = program.task(server, "go")
    assert run.returncode == 3
    assert program.events()[-1]["outcome"] == outcome


def test_a_call_that_nobody_could_allow_is_4_and_was_not_made(program):
    with ScriptedServer([call("write", path="b.txt", content="x"), say("I could not write it.")]) as server:
        run = program.task(server, "write b.txt")
    assert run.returncode == 4
    assert run.stderr == (
        "✗ write b.txt (1 line): denied: normal mode asks before writing files, and no user was there to allow it\n"
        "denied: a call needed an approval, and no user was there to give it\n"
        "  → allow it with --permission auto, or with a rule\n"
    )
    assert not (program.workspace / "b.txt").exists()


def test_an_allow_rule_lets_an_unattended_run_write(program):
    config = program.home / ".config/lmagent/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('permission_allow = ["write(docs/**)"]\n')
    script = [call("write", path="docs/b.txt", content="x"), call("write", path="c.txt", content="x"), say("Done.")]
    with ScriptedServer(script) as server:
        run = program.task(server, "write")
    assert run.returncode == 4
    assert (program.workspace / "docs/b.txt").exists()
    assert not (program.workspace / "c.txt").exists()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_130_and_the_session_can_be_continued(program, sent):
    with ScriptedServer([slow(say("endless " * 400), each=0.05), say("Gone on.")], strict=True) as server:
        process = subprocess.Popen(
            program.command("talk", "--base-url", server.base_url),
            env=program.env,
            cwd=program.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while not server.chats:
            time.sleep(0.05)
        process.send_signal(sent)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 130, errors
        assert program.events()[-1]["outcome"] == "interrupted"
        run = program.task(server, "--continue", "go on")
        assert (run.returncode, run.stdout) == (0, "Gone on.\n")
        assert server.prefix.breaks == []


def test_a_killed_run_is_gone_on_with_and_a_second_process_is_refused_meanwhile(program):
    script = [call("read", path="a.txt"), slow(say("never said"), first=60), say("It says alpha.")]
    with ScriptedServer(script, strict=True) as server:
        process = subprocess.Popen(
            program.command("read a.txt", "--base-url", server.base_url),
            env=program.env,
            cwd=program.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while len(server.chats) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        second = program.task(server, "--continue")
        assert second.returncode == 1
        assert str(process.pid) in clear(second)
        process.kill()
        process.wait()
        third = program.task(server, "--continue")
        assert (third.returncode, third.stdout) == (0, "It says alpha.\n"), third.stderr
        assert server.prefix.breaks == []


def test_there_may_be_nothing_to_continue(program):
    with ScriptedServer([say("All done.")]) as server:
        first = program.task(server, "--continue", "x")
        assert first.returncode == 1
        assert "no session" in clear(first)
        program.task(server, "do it")
        again = program.task(server, "--continue")
        assert again.returncode == 1
        assert "finished already" in clear(again)


def test_json_is_events_and_nothing_else(program):
    with ScriptedServer([call("read", path="a.txt"), say("alpha")]) as server:
        run = program.task(server, "read", "--json")
    events = [json.loads(line) for line in run.stdout.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("session.created", "turn.finished")
    durable = [event for event in events if event["seq"]]
    assert durable == program.events()
    assert {event["type"] for event in events if not event["seq"]} <= {"text.delta", "progress", "thinking.delta"}


def test_a_reader_that_goes_away_ends_the_run_quietly(program):
    with ScriptedServer([slow(say("word " * 300), each=0.01)]) as server:
        process = subprocess.Popen(
            program.command("talk", "--json", "--base-url", server.base_url),
            env=program.env,
            cwd=program.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        process.stderr.close()
        assert process.wait(timeout=20) != 0
        assert b"Traceback" not in errors, errors.decode()
