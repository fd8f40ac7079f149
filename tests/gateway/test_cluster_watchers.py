"""Watchers of two gateways while one is killed: each recorded event arrives once and in order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from clustered_kit import Clustered, cluster
from gateway_kit import Running, until
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, call, say, slow

SESSIONS, STEPS = 4, 3
AWAY = (OSError, HTTPException, WebSocketException, AssertionError)


def script(received: Received) -> Reply:
    done = sum(message["role"] == "tool" for message in received.fields["messages"])
    return slow(say("done"), first=0.3) if done >= STEPS else slow(call("list", path="."), first=0.3)


class Watcher(threading.Thread):
    """A client that watches a session, or all of them, and resumes at the next gateway when its own is gone."""

    def __init__(self, gateways: list[Running], session: str = "", after: str = "", *, by_socket: bool = False) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[str, int]] = []
        self.place = after
        self.connects = 0
        self.is_open = self.is_done = False
        self._gateways, self.session = gateways, session
        self.began = bool(session or after)  # whether it begins at the beginning, not from now on
        self._read = self._by_socket if by_socket else self._by_stream
        self.start()

    def run(self) -> None:
        while not self.is_done:
            gateway = self._gateways[self.connects % len(self._gateways)]
            self.connects += 1
            try:
                self._read(gateway)
            except AWAY:
                time.sleep(0.1)

    def take(self, event: dict[str, Any]) -> None:
        if event["seq"]:
            self.seen.append((event["session"], event["seq"]))

    def _by_stream(self, gateway: Running) -> None:
        path = f"/api/sessions/{self.session}/events" if self.session else "/api/events"
        headers = {"Last-Event-ID": self.place}
        with gateway.stream(path, headers, timeout=20) as events:
            fields: dict[str, str] = {}
            for raw in events.answer:
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                    continue
                self.is_open = True
                if "data" in fields:
                    self.take(json.loads(fields["data"]))
                self.place = fields.get("id", self.place)
                fields = {}
                if self.is_done:
                    return

    def _by_socket(self, gateway: Running) -> None:
        watch: dict[str, Any] = {"type": "watch_all", "id": "a", "after": self.place}
        if self.session:
            watch |= {"type": "watch", "session": self.session, "after": int(self.place or 0)}
        url = f"ws://127.0.0.1:{gateway.port}/api/socket"
        with connect(url, additional_headers=gateway.headers, open_timeout=20, proxy=None) as socket:
            socket.send(json.dumps(watch))
            while not self.is_done:
                message = json.loads(socket.recv(20))
                assert message["type"] != "ended", message
                for event in message.get("events", ()):
                    self.take(event)
                    if self.session and event["seq"]:
                        self.place = str(event["seq"])
                self.place = message.get("cursor", self.place)
                self.is_open = True


def begun(gateway: Running) -> str:
    return gateway.ask("POST", "/api/sessions", {}).json["session"]


def submit(gateway: Running, session: str) -> None:
    message = {"role": "user", "parts": [{"type": "text", "text": "go"}]}
    answer = gateway.ask("POST", f"/api/sessions/{session}/commands", {"type": "submit", "message": message})
    assert answer.status == 202, answer.body


Places = dict[str, list[int]]


def recorded(running: Clustered) -> Places:
    """Return the `seq` of all recorded events, by session."""
    rows = running.sql("SELECT id, event.seq FROM event JOIN session ON event.session = number ORDER BY event.seq")
    return grouped([(str(session), int(seq)) for session, seq in rows])


def grouped(events: list[tuple[str, int]]) -> Places:
    found: Places = {}
    for session, seq in events:
        found.setdefault(session, []).append(seq)
    return found


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Clustered]:
    with cluster(tmp_path, script, workers=2, PERMISSION_MODE="auto", SANDBOX="off") as made:
        yield made


def test_twenty_watchers_have_each_event_once_while_one_of_two_gateways_is_killed(
    running: Clustered, tmp_path: Path
) -> None:
    with running.another_gateway(tmp_path / "other") as other:
        sessions = [begun(other) for _ in range(SESSIONS)]
        before = recorded(running)
        both = [running, other]
        watchers: dict[Watcher, Places] = {}  # what each has to be given, later
        for session in sessions:
            for gateways, by_socket in ((both, False), (both, True), ([other], False)):
                watchers[Watcher(gateways, session, by_socket=by_socket)] = {}
        for gateways in (both, both[::-1]):
            for after in ("", "0"):
                for by_socket in (False, True):
                    watchers[Watcher(gateways, after=after, by_socket=by_socket)] = {}
        assert len(watchers) == 20
        until(lambda: all(watcher.is_open for watcher in watchers))
        for session in sessions:
            submit(other, session)
        until(lambda: len(running.recorded("tool.finished")) >= SESSIONS)
        running.kill()
        until(lambda: len(running.recorded("turn.finished")) == SESSIONS, seconds=90)
        everything = recorded(running)
        for watcher in watchers:
            watchers[watcher] = {
                session: [seq for seq in seqs if watcher.began or seq not in before[session]]
                for session, seqs in everything.items()
                if watcher.session in ("", session)
            }
        until(lambda: all(len(one.seen) >= sum(map(len, wanted.values())) for one, wanted in watchers.items()))
        time.sleep(1)  # an event that comes twice may come late
        for watcher, wanted in watchers.items():
            watcher.is_done = True
            assert grouped(watcher.seen) == wanted
        resumed = [watcher for watcher in watchers if watcher.connects > 1]
        assert len(resumed) == 12
        assert {watcher.connects for watcher in resumed} == {2}
