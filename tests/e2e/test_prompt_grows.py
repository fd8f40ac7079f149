"""The real program against the strictest server: the prompt of a session only ever grows, across processes too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, call_raw, calls, say, think, tool


def lmagent(workspace: Path, server: ScriptedServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(workspace.parent), "LLM_RETRY_DELAY": "0"}
    command = [sys.executable, "-m", "lmagent", "-w", str(workspace), "--base-url", server.base_url]
    return subprocess.run(
        [*command, "--permission", "auto", *arguments],
        env=environment,
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def make_workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a.txt").write_text("alpha\n")
    (workspace / "big.txt").write_text("a line of the big file\n" * 3000)
    return workspace


def test_turns_resumes_and_odd_replies_never_change_what_was_sent(tmp_path):
    workspace = make_workspace(tmp_path)
    script = [
        think("let me see", calls(tool("read", path="a.txt"), tool("read", path="big.txt"), text="Looking.")),
        call_raw("write", '{"path": "b.txt", "content": "unfin'),
        call("no_such_tool", x=1),
        call("write", path="b.txt", content="beta\n"),
        say("Both files are there."),
        call("grep", pattern="beta"),
        say("Found it in b.txt."),
        say("Nothing more to do."),
    ]
    with ScriptedServer(script, strict=True) as server:
        assert lmagent(workspace, server, "look at the files").returncode == 0
        assert lmagent(workspace, server, "--continue", "where is beta?").returncode == 0
        assert lmagent(workspace, server, "--continue", "anything left?").returncode == 0
        assert server.left == 0
        assert server.prefix.breaks == []
        assert server.connections == 3, "one connection a process"


def test_two_sessions_of_a_workspace_begin_with_the_same_bytes(tmp_path):
    workspace = make_workspace(tmp_path)
    with ScriptedServer([say("one"), say("two")], strict=True) as server:
        lmagent(workspace, server, "the same task")
        lmagent(workspace, server, "the same task")
        first, second = (request.raw for request in server.chats)
        assert first == second


def test_the_first_prompt_is_small(tmp_path):
    workspace = make_workspace(tmp_path)
    with ScriptedServer([say("hello")], strict=True) as server:
        lmagent(workspace, server, "hi")
        body = server.chats[0].body
    import msgspec

    fixed = msgspec.json.encode([body["messages"][0], body["tools"]])
    assert len(fixed) / 4 <= 2500


def test_no_request_is_made_that_the_task_does_not_need(tmp_path):
    workspace = make_workspace(tmp_path)
    with ScriptedServer([call("read", path="a.txt"), say("alpha")], strict=True) as server:
        lmagent(workspace, server, "read a.txt")
        assert [request.path for request in server.chats] == ["/v1/chat/completions"] * 2
        assert server.connections == 1


def test_a_small_window_is_lived_with_to_the_end(tmp_path):
    workspace = make_workspace(tmp_path)
    for number in range(30):
        (workspace / f"{number}.txt").write_text(f"file {number}: a line\n" * 60)
    done = 0

    def answer(received):
        nonlocal done
        if received.body.get("tool_choice") == "none":
            return say("Files are read in order.")
        done += 1
        return call("read", path=f"{done - 1}.txt") if done <= 30 else say("All thirty are read.")

    with ScriptedServer(answer, strict=True, window=6000) as server:
        run = lmagent(workspace, server, "read 0.txt to 29.txt")
    assert run.returncode == 0, run.stderr
    assert "All thirty are read." in run.stdout
