"""Events over one socket: the same streams as server-sent events, as many as a client wants, each with its own end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from gateway_kit import NO_MESSAGES, Client, gateway, shared
from seed_client import chatting
from serving_kit import AUTH, answer_to, lab
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from lmagent.gateway.api import events as subject
from lmagent.gateway.http.connections import Caps
from lmagent.gateway.http.serving import ServingLimits
from lmagent.testing.script import call, hang, say, slow

AUTO = {"PERMISSION_MODE": "auto", "SANDBOX": "off"}


class Line:
    """One socket at /api/socket, and what came over it, by the name of what is watched."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.cursors: dict[str, str] = {}
        self.others: list[dict[str, Any]] = []

    def say(self, type: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type, **fields}))

    def watch(self, id: str, session: str, after: int = 0) -> None:
        self.say("watch", id=id, session=session, after=after)

    def hear(self, timeout: float = 20) -> dict[str, Any]:
        message = json.loads(self.socket.recv(timeout))
        if message["type"] == "events":
            self.events.setdefault(message["id"], []).extend(message["events"])
            self.cursors[message["id"]] = message.get("cursor", "")
        else:
            self.others.append(message)
        return message

    def until(self, type: str, **fields: Any) -> dict[str, Any]:
        """The next message of a type, with these fields."""
        while True:
            message = self.hear()
            if message["type"] == type and all(message[name] == value for name, value in fields.items()):
                return message

    def until_event(self, id: str, type: str) -> None:
        while type not in self.types(id):
            self.hear()

    def closed(self) -> int:
        """The code that it is closed with."""
        while True:
            try:
                self.hear()
            except ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd is not None else 0

    def types(self, id: str) -> list[str]:
        return [event["type"] for event in self.events.get(id, [])]

    def seqs(self, id: str) -> list[int]:
        return [event["seq"] for event in self.events.get(id, []) if event["seq"]]

    def text(self, id: str) -> str:
        return "".join(event["text"] for event in self.events[id] if event["type"] == "text.delta")


@contextmanager
def line(client: Client) -> Iterator[Line]:
    url = f"ws://127.0.0.1:{client.port}/api/socket"
    with connect(url, additional_headers=client.headers, open_timeout=20, max_size=None, proxy=None) as opened:
        yield Line(opened)


def begun(running: Client) -> str:
    return running.ask("POST", "/api/sessions", {}).json["session"]


def submit(running: Client, session: str, text: str) -> None:
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    answer = running.ask("POST", f"/api/sessions/{session}/commands", {"type": "submit", "message": message})
    assert answer.status == 202, answer.body


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("idle"), [say("hi"), say("hi again")]) as running:
        yield running


def test_many_sessions_and_all_of_them_are_watched_over_one_socket():
    words = " ".join(f"word{number}" for number in range(60))
    script = [slow(say(words, chunk=6), each=0.01)] * 3
    with shared(script, **AUTO) as running, line(running) as here:
        sessions = [begun(running) for _ in range(3)]
        here.say("watch_all", id="all")
        here.until("watching", id="all")
        for session in sessions:
            here.watch(session, session)
            here.until("watching", id=session)
        for session in sessions:
            submit(running, session, "go")
        for session in sessions:
            here.until_event(session, "turn.finished")
        for session in sessions:
            numbers = here.seqs(session)
            assert numbers == list(range(1, len(numbers) + 1))
            assert here.text(session) == words
            assert {event["session"] for event in here.events[session]} == {session}
        while here.types("all").count("turn.finished") < 3:
            here.hear()
        assert all(event["seq"] for event in here.events["all"])


