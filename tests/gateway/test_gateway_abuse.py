"""Somebody who means ill, against the real process: nothing is got, and others are answered meanwhile."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException

import pytest
from gateway_kit import PIN, Client, Running, gateway

from lmagent.gateway.http.access import ADDRESS
from lmagent.testing.script import say

SOCKETS = int(os.environ.get("LMAGENT_SOCKETS", "4000"))
"""Connections that are held open at once; 10,000 where the system lets one process have as many files."""

PER_ADDRESS = 200
SECRET = "what the workspace keeps"


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("abuse")
    with gateway(folder, lambda _: say("Hello.")) as made:
        (folder / "secret.txt").write_text(SECRET)
        (made.workspace / "mine.txt").write_text("mine")
        yield made


@contextmanager
def others(*clients: Client) -> Iterator[Counter[int]]:
    """Clients who go on asking meanwhile; counts the statuses that they are answered, 0 for no answer at all."""
    came: Counter[int] = Counter()
    over = threading.Event()

    def go_on(client: Client) -> None:
        while not over.is_set():
            try:
                came[client.ask("GET", "/api/me", timeout=20).status] += 1
            except (OSError, HTTPException):
                came[0] += 1
            time.sleep(0.02)

    threads = [threading.Thread(target=go_on, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield came
    finally:
        over.set()
        for thread in threads:
            thread.join()


def hammer(port: int, seconds: float, attack: Callable[[HTTPConnection], int], threads: int = 4) -> Counter[int]:
    """As many requests as go, on connections that are kept; counts the statuses."""
    came: Counter[int] = Counter()
    ends = time.monotonic() + seconds

    def go_on() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        while time.monotonic() < ends:
            try:
                came[attack(connection)] += 1
            except (OSError, HTTPException):
                connection.close()
        connection.close()

    workers = [threading.Thread(target=go_on) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return came


@pytest.mark.long
def test_a_pin_is_not_guessed_at_full_speed_and_who_is_in_stays_in(running):
    page = running.page()
    numbers = iter(range(10**6))
    lock = threading.Lock()

    def guess(connection: HTTPConnection) -> int:
        with lock:
            pin = f"{next(numbers):06d}"
        connection.request("POST", "/api/login", json.dumps({"pin": pin}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    began = time.monotonic()
    with others(page, running) as meanwhile:
        came = hammer(running.port, 4, guess)
    judged = ADDRESS.burst + (time.monotonic() - began) / ADDRESS.every + 1
    assert set(came) <= {401, 429}
    assert came[401] <= judged <= 30
    assert came[429] > 50  # it was an attack
    assert set(meanwhile) == {200}
    deadline = time.monotonic() + 60
    while (answer := running.anyone.ask("POST", "/api/login", {"pin": PIN})).status != 200:
        assert answer.status == 429
        assert time.monotonic() < deadline
        time.sleep(0.2)


def log_in(running, pin: str, address: str, cookie: str = "") -> tuple[int, list[str]]:
    """The status of a login from an address, and the cookies that it gives."""
    connection = HTTPConnection("127.0.0.1", running.port, timeout=30, source_address=(address, 0))
    try:
        headers = {"Content-Type": "application/json", **({"Cookie": cookie} if cookie else {})}
        connection.request("POST", "/api/login", json.dumps({"pin": pin}), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get_all("set-cookie") or []
    finally:
        connection.close()


def test_while_one_address_guesses_others_and_known_devices_log_in(running):
    guesser, elsewhere = "127.0.0.66", "127.0.0.7"
    status, cookies = log_in(running, PIN, guesser)
    assert status == 200
    device = cookies[0].partition(";")[0]
    for number in range(100):
        status, cookies = log_in(running, f"{number:06d}", guesser)
        assert status in (401, 429)
        assert cookies == []
    assert status == 429
    assert log_in(running, PIN, guesser)[0] == 429  # a new device there has to wait
    assert log_in(running, PIN, guesser, f"{device}x")[0] == 429
    assert log_in(running, PIN, guesser, device)[0] == 200
    assert log_in(running, PIN, elsewhere)[0] == 200


TRAVERSALS = [
    *("../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "%2e%2e%2fsecret.txt", "..%252fsecret.txt"),
    *("%252e%252e%252fsecret.txt", "..\\secret.txt", "..%5csecret.txt", "%c0%ae%c0%ae/secret.txt", "....//secret.txt"),
    *("..;/secret.txt", "%00/../secret.txt", "mine.txt%00.js", "//etc/passwd", "/etc/passwd", "%2fetc%2fpasswd"),
    *("file:///etc/passwd", "../../../../../../../etc/passwd", "..%2f" * 8 + "etc/passwd", "./.././secret.txt"),
    *("../__init__.py", "vendor/../../__init__.py", "..%2f__init__.py", "index.html/../../http/app.py", ".hidden"),
    *("\u2025/secret.txt", "%e2%80%a5/secret.txt", "a" * 5000, "%", "%zz", "con", "app.js::$DATA", "app.js%20"),
]


@pytest.mark.parametrize("prefix", ["/static/", "/static/vendor/", "/", "/open/", "/api/sessions/", "/api/"])
def test_no_path_leads_out(running, prefix):
    for path in TRAVERSALS:
        line = f"GET {prefix}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode()
        for credentials in (b"", f"Authorization: {running.headers['Authorization']}\r\n".encode()):
            came = running.raw(line + credentials + b"\r\n")
            assert came[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 401", b"HTTP/1.1 405"), (path, came[:80])
            assert SECRET.encode() not in came
            assert b"root:" not in came
            assert b"import" not in came


@pytest.mark.parametrize("route", ["/api/files", "/api/files/text", "/api/files/raw"])
def test_no_query_leads_out(running, route):
    for path in TRAVERSALS:
        if path.isascii() and " " not in path:
            answer = running.ask("GET", f"{route}?path={path.replace(chr(92), '%5c')}")
            assert 400 <= answer.status < 500, path
            assert SECRET.encode() not in answer.body
            assert b"root:" not in answer.body


def test_who_comes_without_credentials_learns_nothing_from_any_route(running):
    told = running.anyone.ask("GET", "/openapi.json").json
    closed, opened = 0, set[str]()
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            if not operation["security"]:
                opened.add(path)
            else:
                closed += 1
                where = path.replace("{", "").replace("}", "")
                answer = running.anyone.ask(method.upper(), where, headers={"X-LMAgent-Request": "1"})
                assert answer.status == 401, (method, path)
                assert str(running.workspace) not in answer.body.decode()
    assert closed > 20
    assert opened == {
        *(
            "/",
            "/static/{path}",
            "/favicon.ico",
            "/api/login",
            "/open/{ticket}",
            "/openapi.json",
            "/healthz",
            "/diagram",
        )
    }


def test_bodies_without_end_and_of_two_gigabytes_stop_nobody(running):
    def flood() -> None:
        with socket.create_connection(("127.0.0.1", running.port), timeout=20) as connection:
            connection.sendall(b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(1000):
                    connection.sendall(b"10000\r\n" + b"a" * 0x10000 + b"\r\n")
            except OSError:
                pass

    head = b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2147483648\r\n\r\n"
    floods = [threading.Thread(target=flood) for _ in range(4)]
    with others(running, running.page()) as meanwhile:
        for one in floods:
            one.start()
        assert running.raw(head).startswith(b"HTTP/1.1 413 ")
        for one in floods:
            one.join()
    assert set(meanwhile) == {200}


def test_slow_heads_and_slow_bodies_stop_nobody(running):
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", running.port))) for _ in range(300)]
        for number, one in enumerate(slow):
            if number % 2:
                one.sendall(b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            else:
                one.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        with others(running, running.page()) as meanwhile:
            for _ in range(5):
                for one in slow:
                    with suppress(OSError):
                        one.sendall(b" ")
                time.sleep(0.2)
        assert set(meanwhile) == {200}


def room(wanted: int) -> int:
    """How many sockets this process may have, up to so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted + 500:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + 500), hard))
    return min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)


