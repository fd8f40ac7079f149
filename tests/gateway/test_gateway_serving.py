"""Serving: limits in time and size, and connections in number."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

import pytest
from gateway_kit import drained
from hypothesis import given
from hypothesis import strategies as st
from serving_kit import AUTH, ROUTES, SOCKETS, Lab, answer_to, lab, opened

from lmagent.gateway.http.connections import Caps, Connection, Connections
from lmagent.gateway.http.route import Patience
from lmagent.gateway.http.serving import ServingLimits

QUICK = ServingLimits(head=0.5, stall=1, idle=1, linger=0.5, ping=0.3, grace=1, caps=Caps(client=20, total=30))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    patience = Patience(silence=0.4, whole=0.5, rate=10_000_000)
    with lab(tmp_path_factory.mktemp("serving"), ROUTES, SOCKETS, limits=QUICK, patience=patience) as made:
        yield made


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A server that leaves everybody the time that they need."""
    with lab(tmp_path_factory.mktemp("calm"), ROUTES) as made:
        yield made


def left_with(running: Lab, count: int) -> None:
    """Wait until there are only so many connections."""
    deadline = time.monotonic() + 20
    while len(running.server.connections) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


class TestHeads:
    def test_a_head_that_does_not_come_is_not_waited_for(self, running):
        for sent in (b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
            assert answer_to(running, sent).startswith(b"HTTP/1.1 408 ")

    def test_a_head_that_drips_is_cut_off_too(self, running):
        drips = [b"GET /healthz HTTP/1.1\r\n"] + [b"X-%d: 1\r\n" % n for n in range(30)]
        assert b" 408 " in answer_to(running, *drips, gap=0.1)

    def test_the_second_request_of_a_connection_may_not_drip_either(self, running):
        first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        came = answer_to(running, first, *[b"G"] + [b"E"] * 30, gap=0.1)
        assert came.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in came

    def test_an_idle_connection_ends_and_an_answer_that_takes_longer_does_not(self, running):
        slow = b"GET /api/wait HTTP/1.1\r\n" + AUTH + b"\r\n"
        began = time.monotonic()
        came = answer_to(running, slow)
        assert came.startswith(b"HTTP/1.1 200 ")
        assert b" 408 " not in came
        assert time.monotonic() - began < 9

    @pytest.mark.parametrize("large", [70_000, 300_000, 5_000_000])
    def test_a_head_of_more_than_64_kb_is_refused(self, running, large):
        for head in (b"X-Long: " + b"a" * large, b"\r\n".join(b"X-%d: %d" % (n, n) for n in range(large // 10))):
            came = answer_to(running, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")
            assert came.startswith(b"HTTP/1.1 431 ")
        came = answer_to(running, b"GET /" + b"a" * large + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert came.startswith(b"HTTP/1.1 431 ")

    def test_a_head_of_60_kb_is_read(self, running):
        came = answer_to(running, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 60_000 + b"\r\n\r\n")
        assert came.startswith(b"HTTP/1.1 200 ")

    @pytest.mark.parametrize(
        "sent",
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"HELLO\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
            b"GET \0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ],
    )
    def test_what_is_no_request_gets_an_answer_that_says_so(self, running, sent):
        came = answer_to(running, sent)
        assert came.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 421 ", b"HTTP/1.1 505 "))
        head, _, body = came.partition(b"\r\n\r\n")
        assert b"content-security-policy" in head
        assert json.loads(body[: body.rindex(b"}") + 1])["error"]["message"]


class TestBodies:
    def test_json_of_a_megabyte_fits_and_more_does_not(self, calm):
        fits = b'"' + b"a" * 999_998 + b'"'
        assert calm.ask("POST", "/api/size", fits).json == {"size": 999_998}
        refused = calm.ask("POST", "/api/size", fits + b" ")
        assert (refused.status, refused.code) == (413, "too_large")

    def test_a_route_may_take_more(self, calm):
        assert calm.ask("POST", "/api/raw", b"a" * 5_000_000).json == {"size": 5_000_000}
        assert calm.ask("POST", "/api/raw", b"a" * 5_000_001).status == 413

    def test_what_says_that_it_is_too_large_is_not_read_at_all(self, running):
        head = b"POST /api/size HTTP/1.1\r\n" + AUTH + b"Content-Length: 2000000000\r\n\r\n"
        assert answer_to(running, head).startswith(b"HTTP/1.1 413 ")

    def test_an_endless_chunked_body_is_cut_off(self, running):
        head = b"POST /api/size HTTP/1.1\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n\r\n"
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        began = time.monotonic()
        came = answer_to(running, head, *[chunk] * 5000)
        assert came.startswith(b"HTTP/1.1 413 ") or not came  # what was not read may be lost with the connection
        assert time.monotonic() - began < 15

    def test_who_is_refused_may_read_why_while_still_sending(self, calm):
        answer = calm.anyone.ask("POST", "/api/raw", b"a" * 4_000_000)
        assert (answer.status, answer.code) == (401, "no_credentials")

    def test_a_body_that_stops_and_one_that_drips_are_given_up(self, running):
        for gap, pieces in ((0.0, [b'"a']), (0.1, [b'"'] + [b"a"] * 40)):
            head = b"POST /api/size HTTP/1.1\r\n" + AUTH + b"Content-Length: 1000\r\n\r\n"
            assert answer_to(running, head, *pieces, gap=gap).startswith(b"HTTP/1.1 408 ")

    def test_a_body_with_two_lengths_is_refused_and_what_follows_is_no_request(self, running):
        smuggled = b"GET /api/wait HTTP/1.1\r\n" + AUTH + b"\r\n"
        for lengths in (
            b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n" % (len(smuggled) + 5),
            b"Content-Length: 5\r\nContent-Length: 6\r\n",
            b"Content-Length: 5, 6\r\n",
            b"Content-Length: +5\r\n",
            b"Content-Length: -1\r\n",
            b"Content-Length: 0x5\r\n",
            b"Transfer-Encoding: chunked, identity\r\n",
            b"Transfer-Encoding: gzip\r\n",
            b"Transfer-Encoding: xchunked\r\n",
            b"Transfer-Encoding:\x0bchunked\r\n",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ):
            sent = b"POST /healthz HTTP/1.1\r\n" + AUTH + lengths + b"\r\n0\r\n\r\n" + smuggled
            came = answer_to(running, sent)
            assert came.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")), (lengths, came)
            assert came.count(b"HTTP/1.1 ") == 1, (lengths, came)

    @pytest.mark.parametrize(
        "chunk", [b"zz\r\n", b"5\r\nhelloX", b"-1\r\n\r\n", b"f" * 40 + b"\r\n", b"5;" + b"a" * 100_000]
    )
    def test_a_chunk_that_is_none_is_refused(self, running, chunk):
        head = b"POST /api/size HTTP/1.1\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n\r\n"
        assert answer_to(running, head + chunk)[:11] in (b"HTTP/1.1 40", b"HTTP/1.1 43", b"")

    def test_half_an_answer_does_not_look_like_a_whole_one(self, running):
        running.said.clear()
        came = answer_to(running, b"GET /api/half HTTP/1.1\r\n" + AUTH + b"\r\n")
        assert b"half" in came
        assert not came.endswith(b"0\r\n\r\n")
        assert len(running.said) == 1


class TestAnswers:
    def test_a_stranger_who_does_not_take_an_answer_is_not_waited_for(self, running):
        ask = b"GET /api/open HTTP/1.1\r\nHost: localhost\r\n"
        left_with(running, 0)
        with opened(running, ask + b"\r\n") as stranger, opened(running, ask + AUTH[17:] + b"\r\n") as known:
            left_with(running, 2)
            left_with(running, 1)
            assert len(drained(stranger)) < 10_000_000
            assert known.recv(12) == b"HTTP/1.1 200"
            assert len(drained(known)) > 9_999_000

    def test_requests_that_are_sent_ahead_are_answered_in_order(self, calm):
        first = b"POST /api/size HTTP/1.1\r\n" + AUTH + b"Content-Length: 3\r\n\r\n"
        last = first.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        came = answer_to(calm, (first + b'"a"') * 3 + last, b'"b', b'"', gap=0.2)
        assert came.count(b"HTTP/1.1 200") == 4
        assert came.count(b'{"size":1}') == 4


class TestNumbers:
    def test_idle_sockets_of_one_address_do_not_keep_others_of_it_out(self, running):
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(opened(running))
            for _ in range(5):
                assert running.anyone.ask("GET", "/healthz").status == 200
        assert running.server.connections.dropped >= 40

    def test_who_has_shown_credentials_is_not_sent_away(self, running):
        with running.stream("/api/stream") as events:
            with ExitStack() as stack:
                for _ in range(60):
                    stack.enter_context(opened(running, b"GET / HT"))
                assert running.ask("GET", "/healthz").status == 200
            assert events.answer.readline() == b": hello\n"

    def test_what_is_closed_is_not_counted_any_more(self, running):
        left_with(running, 0)

    @given(
        st.lists(
            st.tuples(st.sampled_from(["come", "show", "go"]), st.integers(0, 3), st.integers(0, 30)), max_size=200
        )
    )
    def test_there_are_never_more_than_allowed_unless_all_have_shown_credentials(self, steps):
        ledger = Connections(Caps(client=4, total=9))
        alive: list[Connection] = []

        class Transport:
            def __init__(self, address: str) -> None:
                self.address = address

            def get_extra_info(self, name: str) -> tuple[str, int]:
                return self.address, 1

            def abort(self) -> None:
                gone = next(one for one in alive if one._transport is self)
                alive.remove(gone)
                gone.gone()

        for what, who, which in steps:
            if what == "come":
                connection = Connection(Transport(f"10.0.0.{who}"), ledger)
                alive.append(connection)
                ledger.add(connection)
            elif alive and what == "show":
                alive[which % len(alive)].know()
            elif alive:
                alive.pop(which % len(alive)).gone()
            strangers = [one for one in alive if not one.known]
            assert len(ledger) == len(alive)
            assert len(alive) <= 9 or not strangers or all(one.known for one in alive)
            for address in {one.address for one in strangers}:
                assert sum(one.address == address for one in strangers) <= 4