def test_who_comes_back_goes_on_where_it_was_over_a_restart(tmp_path):
    script = [slow(say("a " * 200, chunk=4), each=0.01), call("shell", command="seq 50"), say("done")]
    with gateway(tmp_path, script, **AUTO) as running:
        session = begun(running)
        with line(running) as here:
            here.watch("1", session)
            here.say("watch_all", id="2", after="0")
            here.until("watching", id="2")
            submit(running, session, "one")
            here.until_event("1", "turn.finished")
            while "turn.finished" not in here.types("2"):
                here.hear()
            seen, cursor = here.seqs("1"), here.cursors["2"]
            assert running.stop() == 0
            assert here.closed() == 1012
        running.start()
        submit(running, session, "two")
        with line(running) as here:
            here.watch("1", session, seen[-1])
            here.say("watch_all", id="2", after=cursor)
            here.until_event("1", "turn.finished")
            while "turn.finished" not in here.types("2"):
                here.hear()
            everything = seen + here.seqs("1")
            assert everything == list(range(1, len(everything) + 1))
            assert here.seqs("2")[0] == seen[-1] + 1


def test_who_joins_a_running_step_is_given_what_was_said_as_one_piece():
    with shared([hang(say("one two three"), chunks=3)], **AUTO) as running:
        session = begun(running)
        with line(running) as first, line(running) as late:
            first.watch("a", session)
            submit(running, session, "go")
            first.until_event("a", "text.delta")
            time.sleep(0.2)
            late.watch("b", session)
            late.until_event("b", "text.delta")
            assert late.types("b").count("text.delta") == 1
            running.ask("POST", f"/api/sessions/{session}/commands", {"type": "interrupt"})


def test_a_watch_that_cannot_be_is_answered_and_the_others_go_on(idle):
    session = begun(idle)
    with line(idle) as here:
        here.watch("good", session)
        here.until("watching", id="good")
        for id, wanted, after in (("a", "never-there", 0), ("b", "../x", 0), ("c", session, 99)):
            here.watch(id, wanted, after)
        ends = [here.until("ended") for _ in range(3)]
        assert {end["id"]: end["status"] for end in ends} == {"a": 404, "b": 404, "c": 400}
        assert {end["error"]["code"] for end in ends} == {"not_found", "beyond"}
        here.say("watch_all", id="d", after="no-cursor")
        assert here.until("ended", id="d")["error"]["code"] == "unknown_cursor"
        here.watch("a", session)  # the name is free again
        here.until("watching", id="a")
        submit(idle, session, "go")
        here.until_event("good", "turn.finished")


def test_a_session_that_is_deleted_ends_its_stream_alone(idle):
    kept, gone = begun(idle), begun(idle)
    with line(idle) as here:
        here.watch("kept", kept)
        here.watch("gone", gone)
        here.until("watching", id="gone")
        assert idle.ask("DELETE", f"/api/sessions/{gone}").status == 200
        assert here.until("ended")["id"] == "gone"
        here.watch("gone", gone)
        assert here.until("ended", id="gone")["status"] == 404
        here.say("ping")
        here.until("pong")


def test_what_is_watched_no_longer_ends_once_and_its_name_is_free(idle):
    session = begun(idle)
    with line(idle) as here:
        here.watch("x", session)
        here.until("watching")
        here.watch("x", session)
        assert here.until("error")["error"]["code"] == "in_use"
        here.say("unwatch", id="x")
        here.say("unwatch", id="x")
        here.say("unwatch", id="never watched")
        assert here.until("ended") == {"type": "ended", "id": "x"}
        here.watch("x", session)
        here.until("watching", id="x")
        here.say("ping")
        here.until("pong")
        assert [one["type"] for one in here.others].count("ended") == 1


def test_one_socket_watches_so_many_streams_and_no_more(idle):
    session = begun(idle)
    with line(idle) as here:
        for number in range(subject.MOST + 1):
            here.watch(str(number), session)
        refused = here.until("error")
        assert (refused["status"], refused["error"]["code"]) == (429, "too_many")
        here.say("unwatch", id="0")
        here.until("ended", id="0")
        here.watch("again", session)
        here.until("watching", id="again")


@pytest.mark.parametrize(
    "sent",
    [
        *NO_MESSAGES,
        *('{"type": "watch"}', '{"type": "watch", "id": ""}', '{"type": "watch", "id": "x", "session": 5}'),
        *('{"type": "watch", "id": "x", "session": "s", "after": -1}', '{"type": "unwatch", "id": 3}'),
        *('{"type": "watch", "id": "x", "session": "s", "after": 1e99}', '{"type": "ping", "more": 1}'),
        '{"type": "watch", "id": "%s", "session": "s"}' % ("x" * 65),
    ],
)
def test_what_is_no_message_is_answered_and_the_socket_stays(idle, sent):
    with line(idle) as here:
        here.socket.send(sent)
        error = here.hear()
        assert (error["type"], error["status"]) == ("error", 400)
        assert error["error"]["message"]
        here.say("ping")
        assert here.hear() == {"type": "pong"}


