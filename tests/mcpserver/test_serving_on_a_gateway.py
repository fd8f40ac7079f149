"""`/mcp` of a real gateway: credentials, approvals on the page, tasks, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio.from_thread import start_blocking_portal
from gateway_kit import Running, gateway, shared, until
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from serve_kit import Served, connected, text

from lmagent.testing.script import call, hang, say

OPTIONS = ("--mcp-serve",)

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}

TAKES = {"Accept": "application/json, text/event-stream"}


@contextmanager
def client_of(running: Running, *, can_ask: bool = False) -> Iterator[Served]:
    with start_blocking_portal() as portal:
        client = Served(portal, can_ask=can_ask)
        http = httpx2.AsyncClient(headers=running.headers, timeout=60)
        transport = streamable_http_client(f"{running.url}/mcp", http_client=http)
        with portal.wrap_async_context_manager(http), connected(transport, client, portal):
            yield client


def sessions(running: Running) -> list[dict[str, Any]]:
    return running.ask("GET", "/api/sessions").json["sessions"]


def test_a_program_with_the_token_calls_tools_and_has_a_task_done():
    with shared([call("ls"), say("I have looked.")], options=OPTIONS) as running, client_of(running) as client:
        (running.workspace / "a.txt").write_text("alpha\n")
        assert client.client.protocol_version == "2025-11-25"
        assert "alpha" in text(client.call("read", path="a.txt"))
        outcome = client.call("delegate", task="look").structured_content
        assert outcome["answer"] == "I have looked."
        titles = {row["title"] for row in sessions(running)}
        assert titles == {"Calls of mcp", "look"}


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Authorization": ""}, 401, "no_credentials"),
        ({"Authorization": "Bearer wrong"}, 401, "no_credentials"),
        ({"Origin": "https://evil.example"}, 403, "foreign_origin"),
        ({"Host": "evil.example"}, 421, "wrong_host"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_other_callers_are_refused_before_the_protocol(headers, status, code, method):
    with shared(options=OPTIONS) as running:
        answer = running.ask(method, "/mcp", HELLO if method == "POST" else None, {**TAKES, **headers})
        assert (answer.status, answer.code) == (status, code)
        assert sessions(running) == []


def test_a_logged_in_browser_is_no_program():
    with shared(options=OPTIONS) as running:
        answer = running.page().ask("POST", "/mcp", HELLO, TAKES)
        assert (answer.status, answer.code) == (401, "no_credentials")


def test_malformed_requests_are_refused_and_the_next_client_works():
    with shared(options=OPTIONS) as running:
        assert running.ask("POST", "/mcp", b"no JSON", {**TAKES, "Content-Type": "application/json"}).status == 400
        assert running.ask("POST", "/mcp", [1, 2], TAKES).status == 400
        assert running.ask("POST", "/mcp", HELLO, {"Accept": "text/html"}).status == 406
        assert running.ask("POST", "/mcp", HELLO, {**TAKES, "Mcp-Session-Id": "unknown"}).status == 404
        assert running.ask("PUT", "/mcp", HELLO, TAKES).status == 405
        large = running.ask("POST", "/mcp", b" " * 4_000_001, {**TAKES, "Content-Type": "application/json"})
        assert large.status == 413
        newer = {**TAKES, "Mcp-Protocol-Version": "2026-07-28"}
        later = running.ask("POST", "/mcp", {**HELLO, "id": "seven"}, newer)
        assert (later.status, later.json["id"]) == (400, "seven")
        assert running.ask("POST", "/mcp", [1, 2], newer).json["id"] is None
        assert "2025-11-25" in later.json["error"]["data"]["supported"]
        with client_of(running) as client:
            assert not client.call("ls").is_error


def test_the_page_answers_an_approval_while_the_call_waits():
    with shared(options=OPTIONS) as running, client_of(running) as client:
        page = running.page()

        def approve() -> None:
            until(lambda: running.recorded("approval.requested"))
            asked = running.recorded("approval.requested")[0]["id"]
            (row,) = sessions(running)
            until(lambda: page.ask("GET", f"/api/sessions/{row['id']}/view").json["view"]["approvals"])
            command = {"type": "approve", "approval": asked, "approved": True}
            assert page.ask("POST", f"/api/sessions/{row['id']}/commands", command).status == 202

        user = threading.Thread(target=approve)
        user.start()
        result = client.call("shell", command="echo by the page >made.txt")
        user.join()
        assert not result.is_error
        assert (running.workspace / "made.txt").read_text() == "by the page\n"
        assert "waits for an answer on lmagent's page" in "".join(client.progress)
        assert running.recorded("approval.resolved")[0]["by"] == "web"


def test_the_clients_user_answers_if_it_can_ask():
    with shared(options=OPTIONS) as running, client_of(running, can_ask=True) as client:
        client.answers = [{"allow": True}]
        assert not client.call("shell", command="echo x >made.txt").is_error
        assert running.recorded("approval.resolved")[0]["by"] == "mcp"


def test_the_page_undoes_a_change_of_a_client():
    with shared(options=OPTIONS) as running, client_of(running, can_ask=True) as client:
        client.answers = [{"allow": True}]
        client.call("write", path="made.txt", content="x")
        (row,) = sessions(running)
        answer = running.ask("POST", f"/api/sessions/{row['id']}/commands", {"type": "undo"})
        assert answer.status == 202, answer.body
        assert not (running.workspace / "made.txt").exists()


def test_a_session_that_the_user_deletes_is_followed_by_a_new_one():
    with shared(options=OPTIONS) as running, client_of(running) as client:
        client.call("ls")
        (first,) = sessions(running)
        assert running.ask("DELETE", f"/api/sessions/{first['id']}").status == 200
        assert not client.call("ls").is_error
        (second,) = sessions(running)
        assert second["id"] != first["id"]


def test_a_client_that_cancels_over_http_ends_the_command():
    with shared(options=OPTIONS) as running, client_of(running, can_ask=True) as client:
        client.answers = [{"allow": True}]
        beats = "while true; do date +%s%N >beat; sleep 0.05; done"
        client.call_until("shell", {"command": beats}, (running.workspace / "beat").exists)
        until(lambda: [event["status"] for event in running.recorded("tool.finished")] == ["interrupted"])


def test_the_session_of_a_client_that_leaves_is_released():
    with shared([say("I resumed it.")], options=OPTIONS) as running:
        with client_of(running) as client:
            client.call("ls")
            (row,) = sessions(running)
            words = ("--resume", row["id"], "--base-url", running.model.base_url, "-m", "scripted", "hi")
            assert "is in use by process" in running.lmagent(*words).stderr
        until(lambda: running.lmagent(*words).returncode == 0)


def test_a_gateway_that_ends_keeps_the_task_for_the_next_one(tmp_path: Path):
    script = [hang(say("never said"), chunks=0), say("I am done now.")]
    with gateway(tmp_path, script, options=OPTIONS) as running:
        assert not has_loaded_the_sdk(running)
        with client_of(running) as client:
            stopping = threading.Thread(target=lambda: (running.until_asked(1), running.stop()))
            stopping.start()
            with suppress(MCPError):  # its stream ends, with the result or before it
                assert client.call("delegate", task="wait").structured_content["outcome"] == "open"
            stopping.join()
        running.start()
        until(lambda: [end["answer"] for end in running.recorded("turn.finished")] == ["I am done now."])


def has_loaded_the_sdk(running: Running) -> bool:
    """Whether the process has loaded pydantic, without which the SDK cannot be imported."""
    assert running.process is not None
    maps = Path(f"/proc/{running.process.pid}/maps")
    return maps.exists() and "pydantic_core" in maps.read_text()


def test_a_plain_gateway_loads_nothing_of_the_sdk():
    with shared() as running:
        running.ask("GET", "/api/sessions")
        assert not has_loaded_the_sdk(running)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at what a process has loaded, on Linux")
def test_the_sdk_is_loaded_with_the_first_request():
    with shared(options=OPTIONS) as running:
        running.ask("POST", "/mcp", HELLO, TAKES)
        assert has_loaded_the_sdk(running)


def test_without_the_setting_nothing_is_at_the_address():
    with shared() as running:
        answer = running.ask("POST", "/mcp", HELLO, TAKES)
        assert (answer.status, answer.code) == (404, "not_found")


def test_an_untrusted_folder_cannot_switch_it_on(tmp_path: Path):
    from lmagent.cli.shared import loaded_settings

    (tmp_path / ".lmagent").mkdir()
    (tmp_path / ".lmagent" / "config.toml").write_text("mcp_serve = true\n")
    assert loaded_settings(tmp_path).settings.mcp_serve is False
