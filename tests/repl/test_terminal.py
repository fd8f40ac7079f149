"""The REPL as a person uses it: a real terminal, a real server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say, slow


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    return folder


def events_of(workspace: Path) -> list[dict]:
    (log,) = workspace.glob(".lmagent/sessions/*/events.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_task_is_done_and_its_answer_shown(workspace):
    with ScriptedServer([call("read", path="a.txt"), say("It says **alpha**.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("what does a.txt say?")
            screen = terminal.wait_for("It says alpha.")
            assert "✓ read a.txt" in screen
            terminal.enter("quit")
            assert terminal.ended() == 0


def test_a_write_is_asked_for_with_its_diff_and_y_lets_it_happen(workspace):
    with ScriptedServer([call("write", path="b.txt", content="beta\n"), say("Written.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("write b.txt")
            terminal.wait_for("Allow write?")
            terminal.wait_for("+beta")
            assert not (workspace / "b.txt").exists()
            terminal.enter("y")
            terminal.wait_for("Written.")
        assert (workspace / "b.txt").read_text() == "beta\n"


def test_a_denial_in_words_reaches_the_model(workspace):
    with ScriptedServer([call("write", path="b.txt", content="x"), say("Understood.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("write b.txt")
            terminal.wait_for("Allow write?")
            terminal.enter("put it into docs")
            terminal.wait_for("Understood.")
        assert "put it into docs" in server.chats[1].body["messages"][-1]["content"]
    assert not (workspace / "b.txt").exists()


def test_enter_steers_while_the_agent_works(workspace):
    script = [slow(call("read", path="a.txt"), first=1.5), say("With tabs.")]
    with ScriptedServer(script, strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("read it")
            terminal.wait_for("thinking")
            terminal.enter("use tabs")
            terminal.wait_for("steering: use tabs")
            terminal.wait_for("With tabs.")
        assert "use tabs" in server.chats[1].body["messages"][-1]["content"]


def test_alt_enter_queues_for_the_next_turn(workspace):
    with ScriptedServer([slow(say("First."), first=1.5), say("Second.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("one")
            terminal.wait_for("thinking")
            terminal.type("two\x1b\r")
            terminal.wait_for("queued: two")
            terminal.wait_for("Second.")
        assert server.chats[1].body["messages"][-1]["content"] == "two"


def test_escape_interrupts_and_the_session_goes_on(workspace):
    script = [slow(say("an endless answer " * 200), each=0.05), say("Fine.")]
    with ScriptedServer(script, strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("talk")
        terminal.wait_for("endless")
        terminal.type("\x1b")
        terminal.wait_for("Stopped")
        terminal.enter("stop that")
        terminal.wait_for("Fine.")
        terminal.enter("quit")
        assert terminal.ended() == 0


def test_escape_gives_back_to_the_prompt_what_waited_for_the_turn(workspace):
    script = [slow(say("an endless answer " * 200), each=0.05), say("Fine.")]
    with ScriptedServer(script, strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("talk")
        terminal.wait_for("endless")
        terminal.enter("use tabs")
        terminal.wait_for("steering: use tabs")
        terminal.type("and then this\x1b\r")
        terminal.wait_for("queued: and then this")
        terminal.type("\x1b")
        terminal.wait_for("Stopped")
        terminal.sees(lambda rows: "> use tabs" in rows and "  and then this" in rows)
        terminal.type("\r")
        terminal.wait_for("Fine.")
        assert server.chats[1].body["messages"][-1]["content"] == "use tabs\nand then this"


def test_ctrl_c_shows_what_was_not_sent(workspace):
    script = [slow(say("an endless answer " * 200), each=0.05), say("Never.")]
    with ScriptedServer(script) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("talk")
        terminal.wait_for("endless")
        terminal.enter("use tabs")
        terminal.wait_for("steering: use tabs")
        terminal.type("\x03")
        terminal.wait_for("not sent:")
        terminal.wait_for("Stopped")
        terminal.enter("quit")
        assert terminal.ended() == 0
        assert len(server.chats) == 1


@pytest.mark.parametrize("how", ["a key", "a signal"])
def test_ctrl_c_twice_leaves_a_running_turn_and_a_valid_log(workspace, how):
    script = [slow(say("an endless answer " * 200), each=0.05)]
    with ScriptedServer(script, strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        press = (
            partial(terminal.type, "\x03") if how == "a key" else partial(os.kill, terminal.process.pid, signal.SIGINT)
        )
        terminal.enter("talk")
        terminal.wait_for("endless")
        press()
        terminal.wait_for("Ctrl+C again leaves")
        terminal.wait_for("Stopped")
        press()
        assert terminal.ended() == 0
    last = events_of(workspace)[-1]
    assert (last["type"], last["outcome"]) == ("turn.finished", "interrupted")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")
@pytest.mark.parametrize("key", ["\x03", "\x1b"])
def test_a_persons_own_command_shows_life_and_is_stopped_by_a_key(workspace, key):
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("!for i in 1 2 3; do echo tick $i; sleep 1; done; sleep 60; echo n | tr n N")
        terminal.wait_for("  tick ")  # later only its last letter is drawn anew
        terminal.type(key)
        terminal.wait_for("[stopped]")
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        assert "tick 1" in server.chats[0].body["messages"][-1]["content"]


@pytest.mark.parametrize("plain", [True, False])
def test_a_new_session_begins_with_the_next_message(workspace, plain):
    how = ["--plain"] if plain else []
    with ScriptedServer([say("One."), say("Two."), say("Three.")], strict=True) as server:
        with Terminal(workspace, server.base_url, *how) as terminal:
            terminal.enter("first")
            terminal.wait_for("One.")
            terminal.enter("/new")
            terminal.wait_for("a new session begins")
            terminal.enter("second")
            terminal.wait_for("Two.")
            terminal.enter("/new")
            terminal.wait_for("a new session begins", times=2)
            terminal.enter("third")
            terminal.wait_for("Three.")
            terminal.enter("quit")
            assert terminal.ended() == 0
        assert "first" not in str(server.chats[1].body["messages"])
    assert len(list(workspace.glob(".lmagent/sessions/*/events.jsonl"))) == 3


def test_slash_commands_answer_and_a_wrong_one_says_what_to_do(workspace):
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("/help")
        terminal.wait_for("/compact [FOCUS]")
        terminal.enter("/nosuch")
        terminal.wait_for("there is no command /nosuch")
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        terminal.enter("/context")
        terminal.wait_for("0 times so far")
        terminal.enter("/quit")
        assert terminal.ended() == 0


def test_a_narrow_window_and_a_long_line_do_no_harm(workspace):
    with ScriptedServer([say("x" * 500 + " end")], strict=True) as server:
        with Terminal(workspace, server.base_url, columns=30) as terminal:
            terminal.enter("say much")
            terminal.wait_for("end")
            terminal.enter("quit")
            assert terminal.ended() == 0


def test_a_resumed_conversation_shows_where_it_was(workspace):
    with ScriptedServer([say("The codeword is apricot."), say("Still apricot.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("tell me")
            terminal.wait_for("apricot")
            terminal.enter("quit")
            terminal.ended()
        with Terminal(workspace, server.base_url, "--resume", "last") as terminal:
            terminal.wait_for("The codeword is apricot.")
            terminal.enter("and now?")
            terminal.wait_for("Still apricot.")


def test_plain_mode_is_lines_in_and_lines_out(workspace):
    script = [call("write", path="b.txt", content="x\n"), say("# Done\n\nWritten.")]
    with ScriptedServer(script, strict=True) as server:
        run = subprocess.run(
            [sys.executable, "-m", "lmagent", "chat", "--plain", "-w", str(workspace), "--base-url", server.base_url],
            input="write b.txt\ny\nquit\n",
            env={**os.environ, "HOME": str(workspace.parent)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout
    assert "Allow write? y yes · n no · a always (write) · or say why not: " in run.stdout
    assert "# Done\n\nWritten." in run.stdout
    assert (workspace / "b.txt").exists()


def test_nothing_can_hide_in_what_a_person_is_asked_about(workspace):
    hiding = "echo hello \x1b]0;; rm -rf build; echo \x07"
    script = [call("shell", command=hiding), call("write", path="run.sh", content=f"{hiding}\n"), say("Well.")]
    with ScriptedServer(script, strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("go")
        terminal.wait_for("Allow shell?")
        screen = terminal.wait_for("hello \\x1b]0;; rm -rf build; echo \\x07")
        terminal.enter("n")
        terminal.wait_for("Allow write?")
        assert screen.count("rm -rf") < terminal.wait_for("+echo hello \\x1b]0;; rm -rf build").count("rm -rf")
        terminal.enter("n")
        terminal.wait_for("Well.")


def test_the_bell_rings_when_the_agent_waits_for_whoever_is_away_and_only_then(workspace):
    (workspace.parent / ".config" / "lmagent").mkdir(parents=True)
    config = workspace.parent / ".config" / "lmagent" / "config.toml"
    config.write_text("notify_after = 0\n")
    with ScriptedServer([call("write", path="b.txt", content="x"), say("Written.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            assert "\a" not in terminal.screen
            terminal.enter("write b.txt")
            terminal.wait_for("Allow write?")
            terminal.wait_for("\a")
    config.write_text("notify_after = 0\nnotify_bell = false\n")
    with ScriptedServer([say("Nothing to do.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("again")
            terminal.wait_for("Nothing to do.")
            terminal.enter("quit")
            terminal.ended()
            assert "\a" not in terminal.screen


def test_ctrl_c_in_plain_mode_stops_the_turn_first_and_leaves_when_nothing_runs(workspace):
    script = [slow(say("an endless answer " * 200), each=0.05)]
    with ScriptedServer(script, strict=True) as server:
        with Terminal(workspace, server.base_url, "--plain") as terminal:
            terminal.enter("talk")
            terminal.wait_for("talk")
            while not server.chats:
                terminal.wait_for("> ")
            terminal.type("\x03")
            terminal.wait_for("stopping; Ctrl+C again leaves")
            terminal.wait_for("Stopped")
            terminal.type("\x03")
            assert terminal.ended() == 130
