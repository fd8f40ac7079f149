"""Serving: sockets, TLS, and the end."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from http.client import HTTPSConnection, IncompleteRead

import pytest
from serving_kit import AUTH, ROUTES, SOCKETS, answer_to, lab, opened, wait
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from lmagent.core.errors import ConfigError
from lmagent.gateway.http.access import Done
from lmagent.gateway.http.connections import Caps, tls_of
from lmagent.gateway.http.route import Call, Patience, Route
from lmagent.gateway.http.serving import FRAME, ServingLimits

QUICK = ServingLimits(head=0.5, idle=1, linger=0.5, ping=0.3, grace=1, caps=Caps(client=20, total=30))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    patience = Patience(silence=0.4, whole=0.5, rate=10_000_000)
    with lab(tmp_path_factory.mktemp("serving"), ROUTES, SOCKETS, limits=QUICK, patience=patience) as made:
        yield made


class TestSockets:
    def test_a_message_of_4_mb_fits_and_more_closes_the_socket(self, running):
        with connect(f"ws://127.0.0.1:{running.port}/ws/a", additional_headers=running.headers, proxy=None) as one:
            one.send("a" * FRAME)
            assert one.recv() == str(FRAME)
            with suppress(ConnectionClosed):  # it may be closed before all was sent
                one.send("a" * (FRAME + 1))
            with pytest.raises(ConnectionClosed) as closed:
                one.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009

    @pytest.mark.parametrize(
        "frame",
        [
            b"\xf1\x80\0\0\0\0",
            b"\x81\x05hello",
            b"\x83\x80\0\0\0\0",
            b"\x89\xfe\xff\xff",
            b"\x80\x80\0\0\0\0",
            b"\x81\xff" + b"\xff" * 8,
        ],
    )
    def test_a_malformed_frame_closes_that_socket_and_no_other(self, running, frame):
        hello = (
            b"GET /ws/a HTTP/1.1\r\n" + AUTH + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        with connect(f"ws://127.0.0.1:{running.port}/ws/b", additional_headers=running.headers, proxy=None) as other:
            came = answer_to(running, hello, frame, gap=0.1)
            assert came.startswith(b"HTTP/1.1 101 ")
            assert b"\x88" in came  # a close frame
            other.send("hello")
            assert other.recv() == "5"

    def test_a_socket_that_has_nothing_to_say_stays(self, running):
        with connect(f"ws://127.0.0.1:{running.port}/ws/a", additional_headers=running.headers, proxy=None) as one:
            time.sleep(1.5)  # three times as long as a head may take, and several pings
            one.send("hello")
            assert one.recv() == "5"

    def test_a_client_that_answers_no_ping_is_let_go(self, running):
        hello = (
            b"GET /ws/a HTTP/1.1\r\n" + AUTH + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert b"\x89" in answer_to(running, hello)

    @pytest.mark.parametrize(
        "lines", [b"", b"Sec-WebSocket-Version: 12\r\n", b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n"]
    )
    def test_a_handshake_that_is_none_is_refused(self, running, lines):
        head = b"GET /ws/a HTTP/1.1\r\n" + AUTH + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + lines + b"\r\n"
        assert answer_to(running, head).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 426 "))

    @pytest.mark.parametrize(
        ("path", "more", "status"),
        [
            ("a", b"Cookie: x=" + b"c" * 9_000 + b"\r\n", 101),
            ("a", b"Cookie: x=" + b"c" * 60_000 + b"\r\n", 101),
            ("a?" + "a" * 9_000, b"", 101),
            ("a", b"A: b\r\n" * 300, 101),
            ("a", b"Cookie: x=" + b"c" * 70_000 + b"\r\n", 431),
            ("a", b"Cookie: x=c\r\n" * 20_000, 431),
            ("a?" + "a" * 70_000, b"", 431),
            ("a", b"Transfer-Encoding: chunked\r\n", 400),
        ],
        ids=["long-line", "almost-64-kB", "long-path", "many-lines", "70-kB", "260-kB", "path-too-long", "body"],
    )
    def test_a_handshake_is_answered_whatever_the_size_of_its_head(self, running, path, more, status):
        head = b"GET /ws/%b HTTP/1.1\r\n" % path.encode() + AUTH + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        head += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + more + b"\r\n"
        assert answer_to(running, head).startswith(b"HTTP/1.1 %d " % status)

    def test_a_handshake_that_the_application_does_not_answer_is_refused(self, running):
        head = b"GET /silent HTTP/1.1\r\n" + AUTH + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        head += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        assert answer_to(running, head).startswith(b"HTTP/1.1 408 ")


class TestTheEnd:
    def test_the_hub_leaves_first_and_streams_end_within_the_grace(self, tmp_path):
        with lab(tmp_path, ROUTES, SOCKETS, limits=ServingLimits(grace=1, caps=Caps())) as stopping:
            with stopping.stream("/api/stream") as events:
                assert events.answer.readline() == b": hello\n"
                began = time.monotonic()
                stopping.server.should_exit = True
                with pytest.raises(IncompleteRead):  # it never ends by itself
                    events.answer.read()
                assert time.monotonic() - began < 6
            assert stopping.hub.left >= began

    def test_a_request_that_is_being_answered_is_answered(self, tmp_path):
        begun = threading.Event()

        async def long(call: Call) -> Done:
            begun.set()
            return await wait(call)

        route = Route("GET", "/api/long", long, "Wait", answer=Done)
        with lab(tmp_path, [route], limits=ServingLimits(grace=5, caps=Caps())) as stopping:
            answers = []
            asking = threading.Thread(target=lambda: answers.append(stopping.ask("GET", "/api/long").status))
            asking.start()
            assert begun.wait(10)
            stopping.server.should_exit = True
            asking.join(10)
            assert answers == [200]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    try:
        subprocess.run(
            [*command, "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("TLS was NOT tested: there is no openssl to make a certificate with")
    return folder


class TestTls:
    def test_pages_and_sockets_go_by_tls_and_plain_http_does_not(self, certificate, tmp_path):
        context = tls_of(certificate / "cert.pem", certificate / "key.pem")
        trust = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
        limits = ServingLimits(head=0.5, caps=Caps(client=20, total=30))
        with lab(tmp_path, ROUTES, SOCKETS, limits=limits, tls=context) as secure:

            def ask(method: str, path: str, body: bytes | None = None):
                connection = HTTPSConnection("127.0.0.1", secure.port, context=trust, timeout=10)
                try:
                    connection.request(method, path, body, secure.headers)
                    answer = connection.getresponse()
                    return answer.status, answer.headers, answer.read()
                finally:
                    connection.close()

            assert ask("GET", "/healthz")[0] == 200
            status, headers, _ = ask("POST", "/api/login", json.dumps({"pin": secure.access.pin}).encode())
            assert status == 200
            assert "; Secure" in headers["set-cookie"]
            url = f"wss://127.0.0.1:{secure.port}/ws/a"
            with connect(url, additional_headers=secure.headers, ssl=trust, proxy=None) as one:
                one.send("hello")
                assert one.recv() == "5"
            assert b"HTTP/1.1 2" not in answer_to(secure, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with ExitStack() as stack:
                for _ in range(60):  # they never say hello
                    stack.enter_context(opened(secure))
                for _ in range(3):
                    assert ask("GET", "/healthz")[0] == 200
            deadline = time.monotonic() + 10
            while len(secure.server.connections):
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def test_files_that_are_no_certificate_are_told(self, certificate, tmp_path):
        (tmp_path / "text.pem").write_text("hello")
        for cert, key in (
            (tmp_path / "none.pem", None),
            (tmp_path / "text.pem", None),
            (certificate / "cert.pem", tmp_path / "text.pem"),
            (certificate / "cert.pem", None),
            (tmp_path, None),
        ):
            with pytest.raises(ConfigError, match="TLS cannot be served"):
                tls_of(cert, key)
