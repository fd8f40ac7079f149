"""Commands of the user's own: `!` in the sandbox, `!!` in the user's shell."""

from __future__ import annotations

import shutil
from itertools import pairwise

import pytest
from terminal import Terminal

from lmagent.core.outside import framed
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")

MODES = pytest.mark.parametrize("how", [(), ("--plain",)], ids=["screen", "plain"])


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@needs_bwrap
@MODES
def test_a_command_runs_in_the_sandbox_says_so_once_and_the_model_is_shown(workspace, how):
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.enter("!echo sum-$((40 + 2)); echo told > told.txt")
        terminal.wait_for("in the sandbox, without network")
        terminal.wait_for("sum-42")
        terminal.enter("!cat told.txt; echo sum-$((7 * 7))")
        terminal.sees(lambda rows: ("told", "sum-49") in pairwise(row.removeprefix("> ") for row in rows))
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        said = server.chats[0].body["messages"][-1]["content"]
        assert "echo told > told.txt`]\nsum-42" in said
        assert "told\nsum-49" in said
        assert sum("in the sandbox, without network" in row for row in terminal.rows()) == 1


@MODES
def test_the_users_own_shell_is_asked_about_once_and_has_the_terminal(workspace, how):
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.enter(
            "!!test -t 0 && test -t 1 && echo $((6 * 7)) > outside.txt; echo now-$((1 + 1)); read line; echo got-$line"
        )
        terminal.wait_for("outside of the sandbox?")
        assert not (workspace / "outside.txt").exists()
        terminal.enter("y")
        terminal.wait_for("now-2")
        terminal.enter("typed")
        terminal.wait_for("got-typed")
        assert (workspace / "outside.txt").read_text() == "42\n"
        terminal.enter("!!exit 3")
        terminal.wait_for("[exit code 3]")
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        assert "got-typed" not in str(server.chats[0].body["messages"])


def test_no_means_that_nothing_runs_outside_of_the_sandbox(workspace):
    with ScriptedServer([], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        for answer in ("n", "what?"):
            terminal.enter("!!touch outside.txt")
            terminal.wait_for("outside of the sandbox?")
            terminal.enter(answer)
            terminal.wait_for("not run")
            terminal.screen = ""
        assert not (workspace / "outside.txt").exists()


def test_ctrl_c_ends_a_command_in_the_users_shell_and_not_the_conversation(workspace):
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("!!echo begun-$((1 + 1)); sleep 60")
        terminal.wait_for("outside of the sandbox?")
        terminal.enter("y")
        terminal.wait_for("begun-2")
        terminal.type("\x03")
        terminal.wait_for("[exit code ")
        terminal.enter("hello")
        terminal.wait_for("Hi.")


def test_with_the_setting_own_commands_run_in_the_users_shell_unasked_and_the_model_is_shown(workspace):
    (workspace.parent / ".config" / "lmagent").mkdir(parents=True)
    (workspace.parent / ".config" / "lmagent" / "config.toml").write_text("own_shell = true\n")
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("!echo $HOME; false")
        terminal.wait_for("[exit code 1]")
        terminal.enter("!echo tick-$((1 + 1)); sleep 60")
        terminal.wait_for("tick-2")
        terminal.type("\x1b")
        terminal.wait_for("[stopped]")
        terminal.enter("!!echo sum-$((6 * 7))")
        terminal.wait_for("sum-42")
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        assert f"{workspace.parent}\n[exit code 1]" in server.chats[0].body["messages"][-1]["content"]
        assert "outside of the sandbox?" not in terminal.screen


def test_a_folder_cannot_take_commands_out_of_the_sandbox(workspace):
    (workspace / ".lmagent").mkdir()
    (workspace / ".lmagent" / "config.toml").write_text("own_shell = true\n")
    with ScriptedServer([], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("!!touch outside.txt")
        terminal.wait_for("outside of the sandbox?")


@needs_bwrap
@MODES
def test_a_command_of_a_file_asks_before_it_runs_a_line_and_sends_its_output(workspace, how):
    folder = workspace.parent / ".config/lmagent/commands/git"
    folder.mkdir(parents=True)
    (folder / "look.md").write_text("---\ndescription: Look at it\n---\nSee !`echo sum-$((40 + $1))` and @note.txt")
    (workspace / "note.txt").write_text("the note\n")
    how = ("--permission", "normal", *how)
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.enter("/git:look 2")
        terminal.wait_for("Allow shell?")
        terminal.enter("n")
        terminal.wait_for("/git:look was not sent")
        terminal.screen = ""
        terminal.enter("/git:look 2")
        terminal.wait_for("Allow shell?")
        terminal.enter("y")
        terminal.wait_for("Hi.")
        said = server.chats[0].body["messages"][-1]["content"]
        assert f"See {framed('command echo sum-$((40 + 2))', 'sum-42')} and <outside" in said
        assert "the note" in said
        assert "sum-42" in terminal.screen


@needs_bwrap
def test_ctrl_c_stops_the_command_of_a_file_and_nothing_is_sent(workspace):
    folder = workspace.parent / ".config/lmagent/commands"
    folder.mkdir(parents=True)
    (folder / "slow.md").write_text("!`echo begun > begun.txt; sleep 100`")
    how = ("--permission", "auto")
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.enter("/slow")
        terminal.sees(lambda _: (workspace / "begun.txt").exists())
        terminal.type("\x03")
        terminal.wait_for("stopping")
        terminal.enter("hello")
        terminal.wait_for("Hi.")
        assert "sleep" not in str(server.chats[0].body["messages"])
