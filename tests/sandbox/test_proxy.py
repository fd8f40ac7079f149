import contextlib
import hashlib
import socket
import stat
import struct
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from pathlib import Path

import pytest
from proxy_kit import OK, answer, echo, proxying, read_all, read_head, resolving, serving, status

from lmagent.core.errors import ConfigError, SandboxError
from lmagent.core.sandbox import HostOpener
from lmagent.sandbox.proxy import AllowListProxy, Bounds, find_python

BIG = 20 * 1024 * 1024


def test_a_request_to_a_listed_server_is_passed_on_with_the_host_of_its_target():
    with serving(answer(OK)) as server, proxying(server.at) as proxy:
        reply = proxy.get(
            f"http://{server.at}/a?b=%20c",
            "Host: evil.example",
            "Proxy-Authorization: Basic eDp5",
            "Connection: keep-alive, X-Hop",
            "X-Hop: 1",
            "Upgrade: websocket",
            "Accept: */*",
        )
    assert reply == OK
    expected = f"GET /a?b=%20c HTTP/1.1\r\nHost: {server.at}\r\nAccept: */*\r\nConnection: close"
    assert server.heads == [expected.encode()]


def test_a_server_that_is_not_listed_gets_nothing_and_the_answer_says_how_to_allow_it():
    with serving(answer(OK)) as server, proxying("example.com", f"127.0.0.1:{server.port + 1}") as proxy:
        for reply in (proxy.get(f"http://{server.at}/"), proxy.say(f"CONNECT {server.at} HTTP/1.1\r\n\r\n".encode())):
            assert reply.startswith(b"HTTP/1.1 403 Blocked by lmagent: " + server.at.encode())
            assert f"--allow-host {server.at}".encode() in reply.partition(b"\r\n\r\n")[2]
    assert not server.heads


