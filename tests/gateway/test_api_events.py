"""Streams of events over HTTP: each recorded event once and in order for everybody, over reconnects and restarts."""

from __future__ import annotations

import threading
import time
from http.client import HTTPException
from typing import Any

import pytest
from gateway_kit import Running, gateway, shared, until

from lmagent.testing.script import call, say, slow

AUTO = {"PERMISSION_MODE": "auto", "SANDBOX": "off"}


class Watcher(threading.Thread):
    """A browser with a stream: it comes back with the last id it was given, whenever the stream breaks off."""

    def __init__(self, running: Running, path: str, *, hops: int = 0) -> None:
        super().__init__(daemon=True)
        self.running, self.path, self.hops = running, path, hops
        self.events: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.connects = 0
        self.is_open = False
        self.is_done = False
        self.start()

    def run(self) -> None:
        while not self.is_done:
            try:
                self.connects += 1
                headers = {"Last-Event-ID": self.ids[-1]} if self.ids else {}
                with self.running.stream(self.path, headers, timeout=5) as events:
                    self.is_open = True
                    for count, event in enumerate(events):
                        self.events.append(event.json)
                        if event.id:
                            self.ids.append(event.id)
                        if self.is_done or (self.hops and count >= self.hops):
                            break
            except (OSError, HTTPException, AssertionError):
                time.sleep(0.05)

    def recorded(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["seq"]]

    def text(self) -> str:
        return "".join(event["text"] for event in self.events if event["type"] == "text.delta")

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


def begun(running: Running) -> str:
    return running.ask("POST", "/api/sessions", {}).json["session"]


def submit(running: Running, session: str, text: str, id: str = "") -> int:
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    body = {"type": "submit", "id": id, "message": message}
    answer = running.ask("POST", f"/api/sessions/{session}/commands", body)
    assert answer.status == 202, answer.body
    return answer.json["seq"]


def log(running: Running, session: str) -> list[int]:
    return [event["seq"] for event in running.logs()]


def test_all_who_watch_have_every_event_once_over_reconnects_and_a_restart(tmp_path):
    words = " ".join(f"word{number}" for number in range(150))
    script = [
        slow(say(words, chunk=8), each=0.01),
        call("shell", command="seq 200"),
        slow(say(words, chunk=8), each=0.01),
        slow(say("never"), first=30),
        say("gone on with"),
    ]
    with gateway(tmp_path, script, **AUTO) as running:
        session = begun(running)
        path = f"/api/sessions/{session}/events"
        watchers = [Watcher(running, path), Watcher(running, path), Watcher(running, path, hops=7)]
        everything = Watcher(running, "/api/events")
        until(lambda: everything.is_open and all(watcher.events for watcher in watchers))
        submit(running, session, "one")
        until(lambda: all("turn.finished" in watcher.types() for watcher in watchers))
        assert [watcher.text() for watcher in watchers[:2]] == [words, words]
        submit(running, session, "two")
        submit(running, session, "three")
        until(lambda: running.model.left == 1)
        time.sleep(0.2)
        assert running.stop() == 0
        running.start()
        until(lambda: all(watcher.types().count("turn.finished") == 3 for watcher in watchers))
        until(lambda: everything.types().count("turn.finished") == 3)
        seqs = log(running, session)
        assert seqs == list(range(1, len(seqs) + 1))
        for watcher in watchers:
            assert [event["seq"] for event in watcher.recorded()] == seqs
            assert {event["session"] for event in watcher.events} == {session}
        assert watchers[2].connects > 5
        numbered = [event["seq"] for event in everything.recorded()]
        assert numbered == seqs[seqs.index(numbered[0]) :]
        assert len(set(everything.ids)) == len(everything.ids)
        for watcher in (*watchers, everything):
            watcher.is_done = True


def test_who_joins_a_running_step_is_given_what_was_said_as_one_piece():
    words = " ".join(f"word{number}" for number in range(60))
    with shared([slow(say(words, chunk=4), each=0.05)], **AUTO) as running:
        session = begun(running)
        path = f"/api/sessions/{session}/events"
        first = Watcher(running, path)
        submit(running, session, "go")
        until(lambda: len(first.text()) > 15)
        late = Watcher(running, path)
        until(lambda: "turn.finished" in first.types() and "turn.finished" in late.types())
        deltas = [event["text"] for event in late.events if event["type"] == "text.delta"]
        assert "".join(deltas) == words
        assert len(deltas[0]) > 15
        first.is_done = late.is_done = True


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("idle"), [say("hi")]) as running:
        yield running


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?after=99", {}, 400),
        ("?after=-1", {}, 400),
        ("?after=x", {}, 400),
        ("?after=1.5", {}, 400),
        ("?after=9007199254740993", {}, 400),
        ("", {"Last-Event-ID": "x"}, 400),
        ("", {"Last-Event-ID": "99"}, 400),
        ("?before=1", {}, 400),
    ],
)
def test_a_place_that_is_none_is_refused(idle, query, headers, status):
    answer = idle.ask("GET", f"/api/sessions/{begun(idle)}/events{query}", headers=headers)
    assert answer.status == status
    assert answer.json["error"]["message"]


def test_a_session_that_is_not_there_has_no_stream(idle):
    assert idle.ask("GET", "/api/sessions/nothing/events").status == 404


def test_the_stream_of_all_sessions_can_begin_at_the_beginning(idle):
    session = begun(idle)
    with idle.stream("/api/events?after=0") as events:
        assert any((event.json["session"], event.json["type"]) == (session, "session.created") for event in events)


def test_a_cursor_stays_one_when_what_it_stood_for_is_deleted(idle):
    kept, gone = begun(idle), begun(idle)
    with idle.stream("/api/events?after=0") as events:
        cursor = next(event.id for event in events if event.json["session"] == gone)
    assert idle.ask("DELETE", f"/api/sessions/{gone}").status == 200
    assert idle.ask("DELETE", f"/api/sessions/{kept}").status == 200
    later = begun(idle)
    with idle.stream("/api/events", {"Last-Event-ID": cursor}) as events:
        assert next(iter(events)).json["session"] == later


@pytest.mark.parametrize("cursor", ["x", "1", "0-0", "abc-", "-1", "a" * 65])
def test_a_cursor_that_is_none_is_refused(idle, cursor):
    assert idle.ask("GET", f"/api/events?after={cursor}").status == 400


def test_a_deleted_session_ends_its_stream(idle):
    session = begun(idle)
    with idle.stream(f"/api/sessions/{session}/events", timeout=10) as events:
        found = iter(events)
        assert next(found).json["type"] == "session.created"
        assert idle.ask("DELETE", f"/api/sessions/{session}").status == 200
        assert list(found) == []
