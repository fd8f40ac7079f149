"""`lmagent mcp serve` as a process: clients that cannot ask, bad input, and what its streams carry."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import until
from serve_kit import Place, served, text

from lmagent.core.errors import ConfigError
from lmagent.mcpserver.service import chosen

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "a\x1b[31m client", "version": "1"},
}


class Raw:
    """The process, and JSON lines to and from it."""

    def __init__(self, place: Place) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *place.arguments],
            env=place.env,
            cwd=place.workspace,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._next = 0

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request, and its answer: all lines before it must be of the protocol."""
        self._next += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params or {}}))
        return self.answer(self._next)

    def answer(self, id: int) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if message.get("id") == id:
                return message
        raise AssertionError(self.process.stderr and self.process.stderr.read())

    def hello(self) -> None:
        assert "result" in self.ask("initialize", HELLO)
        self.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def end(self) -> tuple[str, str]:
        """End its input; what its streams still carried."""
        out, err = self.process.communicate(timeout=60)
        return out, err


@pytest.fixture
def raw(tmp_path: Path):
    process = Raw(Place(tmp_path))
    yield process
    process.process.kill()
    with suppress(ValueError):  # the test has closed its streams
        process.process.communicate()


def test_malformed_requests_are_answered_or_dropped_and_the_next_one_works(raw):
    raw.send("this is no JSON")
    raw.send('{"jsonrpc": "2.0"}')
    raw.send("[" * 2000)
    assert raw.ask("tools/list")["error"]["code"] == -32602  # before the handshake
    raw.hello()
    assert raw.ask("resources/list")["error"]["code"] == -32601
    assert raw.ask("tools/call", {"arguments": {}})["error"]["code"] == -32602
    assert raw.ask("tools/call", {"name": "ls", "arguments": [1]})["error"]["code"] == -32602
    assert raw.ask("tools/call", {"name": "ls", "arguments": {"depth": "deep"}})["result"]["isError"] is True
    assert raw.ask("tools/call", {"name": "ls"})["result"]["isError"] is False
    out, err = raw.end()
    assert out == ""
    assert raw.process.returncode == 0
    assert "Traceback" not in err


def test_standard_output_carries_the_protocol_alone(raw):
    raw.hello()
    raw.ask("tools/call", {"name": "python", "arguments": {"code": "print('to standard output')"}})
    out, err = raw.end()
    assert out == ""
    assert raw.process.returncode == 0, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "sigint"])
def test_a_signal_ends_it_although_its_input_is_open(raw, number):
    raw.hello()
    raw.ask("tools/call", {"name": "ls"})
    raw.process.send_signal(number)
    assert raw.process.wait(30) == 128 + number


def test_a_client_that_leaves_ends_the_command_of_its_call(tmp_path):
    place = Place(tmp_path, ["--permission", "auto"])
    leaving = Raw(place)
    leaving.hello()
    command = "while true; do date +%s%N >beat; sleep 0.05; done"
    call = {"name": "shell", "arguments": {"command": command}}
    leaving.send(json.dumps({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": call}))
    until((place.workspace / "beat").exists)
    leaving.end()
    assert leaving.process.returncode == 0
    assert place.recorded("tool.finished")[-1]["status"] == "interrupted"


def test_a_client_that_cannot_ask_gets_a_clear_denial(tmp_path):
    with served(tmp_path, can_ask=False) as client:
        (client.place.workspace / "a.txt").write_text("alpha\n")
        result = client.call("shell", command="echo x >made.txt")
        assert result.is_error
        assert "no user can answer" in text(result)
        assert "normal mode asks before running commands" in text(result)
        assert not (client.place.workspace / "made.txt").exists()
        assert "alpha" in text(client.call("read", path="a.txt"))
    assert client.recorded("approval.resolved")[0]["by"] == "unattended"


def test_only_the_chosen_tools_are_offered_and_a_mode_can_be_given(tmp_path):
    with served(tmp_path, "--tools", "ls, write", "--permission", "auto", can_ask=False) as client:
        assert [tool.name for tool in client.tools()] == ["write", "ls"]
        assert not client.call("write", path="made.txt", content="x").is_error
    assert (client.place.workspace / "made.txt").read_text() == "x"


def test_a_client_that_closes_our_output_first_is_one_that_left(raw):
    raw.hello()
    raw.process.stdout.close()
    for id in range(20, 30):
        raw.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}))
    raw.process.stdin.close()
    assert raw.process.wait(timeout=60) == 0
    with raw.process.stderr as errors:
        assert errors.read() == ""


def test_a_tool_that_is_not_offered_cannot_be_chosen():
    with pytest.raises(ConfigError, match="no tool named 'todo_add' is offered"):
        chosen("ls,todo_add")
    with pytest.raises(ConfigError, match="names no tool"):
        chosen(" , ")


def test_an_empty_list_of_tools_does_not_offer_all(tmp_path):
    place = Place(tmp_path, ["--tools", ""])
    run = subprocess.run(
        [sys.executable, *place.arguments], env=place.env, cwd=place.workspace, capture_output=True, text=True,
        timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert run.returncode == 1
    assert run.stdout == ""
    assert "--tools names no tool" in run.stderr
    assert "choose among read, write" in run.stderr