def test_a_tunnel_carries_bytes_both_ways_and_each_half_ends_by_itself():
    with serving(echo) as server, proxying(server.at) as proxy, proxy.connect() as client:
        client.sendall(f"CONNECT {server.at} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert read_head(client) == (b"HTTP/1.1 200 Connection established", b"")
        client.sendall(b"hello\r\n\r\n\x00\xff")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"\x00\xff"


def test_a_tunnel_may_be_asked_for_in_the_older_http_and_nothing_else():
    with serving(echo) as server, proxying(server.at) as proxy:
        assert status(proxy.say(f"GET http://{server.at}/ HTTP/1.0\r\n\r\n".encode())) == 400
        assert status(proxy.say(f"CONNECT {server.at} HTTP/1.0\r\n\r\nmore".encode())) == 400
        with proxy.connect() as client:
            client.sendall(f"CONNECT {server.at} HTTP/1.0\r\n\r\n".encode())
            assert read_head(client) == (b"HTTP/1.1 200 Connection established", b"")
            client.sendall(b"hello\r\n\r\n\x00")
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == b"\x00"


def test_a_group_of_hosts_is_asked_about_and_a_refused_one_is_refused_with_its_option():
    asked: list[str] = []

    async def pattern(host: str, port: int) -> str | None:
        asked.append(host)
        return {"refused.example": "", "127.0.0.1": f"127.0.0.1:{port}", "broken.example": "*.no"}.get(host)

    with serving(answer(OK)) as server, proxying(opens=HostOpener(pattern), resolve=resolving("8.8.8.8")) as proxy:
        assert [proxy.get(f"http://{server.at}/"), proxy.get(f"http://{server.at}/")] == [OK, OK]
        for host in ("refused.example", "refused.example", "broken.example"):
            reply = proxy.get(f"http://{host}/")
            assert status(reply) == 403
            assert b"--allow-host packages" in reply.partition(b"\r\n")[0]
        assert b"is not on the allow list" in proxy.get("http://other.example/")
    assert asked == ["127.0.0.1", "refused.example", "broken.example", "other.example"]


def test_without_a_written_port_a_tunnel_leads_to_443_only():
    with proxying("example.com", resolve=resolving()) as proxy:
        assert status(proxy.say(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")) == 502
        assert status(proxy.say(b"CONNECT example.com:80 HTTP/1.1\r\n\r\n")) == 403
        assert status(proxy.get("http://example.com/")) == 502
        assert status(proxy.get("http://example.com:8080/")) == 403


PRIVATE = """
127.0.0.1 127.8.8.8 0.0.0.0 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1 100.100.100.200
192.0.0.192 198.18.0.1 203.0.113.9 192.0.2.1 198.51.100.1 192.88.99.1 168.63.129.16 224.0.0.1 239.255.255.255 240.0.0.1
255.255.255.255 ::1 :: fe80::1 fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::127.0.0.1
64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1::1 2001:0:4136::1 2001:db8::1 100::1 fec0::1 fe80::1%lo
"""


@pytest.mark.parametrize("address", PRIVATE.split())
def test_a_listed_name_that_resolves_to_an_address_off_the_internet_is_refused(address: str):
    with proxying("rebind.example:80", resolve=resolving(address)) as proxy:
        reply = proxy.get("http://rebind.example/")
    assert status(reply) == 403
    assert b"not on the internet" in reply


def test_a_name_listed_with_ip_may_be_on_the_local_network_but_is_never_a_metadata_server():
    with serving(answer(OK)) as server:
        with proxying(f"ip:nas.home:{server.port}", resolve=resolving("127.0.0.1")) as proxy:
            assert status(proxy.get(f"http://nas.home:{server.port}/")) == 200
        for address in ("169.254.169.254", "100.100.100.200", "fd00:ec2::254", "0.0.0.0", "224.0.0.1"):
            with proxying(f"ip:nas.home:{server.port}", resolve=resolving(address)) as proxy:
                assert status(proxy.get(f"http://nas.home:{server.port}/")) == 403
    assert server.heads[0].split(b"\r\n")[1] == f"Host: nas.home:{server.port}".encode()


def test_the_addresses_of_a_name_are_tried_in_turn_and_the_bad_ones_left_out():
    with serving(answer(OK)) as server:
        with proxying(f"localhost:{server.port}", resolve=resolving("169.254.169.254", "::1", "127.0.0.1")) as proxy:
            assert status(proxy.get(f"http://localhost:{server.port}/")) == 200


def test_an_unknown_host_is_asked_about_once_and_the_answer_holds():
    asked: list[tuple[str, int]] = []

    async def decide(host: str, port: int) -> bool:
        asked.append((host, port))
        return host == "yes.example"

    with proxying(decide=decide, resolve=resolving()) as proxy, ThreadPoolExecutor(20) as pool:
        assert set(map(status, pool.map(proxy.get, ["http://yes.example/"] * 10))) == {502}
        assert set(map(status, pool.map(proxy.get, ["http://no.example/"] * 10))) == {403}
    assert asked == [("yes.example", 80), ("no.example", 80)]


def test_nobody_is_asked_about_private_addresses_and_not_about_more_hosts_than_a_person_can_bear():
    asked: list[str] = []

    async def decide(host: str, port: int) -> bool:
        asked.append(host)
        return True

    bounds = Bounds(questions=3)
    with proxying(decide=decide, resolve=resolving("10.0.0.1"), bounds=bounds) as proxy:
        for host in ("127.0.0.1", "localhost", "a.localhost", "[::1]", "192.168.0.1", "169.254.169.254"):
            assert status(proxy.get(f"http://{host}:8080/")) == 403
        for number in range(6):
            assert status(proxy.get(f"http://h{number}.example/")) == 403
    assert asked == ["h0.example", "h1.example", "h2.example"]


def test_a_question_that_fails_is_a_no_and_the_proxy_goes_on():
    async def decide(host: str, port: int) -> bool:
        raise RuntimeError("nobody there")

    with serving(answer(OK)) as server, proxying(server.at, decide=decide) as proxy:
        assert status(proxy.get("http://a.example/")) == 403
        assert status(proxy.get(f"http://{server.at}/")) == 200


HOSTILE_HEADERS = {
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "the same length twice": b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": b"Content-Length: 3, 3\r\n\r\nabc",
    "a length with a sign": b"Content-Length: +3\r\n\r\nabc",
    "a hexadecimal length": b"Content-Length: 0x3\r\n\r\nabc",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "an empty length": b"Content-Length:\r\n\r\n",
    "a length and chunks": b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": b"Transfer-Encoding: identity\r\n\r\n",
    "two codings": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding in disguise": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a vertical tab": b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "space before the colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"X: 1\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a bare line feed": b"X: 1\nContent-Length: 3\r\n\r\nabc",
    "a bare carriage return": b"X: 1\rContent-Length: 3\r\n\r\nabc",
    "a NUL": b"X: 1\x00\r\n\r\n",
    "a header without colon": b"X\r\n\r\n",
    "a header without name": b": x\r\n\r\n",
    "two requests": b"\r\nGET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n",
    "more than the length": b"Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n",
    "too many headers": b"X: 1\r\n" * 300 + b"\r\n",
    "a header without end": b"X: " + b"a" * 200_000,
}


@pytest.mark.parametrize("name", HOSTILE_HEADERS)
def test_a_message_that_two_could_read_differently_is_refused(name: str):
    with serving(answer(OK)) as server, proxying(server.at) as proxy:
        reply = proxy.say(f"POST http://{server.at}/ HTTP/1.1\r\n".encode() + HOSTILE_HEADERS[name])
        assert status(reply) in (400, 411, 431)
        assert status(proxy.get(f"http://{server.at}/")) == 200
    assert len(server.heads) == 1


def test_a_body_in_chunks_is_refused_with_what_to_send_instead():
    with serving(answer(OK)) as server, proxying(server.at) as proxy:
        head = f"POST http://{server.at}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        reply = proxy.say(head + b"3\r\nabc\r\n0\r\n\r\n")
        assert status(reply) == 411
        assert b"Content-Length" in reply
    assert server.heads == []


ANSWERS = {
    b"": 502,
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK: 103,
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end": 200,
    b"HTTP/1.1 204 No Content\r\n\r\n": 204,
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n": 304,
    b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ncut": 200,
}


@pytest.mark.parametrize("data", ANSWERS, ids=lambda data: repr(data[:40]))
def test_whatever_a_server_answers_the_client_gets_an_answer(data: bytes):
    with serving(answer(data)) as server, proxying(server.at) as proxy:
        assert status(proxy.get(f"http://{server.at}/")) == ANSWERS[data]


def test_a_client_that_waits_for_a_continue_gets_one_and_the_server_never_sees_it():
    def reply(connection: socket.socket, rest: bytes) -> None:
        while len(rest) < 3:
            rest += connection.recv(10)
        connection.sendall(OK)

    with serving(reply) as server, proxying(server.at) as proxy, proxy.connect() as client:
        head = f"PUT http://{server.at}/ HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        client.sendall(head.encode())
        assert read_head(client)[0] == b"HTTP/1.1 100 Continue"
        client.sendall(b"abc")
        assert status(read_all(client)) == 200
    assert b"xpect" not in server.heads[0]


def test_servers_that_reset_and_clients_that_vanish_leave_the_proxy_working():
    def reset(connection: socket.socket, rest: bytes) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    dead = f"127.0.0.1:{free()}"
    with serving(reset) as bad, serving(echo) as good, proxying(bad.at, good.at, dead) as proxy:
        for number in range(30):
            assert status(proxy.get(f"http://{bad.at}/")) == 502
            with proxy.connect() as client:
                client.sendall(b"\x16\x03\x01garbage" if number % 3 else b"CONNECT ")
            with proxy.connect() as client:
                client.sendall(f"CONNECT {good.at} HTTP/1.1\r\n\r\n".encode()[: 10 + number])
            with proxy.connect() as client:
                client.sendall(f"POST http://{good.at}/ HTTP/1.1\r\nContent-Length: 99\r\n\r\npart".encode())
        with proxy.connect() as client:
            client.sendall(f"CONNECT {bad.at} HTTP/1.1\r\n\r\n".encode())
            assert read_head(client)[0].startswith(b"HTTP/1.1 200")
            with contextlib.suppress(ConnectionError):
                client.sendall(b"hello\r\n\r\n")
            assert read_all(client) == b""
        assert status(proxy.say(f"CONNECT {good.at} HTTP/1.1\r\n\r\n".encode() + b"early")) == 400
        assert status(proxy.get(f"http://{dead}/")) == 502


def test_slow_heads_and_idle_tunnels_are_cut():
    def hang(connection: socket.socket, rest: bytes) -> None:
        connection.recv(1)

    with serving(hang) as server, proxying(server.at, bounds=Bounds(head=0.2, idle=0.2)) as proxy:
        assert status(proxy.say(b"GET http://")) == 408
        assert status(proxy.get(f"http://{server.at}/")) == 504
        with proxy.connect() as client:
            client.sendall(f"CONNECT {server.at} HTTP/1.1\r\n\r\n".encode())
            assert read_all(client) == b"HTTP/1.1 200 Connection established\r\n\r\n"


def test_more_connections_than_allowed_wait_for_their_turn():
    now = peak = 0
    lock = threading.Lock()

    def count(connection: socket.socket, rest: bytes) -> None:
        nonlocal now, peak
        with lock:
            now += 1
            peak = max(peak, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        connection.sendall(OK)

    with serving(count) as server, proxying(server.at, bounds=Bounds(connections=4)) as proxy:
        with ThreadPoolExecutor(50) as pool:
            replies = list(pool.map(proxy.get, [f"http://{server.at}/"] * 50))
    assert set(map(status, replies)) == {200}
    assert peak <= 4


def test_fifty_parallel_requests_are_all_answered():
    with serving(answer(OK)) as server, proxying(server.at) as proxy, ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(proxy.get, [f"http://{server.at}/{number}" for number in range(50)]))
    assert set(map(status, replies)) == {200}


FRAMINGS = {"length": f"Content-Length: {BIG}", "tunnel": "X: y"}


@pytest.mark.parametrize("how", FRAMINGS)
def test_twenty_megabytes_go_both_ways_without_being_kept(how: str):
    block = bytes(range(256)) * 4096

    def mirror(connection: socket.socket, rest: bytes) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\n{FRAMINGS[how]}\r\n\r\n".encode())
        echo(connection, rest)

    def send(client: socket.socket) -> None:
        for _ in range(BIG // len(block)):
            client.sendall(block)
        client.shutdown(socket.SHUT_WR)

    with serving(mirror) as server, proxying(server.at) as proxy, proxy.connect() as client:
        if how == "tunnel":
            client.sendall(f"CONNECT {server.at} HTTP/1.1\r\n\r\n".encode())
            assert read_head(client)[1] == b""
        tracemalloc.start()
        client.sendall(f"POST http://{server.at}/ HTTP/1.1\r\n{FRAMINGS[how]}\r\n\r\n".encode())
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send, client)
            response = HTTPResponse(client)
            response.begin()
            digest = hashlib.sha256()
            while piece := response.read(65536):
                digest.update(piece)
            sent.result()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert digest.digest() == hashlib.sha256(block * (BIG // len(block))).digest()
    assert peak < 6 * 1024 * 1024


def test_the_socket_is_for_this_user_only_and_gone_afterwards():
    with proxying("example.com") as proxy:
        path = Path(proxy.path)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert len(str(path)) < 100
    assert not path.parent.exists()


def test_a_pattern_that_is_none_is_an_error_that_says_what_to_write():
    with pytest.raises(ConfigError, match=r"\*\.com.*at least two labels"):
        AllowListProxy(["*.com"])


def test_without_a_python_inside_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(SandboxError, match="python3") as failure:
        find_python()
    assert "apt install python3" in failure.value.fix
    assert find_python([Path(sys.base_prefix)]) == str(Path(sys.executable).resolve())


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_host_that_a_rule_forbids_is_refused_although_it_is_listed():
    asked: list[str] = []

    async def decide(host: str, port: int) -> bool:
        asked.append(host)
        return True

    def barred(host: str, port: int) -> bool:
        return host == "bad.example.com"

    with proxying("*.example.com", decide=decide, barred=barred, resolve=resolving()) as proxy:
        assert b"a permission rule forbids bad.example.com:80" in proxy.get("http://bad.example.com/")
        assert status(proxy.get("http://good.example.com/")) == 502
    assert asked == []
