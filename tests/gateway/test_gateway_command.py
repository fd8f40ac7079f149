"""`lmagent web` as a person starts it: where it listens, what it says, what it refuses."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gateway_kit import OURS, Client, gateway

from lmagent.gateway.http import lan
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say


class Program:
    """`lmagent` with a data folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self.env |= {"HOME": str(folder), "AGENT_DATA_DIR": str(folder / "data"), "NO_COLOR": "1"}
        self.env |= {"LLM_URL": "http://127.0.0.1:9", "LLM_MODEL": "m"}

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lmagent", *arguments]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**self.env, **env},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )


@pytest.fixture
def program(tmp_path) -> Program:
    (tmp_path / "data").mkdir()
    return Program(tmp_path)


def test_the_token_is_made_once_kept_and_shown(program):
    first = program.run("web", "token")
    assert first.returncode == 0
    assert len(first.stdout.strip()) > 40
    assert program.run("web", "token").stdout == first.stdout
    assert stat.S_IMODE((program.folder / "data" / "web" / "token").stat().st_mode) == 0o600
    assert program.run("web", "token", AGENT_TOKEN="one-of-my-own").stdout == "one-of-my-own\n"


@pytest.mark.parametrize(
    ("arguments", "env", "says"),
    [
        (["soon"], {}, "no port"),
        (["70000"], {}, "no port"),
        (["7" * 5000], {}, "no port"),
        (["0", "--name", "https://agent.example"], {}, "no name of a host"),
        (["0", "--name", "agent.example:443"], {}, "no name of a host"),
        (["1", "--port", "2"], {}, "two ports"),
        (["0", "--bind", "nowhere.invalid"], {}, "no address"),
        (["0", "--bind", "192.0.2.1"], {}, "cannot listen"),
        (["0"], {"AGENT_PIN": "123"}, "AGENT_PIN"),
        (["0", "--lan"], {"AGENT_PIN": "12345"}, "AGENT_PIN"),
        (["0", "--lan"], {"AGENT_TOKEN": "short"}, "AGENT_TOKEN"),
        (["0"], {"AGENT_TOKEN": "with space"}, "AGENT_TOKEN"),
        (["0"], {"AGENT_PORT": "many"}, "AGENT_PORT"),
        (["0", "--cert", "none.pem"], {}, "none.pem"),
        (["0", "--key", "none.pem"], {}, "no certificate"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do(program, arguments, env, says):
    done = program.run("web", "--no-browser", *arguments, **env)
    assert done.returncode in (1, 64)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_reported_with_the_command_that_shows_its_owner(program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = program.run("web", str(port), "--no-browser")
    assert done.returncode == 1
    assert f"port {port}" in done.stderr
    if sys.platform == "linux":
        assert f"ss -ltnp 'sport = :{port}'" in done.stderr


def test_it_listens_on_loopback_and_says_where_and_the_pin(tmp_path):
    with gateway(tmp_path, [say("hi")], AGENT_HOST="0.0.0.0") as running:
        said = "".join(running.said)
        assert running.url in said
        assert "PIN 314159" in said
        assert "AGENT_HOST=0.0.0.0 is taken with --lan only" in said
        for address in lan.addresses():
            with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
                socket.create_connection((address, running.port), timeout=2).close()


def test_a_pin_is_made_at_each_start_where_none_is_fixed(tmp_path):
    pins = set()
    for _ in range(2):
        with gateway(tmp_path, [say("hi")], AGENT_PIN="") as running:
            (pin,) = re.findall(r"^  PIN (\d{6})$", "".join(running.said), re.MULTILINE)
            assert running.page(pin).ask("GET", "/api/me").status == 200
            pins.add(pin)
    assert len(pins) == 2


def test_in_a_network_it_shows_addresses_and_a_code_and_answers_to_them(tmp_path):
    with gateway(tmp_path, [say("hi")], options=["--lan", "--name", "agent.example"]) as running:
        said = "".join(running.said)
        assert "without TLS" in said
        assert (
            Client(running.port, running.headers).ask("GET", "/api/me", headers={"Host": "agent.example"}).status == 200
        )
        assert running.ask("GET", "/api/me", headers={"Host": "other.example"}).status == 421
        for address in lan.addresses():
            assert f"http://{address}:{running.port}" in said
            assert "▀" in said or "█" in said
            with socket.create_connection((address, running.port), timeout=10) as connection:
                connection.sendall(f"GET /openapi.json HTTP/1.1\r\nHost: {address}:{running.port}\r\n\r\n".encode())
                assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_cookies_and_token_outlive_a_restart(tmp_path):
    with gateway(tmp_path, [say("hi")]) as running:
        page = running.page()
        token = running.headers
        assert running.stop() == 0
        running.start()
        assert running.headers == token
        assert page.ask("GET", "/api/me").json["caller"] == "page"
        running.kill()
        running.start()
        assert page.ask("GET", "/api/me").status == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order_with_a_stream_open(tmp_path, number):
    with gateway(tmp_path, [say("hi")]) as running:
        assert running.process is not None
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        with (
            socket.create_connection(("127.0.0.1", running.port)),
            running.stream("/api/events") as all_of_them,
            running.stream(f"/api/sessions/{session}/events") as one,
        ):
            assert next(iter(one)).json["type"] == "session.created"
            running.process.send_signal(number)
            assert list(one) == list(all_of_them) == []  # they end, and are not cut
            began = time.monotonic()
            assert running.process.wait(20) == 0
            assert time.monotonic() - began < 15


def test_on_a_desktop_the_browser_opens_by_a_link_that_works_once(tmp_path):
    opener = tmp_path / "opener"
    opener.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened.new && mv {tmp_path}/opened.new {tmp_path}/opened\n')
    opener.chmod(0o755)
    program = Program(tmp_path)
    (tmp_path / "work").mkdir()
    with ScriptedServer([say("hi")]) as model:
        env = {**program.env, "DISPLAY": ":9", "BROWSER": f"{opener} %s", "TERM": "dumb", "LLM_URL": model.base_url}
        env.pop("SSH_CONNECTION", None)
        leader, follower = pty.openpty()
        command = [sys.executable, "-m", "lmagent", "web", "0", "-w", str(tmp_path / "work")]
        process = subprocess.Popen(command, env=env, stdin=follower, stdout=follower, stderr=follower)
        os.close(follower)
        try:
            deadline = time.monotonic() + 30
            while not (tmp_path / "opened").exists():
                assert time.monotonic() < deadline, os.read(leader, 65536)
                time.sleep(0.05)
            found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/open/\S+)\n", (tmp_path / "opened").read_text())
            assert found is not None
            client = Client(int(found[1]))
            first = client.ask("GET", found[2])
            assert (first.status, first.headers["location"]) == (303, "/")
            cookie = {"Cookie": first.headers["set-cookie"].partition(";")[0]}
            assert json.loads(client.ask("GET", "/api/me", headers=cookie).body)["caller"] == "page"
            assert client.ask("GET", found[2]).status == 404
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            os.close(leader)


def test_the_token_is_printed_when_it_is_made_for_a_network_and_never_again(tmp_path):
    with gateway(tmp_path, [say("hi")], options=["--lan"], AGENT_HOST="0.0.0.0") as running:
        token = running.headers["Authorization"].removeprefix("Bearer ")
        assert "".join(running.said).count(token) == 1
        running.stop()
        running.start()
        assert "".join(running.said).count(token) == 1


def test_healthz_says_only_ok_to_anyone(tmp_path):
    with gateway(tmp_path, [say("hi")]) as running:
        answer = running.anyone.ask("GET", "/healthz")
        assert (answer.status, answer.body) == (200, b"ok")
        assert answer.headers["content-type"].startswith("text/plain")
        assert "workspace" not in str(answer.headers)
        assert running.anyone.ask("GET", "/healthz", headers={"Host": "other.example"}).status == 421
        assert running.anyone.ask("GET", "/api/me").status == 401