def test_only_who_is_known_and_comes_from_our_page_gets_a_socket(idle):
    page = idle.page()
    url = f"ws://127.0.0.1:{idle.port}/api/socket"
    for headers, status in (({}, 401), ({**page.headers, "Origin": "http://evil.example"}, 403)):
        with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers, proxy=None):
            pass
        assert refused.value.response.status_code == status
    assert answer_to(idle, hello().replace(b"localhost", b"evil.example")).startswith(b"HTTP/1.1 421 ")
    with line(page) as here:
        here.say("ping")
        here.until("pong")
    assert idle.ask("GET", "/api/socket").status == 404


def test_a_logout_ends_the_sockets_of_that_browser_and_no_others(idle):
    session = begun(idle)
    mine, other = idle.page(), idle.page()
    with line(mine) as here, line(other) as there:
        for one in (here, there):
            one.watch("x", session)
            one.until("watching")
        assert mine.ask("POST", "/api/logout").status == 200
        assert here.closed() == subject.LOGGED_OUT
        submit(idle, session, "go")
        there.until_event("x", "turn.finished")


def test_a_long_history_comes_in_pieces():
    replies = [say(f"{number} " + " ".join(map(str, range(20_000)))) for number in range(6)]
    with shared(replies, LMAGENT_CONTEXT_WINDOW="200000") as running:
        session = begun(running)
        for number in range(6):
            with line(running) as here:
                here.watch("x", session)
                submit(running, session, f"say {number}")
                while here.types("x").count("turn.finished") <= number:
                    here.hear()
        with line(running) as here:
            here.watch("x", session)
            pieces = 0
            while here.types("x").count("turn.finished") < 6:
                pieces += here.hear()["type"] == "events"
            assert pieces > 1
            assert here.seqs("x") == list(range(1, len(here.seqs("x")) + 1))


def hello() -> bytes:
    return (
        b"GET /api/socket HTTP/1.1\r\n" + AUTH + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )


@pytest.mark.long
def test_a_client_that_reads_nothing_and_answers_no_ping_is_let_go(tmp_path):
    limits = ServingLimits(ping=2, grace=1, caps=Caps())
    ping = b'{"type": "ping"}'
    frame = b"\x81" + bytes([0x80 | len(ping)]) + b"\0\0\0\0" + ping
    with lab(tmp_path, sockets=subject.SOCKETS, limits=limits) as running, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what it does not read fills every buffer soon
        deaf.settimeout(10)
        deaf.connect(("127.0.0.1", running.port))
        deaf.sendall(hello())
        assert deaf.recv(12) == b"HTTP/1.1 101"
        end = time.monotonic() + 30
        deaf.settimeout(1)
        with pytest.raises(TimeoutError):
            deaf.sendall(frame * 1_000_000)
        while len(running.server.connections):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_session_that_begins_anew_ends_its_stream_and_goes_on_with_the_new_one():
    with shared([say("old"), say("new")], **AUTO) as running:
        session = begun(running)
        with line(running) as here, chatting(running, session) as other:
            here.watch("x", session)
            submit(running, session, "one")
            here.until_event("x", "turn.finished")
            seen = here.seqs("x")[-1]
            other.say("clear")
            assert here.until("ended") == {"type": "ended", "id": "x"}
            here.events.clear()
            here.watch("x", session, seen)
            submit(running, session, "two")
            here.until_event("x", "turn.finished")
            assert here.events["x"][0]["type"] == "session.created"
            assert here.events["x"][0]["replaces"]
            assert here.seqs("x") == list(range(seen + 1, seen + 1 + len(here.seqs("x"))))
            recorded = [event for event in here.events["x"] if event.get("origin") == "model"]
            assert [event["message"]["parts"][0]["text"] for event in recorded] == ["new"]