@pytest.mark.long
def test_thousands_of_sockets_do_not_keep_others_out(running):
    count = room(SOCKETS)
    assert count >= 1000
    page = running.page()
    with ExitStack() as stack, others(running, page) as meanwhile:
        for number in range(count):
            source = f"127.0.{1 + number // PER_ADDRESS // 250}.{1 + number // PER_ADDRESS % 250}"
            one = stack.enter_context(socket.socket())
            one.settimeout(20)
            if sys.platform == "linux":  # where all of 127.0.0.0/8 is this machine
                one.bind((source, 0))
            one.connect(("127.0.0.1", running.port))
            if number % 3 == 0:
                one.sendall(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(10):
            assert running.anyone.ask("GET", "/openapi.json").status == 200
    assert set(meanwhile) == {200}
    assert sum(meanwhile.values()) > 5


def test_requests_that_mean_two_things_mean_none(running):
    bearer = f"Authorization: {running.headers['Authorization']}\r\n".encode()
    inner = b"GET /api/me HTTP/1.1\r\nHost: localhost\r\n" + bearer + b"\r\n"
    for lengths in (
        b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(inner),
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % (len(inner) + 5),
        b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        b"Transfer-Encoding: identity, chunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
    ):
        came = running.raw(
            b"POST /api/logout HTTP/1.1\r\nHost: localhost\r\n" + bearer + lengths + b"\r\n0\r\n\r\n" + inner
        )
        assert came[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 501"), (lengths, came)
        assert came.count(b"HTTP/1.1 ") == 1, (lengths, came)
        assert b"workspace" not in came


def test_after_all_that_the_gateway_is_well_and_has_said_nothing_of_faults(running):
    assert running.ask("GET", "/api/me").status == 200
    assert not [line for line in running.said if "Error" in line or "Traceback" in line], running.said
    assert running.stop() == 0
