"""What the user sees of the agent's work in the terminal."""

from __future__ import annotations

import shutil

import pytest
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say, slow

SANDBOXED = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@SANDBOXED
def test_the_output_of_a_command_is_seen_while_it_runs_and_after_it_and_ctrl_o_shows_all_of_it(workspace):
    command = "seq -f 'row %g' 1 30; while [ ! -e done ]; do sleep 0.1; done; echo last; exit 3"
    script = [call("shell", command=command), say("It failed.")]
    with ScriptedServer(script, strict=True) as server:
        with Terminal(workspace, server.base_url, "--permission", "auto") as terminal:
            terminal.enter("run it")
            terminal.sees(lambda rows: any(row == "  row 30" for row in rows) and "  row 26" not in rows)
            (workspace / "done").touch()
            terminal.wait_for("It failed.")
            rows = terminal.sees(lambda rows: "  last" in rows)
            assert any("exit 3" in row and row.startswith("✗ shell") for row in rows)
            assert rows.index("  … +23 lines (Ctrl+O shows them)") == rows.index("  row 24") - 1
            assert "  row 5" not in rows
            terminal.type("\x0f")
            terminal.sees(lambda rows: "  row 5" in rows)


def test_words_stay_whole_while_they_stream_and_after_that(workspace):
    words = " ".join(f"word{number}" for number in range(40))
    with ScriptedServer([slow(say(words), each=0.02)], strict=True) as server:
        with Terminal(workspace, server.base_url, columns=50) as terminal:
            terminal.enter("say much")
            streaming = terminal.sees(lambda rows: any("word20" in row for row in rows))
            whole = terminal.sees(lambda rows: any("word39" in row for row in rows))
    for rows in (streaming[:-3], whole[:-3]):
        shown = {word for row in rows for word in row.split() if word.startswith("word")}
        broken = shown - {f"word{number}" for number in range(40)}
        assert len(broken) <= 1, broken  # the last one may not have come whole yet


def test_a_diff_has_the_colours_of_an_approval(workspace):
    script = [call("write", path="b.txt", content="beta\n"), say("Written.")]
    with ScriptedServer(script, strict=True) as server:
        with Terminal(workspace, server.base_url, "--permission", "auto") as terminal:
            terminal.enter("write b.txt")
            terminal.wait_for("Written.")
            seen = len(terminal.shown)
            terminal.enter("/diff")
            terminal.wait_for("+beta", times=2)
            assert "\x1b[32m+beta" in terminal.shown[seen:]


def test_no_color_takes_the_colours_and_nothing_else(workspace):
    with ScriptedServer([say("# Done\n\n- **one**")], strict=True) as server:
        with Terminal(workspace, server.base_url, NO_COLOR="1") as terminal:
            terminal.enter("go")
            rows = terminal.sees(lambda rows: any("• one" in row for row in rows))
            assert any("Done" in row and "#" not in row for row in rows)
            assert "\x1b[1mone" in terminal.shown
            assert "\x1b[32m" not in terminal.shown


def test_a_message_to_an_agent_at_work_is_printed_once_where_it_takes_effect(workspace):
    (workspace / "a.txt").write_text("alpha\n")
    script = [slow(call("read", path="a.txt"), first=2.0), slow(say("With tabs."), first=1.0), say("Second answer.")]
    with ScriptedServer(script, strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("read it")
        terminal.wait_for("thinking")
        terminal.enter("use tabs")
        terminal.sees(lambda rows: "steering: use tabs" in rows and "> use tabs" not in rows)
        terminal.type("and then this\x1b\r")
        terminal.sees(lambda rows: "queued: and then this" in rows and "> and then this" not in rows)
        terminal.wait_for("Second answer.")
        rows = terminal.sees(lambda rows: "Second answer." in rows)
    marks = ["> read it", "✓ read a.txt", "> use tabs", "With tabs.", "> and then this", "Second answer."]
    assert [row for row in rows if row in marks] == marks
    assert not any(row.startswith(("steering:", "queued:")) for row in rows)


def test_the_question_about_a_change_is_asked_when_its_diff_is_on_the_screen(workspace):
    content = "".join(f"line {number}\n" for number in range(30))
    script = [call("write", path="b.txt", content=content), say("Written.")]
    with ScriptedServer(script, strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("write it")
        terminal.wait_for("Allow write?")
        assert terminal.screen.index("+line 29") < terminal.screen.index("Allow write?")
        terminal.enter("y")
        terminal.wait_for("Written.")


def test_a_turn_ends_with_a_quiet_line_of_time_and_tokens(workspace):
    with ScriptedServer([say("Hi.")], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("hello")
        terminal.sees(lambda rows: any(" tokens in" in row and row.endswith(" out") for row in rows))


@pytest.mark.long
def test_the_status_line_is_plain_begins_with_the_model_and_is_cut_with_an_ellipsis(workspace):
    with ScriptedServer([slow(say("Hi."), first=4.0)], strict=True) as server:
        with Terminal(workspace, server.base_url, columns=60) as terminal:
            terminal.enter("hello")
            rows = terminal.sees(lambda rows: any("waiting for the first word" in row for row in rows))
            (line,) = (row for row in rows if "waiting for" in row)
            assert line.startswith("test-model · ")
            assert line.endswith("…")
            assert len(line) < 60
            terminal.wait_for("Hi.")
            assert "\x1b[7m" not in terminal.shown
            assert ";7m" not in terminal.shown
