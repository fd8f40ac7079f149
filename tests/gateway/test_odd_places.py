"""What is no session, in the folder of the sessions: every route says so, and the list of the others is unharmed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import Running, gateway
from seed_client import chatting

from lmagent.app.clock import SystemClock
from lmagent.core.errors import SessionDamaged, SessionNotFound
from lmagent.gateway.http.app import TABLE
from lmagent.store.jsonl import JsonlStore
from lmagent.testing.script import say

MESSAGE = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
COMMANDS: list[Any] = [
    {"type": "submit", "message": MESSAGE, "id": "one"},
    {"type": "steer", "message": MESSAGE},
    {"type": "answer", "text": "yes"},
    {"type": "approve", "approval": "x", "approved": True},
    *({"type": kind} for kind in ("interrupt", "fork", "close", "undo", "redo", "continue", "compact")),
    {"type": "rename", "title": "x"},
    {"type": "set_mode", "mode": "auto"},
]
BODIES: dict[str, list[Any]] = {
    "/api/sessions/{session}/commands": COMMANDS,
    "/api/sessions/{session}/slash": [{"line": "/help"}, {"line": "/undo"}],
    "/api/chat/{session}": [{"message": "hi"}],
}


def put_odd_things(root: Path) -> list[str]:
    """Everything that could stand there, by name."""
    (root / "a-file").write_text("x")
    (root / "a-pipe").mkdir()
    os.mkfifo(root / "a-pipe" / "events.jsonl")
    (root / "a-folder-as-log").mkdir()
    (root / "a-folder-as-log" / "events.jsonl").mkdir()
    (root / "dangling").symlink_to(root / "nothing")
    (root / "in-a-circle").symlink_to(root / "in-a-circle")
    for name, leads in (("dangling-log", "/nowhere/at/all"), ("circular-log", "events.jsonl"), ("log-elsewhere", "")):
        (root / name).mkdir()
        (root / name / "events.jsonl").symlink_to(leads or root / "good" / "events.jsonl")
    (root / "elsewhere").symlink_to(root / "good")
    return sorted(path.name for path in root.iterdir() if path.name != "good")


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Running]:
    with gateway(tmp_path_factory.mktemp("odd"), lambda _: say("Noted.")) as started:
        started.ask("POST", "/api/chat/good", {"message": "hello"})
        put_odd_things(started.workspace / ".lmagent" / "sessions")
        (started.workspace / ".lmagent" / "sessions" / "empty").mkdir()
        yield started


ODD = ["a-file", "a-folder-as-log", "a-pipe", "circular-log", "dangling", "dangling-log"]
ODD += ["elsewhere", "empty", "in-a-circle", "log-elsewhere"]


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_session_is_refused_by_every_route(running, name):
    before = list((running.workspace / ".lmagent" / "sessions").rglob("*"))
    for route in TABLE:
        if "{session}" not in route.path or (name == "empty" and route.path == "/api/chat/{session}"):
            continue  # in an empty folder a chat may begin
        path = route.path.replace("{session}", name)
        for part in ("{call}", "{call_id}", "{sha}", "{input}", "{n}"):
            path = path.replace(part, "0")
        for body in BODIES.get(route.path, [None if route.method in ("GET", "DELETE") else {}]):
            answer = running.ask(route.method, path, body, timeout=10)
            assert 400 <= answer.status < 500, (route.method, path, body, answer.status, answer.body)
            assert answer.json["error"]["message"]
    assert list((running.workspace / ".lmagent" / "sessions").rglob("*")) == before


@pytest.mark.parametrize("name", ["a-file", "a-pipe", "dangling"])
def test_a_socket_says_so_and_stays(running, name):
    with chatting(running, name) as client:
        client.say("message", content="hi")
        assert "no session" in client.until("error")["message"]
        client.say("ping")
        client.until("pong")


def test_the_list_has_the_sessions_and_nothing_else(running):
    answer = running.ask("GET", "/api/sessions?limit=500", timeout=10)
    assert [row["id"] for row in answer.json["sessions"]] == ["good"]
    assert running.ask("GET", "/api/activity").status == 200


def test_a_log_that_may_not_be_read_is_refused_with_the_reason():
    root = Path(tempfile.mkdtemp())
    try:
        (root / "mine").mkdir()
        log = root / "mine" / "events.jsonl"
        log.write_text("")
        log.chmod(0)
        for folder in (root, root / "mine"):
            folder.chmod(0o755)
        store, me = JsonlStore(root, SystemClock()), os.geteuid()
        if not me:
            os.seteuid(65534)  # root may read everything
        try:
            with pytest.raises(SessionDamaged, match="may not be read"):
                store.require_readable("mine")
            with pytest.raises(SessionNotFound):
                store.require_readable("other")
        finally:
            os.seteuid(me)
    finally:
        shutil.rmtree(root)


def test_a_session_without_an_event_cannot_be_copied(running):
    folder = running.workspace / ".lmagent" / "sessions" / "nothing-yet"
    folder.mkdir()
    (folder / "events.jsonl").touch()
    answer = running.ask("POST", "/api/sessions/nothing-yet/commands", {"type": "fork"})
    shutil.rmtree(folder)
    assert (answer.status, answer.code) == (409, "empty")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_session_whose_lock_is_none_can_be_read_and_is_opened_and_deleted_by_nobody(tmp_path, make):
    with gateway(tmp_path, lambda _: say("ok")) as running:
        assert running.ask("POST", "/api/chat/main", {"message": "hello"}).status == 200
        running.kill()
        lock = running.workspace / ".lmagent" / "sessions" / "main" / "lock"
        lock.unlink()
        make(lock)
        running.start()
        assert running.ask("GET", "/api/sessions/main/view").status == 200
        submit = ("POST", "/api/sessions/main/commands", {"type": "submit", "message": MESSAGE})
        for refused in (submit, ("POST", "/api/chat/main", {"message": "hi"}), ("DELETE", "/api/sessions/main", None)):
            answer = running.ask(*refused)
            assert (answer.status, answer.code) == (409, "damaged")
        assert running.ask("GET", "/api/sessions").status == 200
