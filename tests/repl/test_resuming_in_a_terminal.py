"""`lmagent -c` and `--resume`: back into a conversation, from the command line."""

from __future__ import annotations

import pytest
from terminal import Terminal
from testkit.amount import mostly_long

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say, slow

MODES = pytest.mark.parametrize("plain", [(), ("--plain",)], ids=["screen", "plain"])


class Bare(Terminal):
    """The command as people type it, without `chat`."""

    def __init__(self, workspace, server: ScriptedServer, *arguments: str) -> None:
        super().__init__(workspace, "", "--base-url", server.base_url, *arguments)

    def __enter__(self):
        return self


@pytest.fixture
def workspace(empty_workspace):
    (empty_workspace / "a.txt").write_text("alpha\n")
    return empty_workspace


def sessions_of(workspace):
    return sorted(log.parent.name for log in workspace.glob(".lmagent/sessions/*/events.jsonl"))


def talk(workspace, server, *lines: tuple[str, str], how: tuple[str, ...] = ()) -> None:
    with Terminal(workspace, server.base_url, *how) as terminal:
        for line, answer in lines:
            terminal.enter(line)
            terminal.wait_for(answer)
        terminal.enter("/quit")
        assert terminal.ended() == 0


@pytest.mark.parametrize("how", mostly_long(["-c", "--continue", "--resume", "chat -c"]))
def test_the_conversation_opens_where_it_was_left_with_its_last_exchange(workspace, how):
    script = [say("First answer."), call("read", path="a.txt"), say("It says alpha."), say("Still alpha.")]
    with ScriptedServer(script, strict=True) as server:
        talk(workspace, server, ("first question", "First answer."), ("read a.txt", "It says alpha."))
        (session,) = sessions_of(workspace)
        told = [*how.split(), session] if how == "--resume" else how.split()
        with Bare(workspace, server, *told) as terminal:
            screen = terminal.wait_for("It says alpha.")
            assert "> read a.txt" in screen
            assert "✓ read a.txt" in screen
            assert "First answer." not in screen
            terminal.enter("and now?")
            terminal.wait_for("Still alpha.")
            terminal.enter("/quit")
            assert terminal.ended() == 0
        assert server.prefix.breaks == []
    assert sessions_of(workspace) == [session]


@MODES
def test_without_an_id_the_session_is_picked_from_a_list(workspace, plain):
    with ScriptedServer([say("One."), say("Two."), say("One again.")], strict=True) as server:
        talk(workspace, server, ("question one", "One."))
        talk(workspace, server, ("question two", "Two."))
        with Terminal(workspace, server.base_url, "--resume", *plain) as terminal:
            terminal.wait_for("question one")
            terminal.enter("2")
            terminal.wait_for("> question one")
            terminal.wait_for("One.")
            terminal.enter("and?")
            terminal.wait_for("One again.")


def test_what_a_crash_cut_off_goes_on_when_the_conversation_is_opened(workspace):
    script = [call("read", path="a.txt"), slow(say("never said"), first=60), say("It says alpha.")]
    with ScriptedServer(script, strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("read a.txt")
            terminal.wait_for("✓ read a.txt")
            while len(server.chats) < 2:
                terminal.sees(lambda _: True)
            terminal.process.kill()
        with Bare(workspace, server, "-c") as terminal:
            terminal.wait_for("Its last turn was cut off and continues now.")
            terminal.wait_for("> read a.txt")
            terminal.wait_for("It says alpha.")


def test_what_the_user_stopped_does_not_go_on_by_itself(workspace):
    script = [slow(say("never said"), first=60), say("As you like.")]
    with ScriptedServer(script, strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("do not do this")
            while not server.chats:
                terminal.sees(lambda _: True)
            terminal.type("\x03")
            terminal.wait_for("Stopped")
            terminal.enter("/quit")
            terminal.ended()
        with Bare(workspace, server, "-c") as terminal:
            terminal.wait_for("> do not do this")
            terminal.wait_for("Stopped")
            terminal.enter("something else")
            terminal.wait_for("As you like.")
        assert len(server.chats) == 2


@pytest.mark.parametrize("how", ["-c", "--resume"])
def test_where_there_is_no_session_the_way_on_is_said(workspace, how):
    with ScriptedServer([say("Hi.")], strict=True) as server, Bare(workspace, server, how) as terminal:
        if how == "-c":
            terminal.wait_for("there is no session here to continue")
            terminal.wait_for("lmagent starts one")
            assert terminal.ended() == 1
            return
        terminal.wait_for("there is no session to resume yet")
        terminal.enter("hello")
        terminal.wait_for("Hi.")


def test_a_name_that_fits_no_session_ends_with_an_error(workspace):
    with ScriptedServer([], strict=True) as server, Bare(workspace, server, "--resume", "nope") as terminal:
        terminal.wait_for("there is no session nope")
        assert terminal.ended() == 1


@MODES
def test_a_session_in_which_nothing_was_said_is_not_kept(workspace, plain):
    with ScriptedServer([], strict=True) as server:
        talk(workspace, server, ("!echo one", "one\r\n"), how=plain)
    assert sessions_of(workspace) == []
