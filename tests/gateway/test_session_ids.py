"""Ids that clients choose: what the letters of the contract allow is a session on every surface."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gateway_kit import Running, gateway
from seed_client import chatting

from lmagent.testing import say

ODD = ["-", "-x", "_", ".x", "...", "--help", "-" * 64, "last"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    with gateway(tmp_path_factory.mktemp("ids"), lambda request: say("Hello.")) as started:
        yield started


def terminal(running: Running, *arguments: str) -> str:
    command = [sys.executable, "-m", "lmagent", *arguments]
    return subprocess.run(
        command, env=running.env, cwd=running.workspace, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("id", ODD)
def test_an_odd_name_is_a_session_on_every_surface(running: Running, id: str) -> None:
    answer = running.ask("POST", f"/api/chat/{id}", {"message": f"greet {id}"})
    assert (answer.status, answer.json["session_id"]) == (200, id)
    assert id in [row["id"] for row in running.ask("GET", "/api/sessions").json["sessions"]]
    assert running.ask("GET", f"/api/sessions/{id}/history").json["messages"][-1]["content"] == "Hello."
    with chatting(running, id) as client:
        client.say("message", content="again")
        assert client.until("done")["text"] == "Hello."
    body = {"model": "agent/lmagent", "messages": [{"role": "user", "content": "once more"}]}
    assert running.ask("POST", "/v1/chat/completions", body, {"X-Session": id}).headers["x-session"] == id
    assert running.ask("POST", f"/api/sessions/{id}/slash", {"line": "/status"}).status == 200
    exported = [
        json.loads(line) for line in terminal(running, "sessions", "export", "--format", "jsonl", "--", id).splitlines()
    ]
    assert [event["answer"] for event in exported if event["type"] == "turn.finished"] == ["Hello."] * 3
    assert running.ask("DELETE", f"/api/sessions/{id}").json == {"deleted": id}


def test_a_slash_command_without_a_session_goes_to_none(running: Running) -> None:
    running.ask("POST", "/api/chat/-", {"message": "hello"})
    answer = running.ask("POST", "/api/slash", {"line": "/undo"})
    assert answer.status >= 400, answer.body
    assert running.ask("POST", "/api/slash", {"line": "/help"}).status == 200


def test_a_session_that_is_called_like_a_file_does_not_replace_it(running: Running) -> None:
    readme, elsewhere = running.workspace / "README.md", running.folder / "elsewhere"
    readme.write_text("mine")
    (running.workspace / "7.md").symlink_to(elsewhere)
    for id in ("README", "AGENTS", ".lmagent", "7"):
        running.ask("POST", f"/api/chat/{id}", {"message": "hello"})
        for _ in range(2):
            answer = running.ask("POST", f"/api/sessions/{id}/slash", {"line": "/export md"})
            written = Path(answer.json["text"].removeprefix("written to "))
            assert "Hello." in written.read_text()
    assert readme.read_text() == "mine"
    assert not elsewhere.exists()
    assert not (running.workspace / "AGENTS.md").exists()
    assert not (running.workspace / ".lmagent.md").exists()


@pytest.mark.parametrize("id", [".", "..", "activity", "x" * 65, "a b", "ä", "a/b", "a\x00"])
def test_what_no_session_can_be_called_is_none_for_a_job_either(tmp_path: Path, id: str) -> None:
    from lmagent.schedule.jobs import read_jobs

    job = {"id": "j", "name": "j", "schedule": "daily 09:00", "prompt": "x", "session_id": id}
    (tmp_path / "cron.json").write_text(json.dumps([job]))
    assert not read_jobs(tmp_path).jobs
