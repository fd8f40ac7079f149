"""Keys and slash commands as the user's habits have them."""

from __future__ import annotations

import base64

import pytest
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say, slow

MODES = pytest.mark.parametrize("how", [(), ("--plain",)], ids=["screen", "plain"])


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    return folder


def session_of(workspace):
    (log,) = workspace.glob(".lmagent/sessions/*/events.jsonl")
    return log.parent.name


@MODES
def test_leaving_says_how_to_come_back(workspace, how):
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        terminal.enter("/exit")
        assert terminal.ended() == 0
        assert f"Resume with: lmagent --resume {session_of(workspace)}" in terminal.screen


@MODES
def test_two_presses_of_ctrl_c_leave_and_nothing_is_offered_where_nothing_was_said(workspace, how):
    with ScriptedServer([], strict=True) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.type("\x03")
        terminal.wait_for("Ctrl+C again leaves")
        terminal.type("\x03")
        terminal.ended()
        assert "Resume with" not in terminal.screen


def test_ctrl_c_clears_what_was_typed_before_it_leaves(workspace):
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.type("wrong words")
        terminal.wait_for("wrong words")
        terminal.type("\x03")
        terminal.wait_for("Ctrl+C again leaves")
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        assert server.chats[0].body["messages"][-1]["content"].endswith("hello")
        assert "wrong" not in server.chats[0].body["messages"][-1]["content"]


def test_a_side_question_is_answered_while_the_turn_runs(workspace):
    script = [slow(call("read", path="a.txt"), first=2.0), say("On the side."), say("The turn is over.")]

    def answer(request):
        if "BTW?" in str(request.body["messages"][-1]):
            return script[1]
        return script[0] if len(request.body["messages"]) < 3 else script[2]

    with ScriptedServer(answer, strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("read it")
        terminal.wait_for("thinking")
        terminal.enter("/btw BTW?")
        terminal.wait_for("On the side.")
        assert "The turn is over." not in terminal.screen
        terminal.wait_for("The turn is over.")
    log = workspace / ".lmagent" / "sessions" / session_of(workspace) / "events.jsonl"
    assert "BTW?" not in log.read_text()


@MODES
def test_a_model_is_picked_from_a_list(workspace, how):
    models = ["first-model", "second-model"]
    with ScriptedServer([say("Hi.")], models=models) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.enter("/model")
        terminal.wait_for("second-model")
        terminal.enter("2" if how else "\x1b[B")
        terminal.wait_for("model second-model")
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        assert server.chats[0].body["model"] == "second-model"


def test_escape_leaves_a_picker_and_nothing_changes(workspace):
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("/mode")
        terminal.wait_for("reading is asked about too")
        terminal.type("\x1b")
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        assert "mode manual" not in terminal.screen


@MODES
def test_a_session_is_picked_from_a_list_with_its_title(workspace, how):
    script = [say("The codeword is apricot."), say("Another one."), say("Still apricot.")]
    with ScriptedServer(script, strict=True) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.enter("remember the fruit")
        terminal.wait_for("apricot")
        terminal.enter("/clear")
        terminal.wait_for("a new session begins")
        terminal.enter("another matter")
        terminal.wait_for("Another one.")
        terminal.screen = ""
        terminal.enter("/resume")
        terminal.wait_for("remember the fruit")
        terminal.enter("1" if how else "")
        terminal.wait_for("resumed ")
        terminal.enter("and now?")
        terminal.wait_for("Still apricot.")
        assert "remember the fruit" in str(server.chats[2].body["messages"])


def test_copy_hands_the_last_answer_to_the_terminal(workspace, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    with ScriptedServer([say("The answer is **42**.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("well?")
            terminal.wait_for("The answer is 42.")
            terminal.enter("/copy")
            terminal.wait_for("copied 21 characters by the terminal")
            assert base64.b64encode(b"The answer is **42**.").decode() in terminal.shown


def test_a_name_from_another_program_leads_on_and_reaches_no_model(workspace):
    with ScriptedServer([], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        for line, shown in (
            ("/rewind", "there is no command /rewind"),
            ("/mdoel", "did you mean /model"),
            ("/?", "Long work:"),
            ("/approvals", "mode normal: writing and running are asked about"),
            ("/settings", "Your settings are in"),
        ):
            terminal.enter(line)
            terminal.wait_for(shown)
        assert not server.chats


def test_a_slash_command_is_no_answer_to_an_approval(workspace):
    with ScriptedServer([call("write", path="b.txt", content="x"), say("Written.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("write b.txt")
            terminal.wait_for("Allow write?")
            terminal.enter("/statu")
            terminal.wait_for("did you mean /status?")
            terminal.enter("y")
            terminal.wait_for("Written.")
    assert (workspace / "b.txt").exists()


def test_init_asks_the_agent_to_write_agents_md(workspace):
    page = "# Greeter\nRun `make test`.\n"
    with ScriptedServer([call("write", path="AGENTS.md", content=page), say("Written.")], strict=True) as server:
        with Terminal(workspace, server.base_url, "--permission", "auto") as terminal:
            terminal.enter("/init")
            terminal.wait_for("Written.")
    assert (workspace / "AGENTS.md").read_text() == page
