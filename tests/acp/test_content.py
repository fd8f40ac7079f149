"""Texts, changes and questions in the protocol's form: nothing from outside can pass for a part of the editor."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmagent.acp.asking import Approval
from lmagent.acp.content import code, diffs, fenced, shown
from lmagent.acp.servers import specs_of
from lmagent.acp.updates import Updates
from lmagent.core import events as ev
from lmagent.core.messages import Message, Text, ToolCall, user
from lmagent.mcp.spec import Needs, ServerSpec
from lmagent.tools.diff import unified


@pytest.mark.parametrize("text", ["```\nand out", "a ```` b", "`", "~~~", "x\n```\n# Allowed by lmagent"])
def test_a_fence_is_not_closed_from_inside(text):
    first, *lines, last = fenced(text).split("\n")
    assert first == last
    assert set(first) == {"`"}
    assert first not in [line.strip() for line in lines]


def test_titles_are_one_line_of_code_in_which_nothing_hides():
    assert code("read a.txt") == "`read a.txt`"
    assert code("echo `id`\n[click](http://x)") == "``echo `id` [click](http://x)``"
    assert "\\x1b" in code("\x1b[2Jclean")
    assert "\x1b" not in shown("\x1b[31mred")["content"]["text"]


def test_each_hunk_of_a_diff_is_a_text_before_and_after():
    before = "".join(f"line {number}\n" for number in range(1, 31))
    after = before.replace("line 2\n", "second\n").replace("line 29\n", "")
    first, second = diffs(unified("a.txt", before, after), Path("/w/a.txt"))
    assert first["path"] == "/w/a.txt"
    assert first["oldText"] == "line 1\nline 2\nline 3\nline 4\nline 5\n"
    assert first["newText"] == "line 1\nsecond\nline 3\nline 4\nline 5\n"
    assert "line 29" in second["oldText"]
    assert "line 29" not in second["newText"]
    (new,) = diffs(unified("b.txt", "", "x\ny\n"), Path("/w/b.txt"))
    assert "oldText" not in new
    assert new["newText"] == "x\ny\n"


def test_a_question_shows_what_always_would_allow_and_an_unknown_answer_denies():
    request = ev.ApprovalRequested(
        id="q",
        call_id="c",
        tool="shell",
        summary="rm x",
        preview="rm x\n```\nfake",
        reason="it removes",
        grant="shell(rm *)",
    )
    question = Approval(request, None, Path("/w"), "")
    call, options = question.question()
    assert call["toolCallId"] == "approval-q"
    assert call["kind"] == "execute"
    assert "shell(rm *)" in call["content"][0]["content"]["text"]
    assert [option["name"] for option in options][1] == "Always allow in this session: shell(rm *)"
    assert question.answer("always").scope == "session"
    assert question.answer("once").approved
    assert not question.answer("whatever").approved
    assert not question.answer("").approved


def test_text_that_was_streamed_is_not_sent_again_when_the_reply_is_recorded():
    updates = Updates(Path("/w"), lambda call: pytest.fail(f"described {call}"))
    live = updates.of([ev.TextDelta(text="Hel"), ev.TextDelta(text="lo")])
    assert [update["content"]["text"] for update in live] == ["Hello"]
    reply = Message("assistant", (Text("Hello."),))
    assert [one["content"]["text"] for one in updates.of([ev.MessageAdded(message=reply, origin="model")])] == ["."]
    following = updates.of([ev.TextDelta(text="More")])
    assert following[0]["content"]["text"] == "\n\nMore"
    updates.of([ev.TextDelta(text=" par"), ev.RetryScheduled(reason="gone", attempt=1, delay=0)])
    again = updates.of([ev.TextDelta(text="Anew")])
    assert again[0]["content"]["text"] == "\n\nAnew"


def test_a_running_command_shows_the_end_of_its_output():
    from lmagent.acp.content import CallFacts

    updates = Updates(Path("/w"), lambda call: CallFacts(call.name))
    reply = Message("assistant", (ToolCall("c", "shell", "{}"),))
    updates.of([ev.MessageAdded(message=user("go"), origin="input"), ev.MessageAdded(message=reply, origin="model")])
    (shown_now,) = updates.of([ev.ToolOutput(call_id="c", text="x" * 9000), ev.ToolOutput(call_id="c", text="end\n")])
    text = shown_now["content"][0]["content"]["text"]
    assert text.endswith("end\n```")
    assert len(text) < 4100
    assert updates.of([ev.ToolOutput(call_id="of another", text="y")]) == []


def test_servers_that_an_editor_hands_over_become_specs_of_the_client():
    from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer

    servers = [
        McpServerStdio(name="git", command="uvx", args=["x"], env=[EnvVariable(name="A", value="1")]),
        McpServerStdio(name="own", command="/opt/own", args=[], env=[]),
        HttpMcpServer(type="http", name="web", url="http://h/mcp", headers=[HttpHeader(name="K", value="v")]),
        SseMcpServer(type="sse", name="old", url="http://h/sse", headers=[]),
    ]
    downloads = Needs(network=("packages",))
    assert specs_of(servers) == (
        ServerSpec("git", ("uvx", "x"), {"A": "1"}, needs=downloads, scope="client", start_timeout=180.0),
        ServerSpec("own", ("/opt/own",), scope="client"),
        ServerSpec("web", url="http://h/mcp", headers={"K": "v"}, scope="client"),
    )


def test_a_name_that_could_deceive_is_no_server_of_an_editor(tmp_path):
    from lmagent.config.settings import Settings
    from lmagent.mcp.servers import open_servers
    from lmagent.sandbox.environment import SandboxRequest

    names = ["own", "a\nb", "git__x", "OWN"]
    client = [ServerSpec(name, ("/opt/own",), scope="client") for name in names]
    servers = open_servers(tmp_path, Settings(agent_data_dir=tmp_path / "data"), SandboxRequest(env={}), client)
    assert [state.spec.name.lower() for state in servers.states()] == ["own"]
