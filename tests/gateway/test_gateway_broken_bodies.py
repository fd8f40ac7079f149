"""Bodies that break off, or are none: each gets its 4xx where somebody can still read it, and no fault is said."""

import socket

import pytest
from gateway_kit import gateway

CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("bodies")) as started:
        yield started


def head(running, path, rest):
    fields = f"Host: localhost\r\nAuthorization: {running.headers['Authorization']}\r\n"
    return f"POST {path} HTTP/1.1\r\n{fields}{rest}".encode()


@pytest.mark.parametrize("path", ["/api/login", "/api/sessions", "/api/uploads", "/v1/chat/completions"])
@pytest.mark.parametrize("chunks", ["ZZZ\r\n", "-1\r\n\r\n", "2\r\nabcd\r\n0\r\n\r\n", "fffffffffffffffffffff\r\n"])
def test_what_is_no_body_is_told_so_and_is_no_fault(running, path, chunks):
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as connection:
        connection.sendall(head(running, path, CHUNKED + chunks))
        if chunks.startswith("5"):
            connection.shutdown(socket.SHUT_WR)
        came = connection.recv(65536)
    assert came.startswith(b"HTTP/1.1 400 "), came
    assert b'{"error":{"' in came
    assert running.ask("GET", "/api/me").status == 200
    assert not [line for line in running.said if "Disconnect" in line or "fault" in line]


@pytest.mark.parametrize("path", ["/api/sessions", "/api/sessions/one/commands", "/v1/chat/completions"])
@pytest.mark.parametrize("begin", [b"", b'{"title": ', b'{"x": ', b'{"messages": ', b'{"tools": '])
def test_json_that_is_nested_a_hundred_thousand_deep_is_refused(running, path, begin):
    depth = 100_000
    for text in (begin + b"[" * depth, begin + b"[" * depth + b"]" * depth, begin + b'{"a":' * depth):
        assert running.ask("POST", path, text).status == 400
    assert not [line for line in running.said if "Error" in line]


def test_who_goes_away_in_the_middle_of_a_body_is_no_fault(running):
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as connection:
            connection.sendall(head(running, "/api/sessions", "Content-Length: 500\r\n\r\n{"))
            assert running.ask("GET", "/api/me").status == 200
    assert running.ask("GET", "/api/me").status == 200
    assert running.stop() == 0
    assert not [line for line in running.said if "Disconnect" in line or "http /api" in line]
