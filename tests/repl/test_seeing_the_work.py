"""What the user sees of the agent's work in the terminal."""

from __future__ import annotations

import shutil

import pytest
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

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
