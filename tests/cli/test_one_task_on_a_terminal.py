"""A single task on a terminal: what the user sees of it, and what a pipe gets."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys

import pytest
from test_approvals import OneShot

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say, slow

ANSWER = "Found it.\n\n## Summary\n\n- **one**\n- two"


def test_it_says_what_it_waits_for_and_leaves_the_answer_laid_out_and_a_line_of_figures(program):
    with ScriptedServer([slow(say(ANSWER), first=3.5, each=0.2)], strict=True) as server:
        with OneShot(program, server, "go") as terminal:
            terminal.sees(lambda rows: any("thinking 0 s" in row or "thinking 1 s" in row for row in rows), 30)
            terminal.sees(lambda rows: any("waiting for the first word 3 s" in row for row in rows), 30)
            terminal.sees(lambda rows: any("writing" in row for row in rows), 30)
            assert terminal.ended(30) == 0
        rows = [row for row in terminal.rows() if row]
    assert rows[0] == "Found it."
    assert rows[1].strip() == "Summary"
    assert [row.strip() for row in rows[2:4]] == ["• one", "• two"]
    assert re.fullmatch(r"\d+(\.\d)? s · [\d,]+ tokens in · \d+ out", rows[4]), rows
    assert len(rows) == 5


def test_it_shows_how_far_the_prompt_is_read(program):
    script = [slow(say("Hi."), first=4.0, prefill=(0.3, 0.6))]
    with ScriptedServer(script, strict=True) as server, OneShot(program, server, "go") as terminal:
        terminal.sees(lambda rows: any("reading the prompt 30%" in row for row in rows), 30)
        assert terminal.ended(30) == 0


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")
def test_the_output_of_a_command_is_seen_while_it_runs_and_after_it(program):
    command = "seq -f 'row %g' 1 30; while [ ! -e done ]; do sleep 0.1; done; exit 3"
    with ScriptedServer([call("shell", command=command), say("It failed.")], strict=True) as server:
        with OneShot(program, server, "run it", "--permission", "auto") as terminal:
            terminal.sees(lambda rows: "  row 30" in rows and "  row 26" not in rows, 30)
            assert any("• shell seq" in row for row in terminal.rows())
            (program.workspace / "done").touch()
            assert terminal.ended(30) == 0
        rows = terminal.rows()
    assert rows.index("  … +22 lines") == rows.index("  row 23") - 1
    assert rows.count("  row 30") == 1
    assert any(row.startswith("✗ shell") and "exit 3" in row for row in rows)


def test_an_approval_has_the_coloured_diff_and_the_words_of_the_conversation(program):
    with ScriptedServer([call("write", path="b.txt", content="beta\n"), say("Written.")], strict=True) as server:
        with OneShot(program, server, "write it") as terminal:
            terminal.wait_for("Allow write? y yes · n no · a always (write) · or say why not: ", 30)
            assert "\x1b[32m  +beta" in terminal.shown
            terminal.enter("y")
            assert terminal.ended(30) == 0
        rows = terminal.rows()
    assert rows.count("  +beta") == 1
    assert any(row.startswith("✓ write b.txt") for row in rows)


def run(program, server: ScriptedServer, *, err: int) -> subprocess.CompletedProcess[bytes]:
    """The answer to a pipe, and the rest to `err`."""
    return subprocess.run(
        [sys.executable, "-m", "lmagent", "go", "-w", str(program.workspace), "--base-url", server.base_url],
        env={**os.environ, "HOME": str(program.workspace.parent), "TERM": "xterm-256color", "LLM_MODEL": "m"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=err,
        timeout=60,
        check=True,
    )


def test_a_pipe_gets_the_text_as_it_is_and_standard_error_shows_life_if_it_is_a_terminal(program):
    leader, err = pty.openpty()
    with ScriptedServer([slow(say(ANSWER), first=1.0)], strict=True) as server:
        done = run(program, server, err=err)
    shown = os.read(leader, 65536).decode()
    os.close(err)
    os.close(leader)
    assert done.stdout.decode() == f"{ANSWER}\n"
    assert "thinking" in shown
    assert "tokens in" in shown


def test_without_a_terminal_there_is_neither_life_nor_colour_nor_a_line_of_figures(program):
    with ScriptedServer([slow(say(ANSWER), first=1.0)], strict=True) as server:
        done = run(program, server, err=subprocess.PIPE)
    assert (done.stdout.decode(), done.stderr) == (f"{ANSWER}\n", b"")
