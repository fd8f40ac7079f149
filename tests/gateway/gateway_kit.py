"""A real gateway for tests: the process `lmagent web` on a free port, and what talks to it.

    with gateway(tmp_path, [say("hello")]) as running:
        running.ask("POST", "/api/sessions", {})        # as a program with the token
        page = running.page()                           # as a browser that logged in with the PIN
        page.ask("GET", "/api/me")

`running.model` is the scripted model server. `running.kill()` and `running.start()` are a crash and the next start: the
workspace, the token and the port stay.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct
from testkit.forked import Started, start

from lmagent.config.trust import trust
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received, held_port
from lmagent.testing.prefix import PrefixMeter
from lmagent.testing.script import Reply

NO_MESSAGES: tuple[str | bytes, ...] = (
    "",
    "nonsense",
    "[]",
    "{}",
    '{"type": "dance"}',
    "[" * 100 + "]" * 100,
    b"\xff\xfe",
)
"""What no socket of the gateway understands."""

PIN = "314159"
OURS = ("LLM", "LM_", "XDG", "AGENT")
"""How variables begin that would tell the gateway something."""

START = 60.0
"""Seconds that a gateway has to come up on a busy machine."""


class Answer(Struct):
    """What came back; names of headers are lower-case, of several of one name the last counts."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        return self.json["error"]["code"]


class Client:
    """Somebody who asks: a program with the token, a browser, or nobody in particular."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self.port = port
        self.headers = headers or {}

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, *, timeout: float = 30
    ) -> Answer:
        """One request. A body that is no bytes is sent as JSON; a header of the value "" is not sent."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            answer = self._send(connection, method, path, body, headers)
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    @contextmanager
    def stream(self, path: str, headers: dict[str, str] | None = None, *, timeout: float = 30) -> Iterator[Events]:
        """A stream of events; fails unless it is one."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            answer = self._send(connection, "GET", path, None, headers)
            assert answer.status == 200, answer.read()
            yield Events(answer)
        finally:
            connection.close()

    def _send(
        self, connection: HTTPConnection, method: str, path: str, body: Any, headers: dict[str, str] | None
    ) -> HTTPResponse:
        fields = {**self.headers, **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            fields = {"Content-Type": "application/json", **fields}
        connection.request(method, path, body, {name: value for name, value in fields.items() if value})
        return connection.getresponse()


class Event(Struct):
    """One event of a stream; `id` is empty for a delta."""

    id: str
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Events:
    """A stream of events, read as it comes."""

    def __init__(self, answer: HTTPResponse) -> None:
        self.answer = answer

    def __iter__(self) -> Iterator[Event]:
        """Events until the stream ends."""
        id, data = "", ""
        for raw in self.answer:
            line = raw.decode().rstrip("\n")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "id":
                id = value
            elif name == "data":
                data += ("\n" if data else "") + value
            elif not line:
                if data:
                    yield Event(id, data)
                id, data = "", ""


class Running(Client):
    """A gateway process and its scripted model; asked itself, it is asked as a program with the token."""

    def __init__(self, folder: Path, model: ScriptedServer, options: Sequence[str], env: dict[str, str]) -> None:
        place = ExitStack()
        weakref.finalize(self, place.close)
        super().__init__(place.enter_context(held_port()))
        self.folder = folder
        self.workspace = folder / "workspace"
        self.model = model
        self._options = options
        self.project: Path | None = None
        self.env = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("LLM", "LM_", "XDG", "AGENT"))
            },
            "HOME": str(folder / "home"),
            "AGENT_DATA_DIR": str(folder / "data"),
            "AGENT_PIN": PIN,
            "LLM_RETRY_DELAY": "0",
            "NO_COLOR": "1",
            **env,
        }
        self.process: Started | None = None
        self.said: list[str] = []
        for name in ("workspace", "home"):
            (folder / name).mkdir(exist_ok=True)
        trust(folder / "data", self.workspace)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def anyone(self) -> Client:
        """Somebody without credentials."""
        return Client(self.port)

    def page(self, pin: str = "") -> Client:
        """A browser that has logged in."""
        answer = self.anyone.ask("POST", "/api/login", {"pin": pin or self.env["AGENT_PIN"]})
        assert answer.status == 200, answer.body
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return Client(self.port, {"Cookie": cookie, "X-LMAgent-Request": "1", "Origin": self.url})

    def start(self) -> None:
        """Start the process, always on the same port, and wait until it listens."""
        serve = ["web", str(self.port), "--no-browser"]
        if self.project is not None:
            serve = ["agent", "run", str(self.project), "--port", str(self.port)]
        arguments = [*serve, "-w", str(self.workspace)]
        arguments += ["--base-url", self.model.base_url, "-m", "scripted", *self._options]
        if "PYTHONPATH" in self.env:  # a forked process has its path already
            command, both = [sys.executable, "-m", "lmagent", *arguments], subprocess.STDOUT
            self.process = subprocess.Popen(
                command, env=self.env, cwd=self.workspace, stdout=subprocess.PIPE, stderr=both, text=True
            )
        else:
            self.process = start(arguments, env=self.env, cwd=self.workspace)
        lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self.process, lines), daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the gateway did not come up: {self.said}") from None
            assert line or self.process.poll() is None, f"the gateway ended: {self.said}"
            if line.strip().startswith("http") and "://127.0.0.1:" in line:
                self.port = int(line.strip().rpartition(":")[2])
            if line.strip().startswith("PIN"):
                break
        self.headers = {"Authorization": f"Bearer {self.env.get('AGENT_TOKEN') or self._token()}"}

    def _token(self) -> str:
        if "LMAGENT_CLUSTER_URL" in self.env:
            return self.lmagent("web", "token").stdout.strip()
        return (self.folder / "data" / "web" / "token").read_text()

    def _read(self, process: Started, lines: queue.Queue[str]) -> None:
        with process.stdout:
            for line in process.stdout:
                self.said.append(line)
                lines.put(line)
        process.wait()
        lines.put("")

    def stop(self, *, timeout: float = 30) -> int:
        """End it as a person or the system does; returns the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._ended(timeout)

    def kill(self) -> None:
        """End it with no chance to do anything more."""
        assert self.process is not None
        self.process.kill()
        self._ended(30)

    def _ended(self, timeout: float) -> int:
        assert self.process is not None
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the gateway does not end: {self.said}") from None
        finally:
            self._reader.join(10)
        return code

    def raw(self, sent: bytes, *, timeout: float = 30) -> bytes:
        """Bytes on a fresh connection, and all that comes back until the gateway closes it or is silent so long."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(sent)
            return drained(connection)

    def leave(self, path: str, body: Any, headers: dict[str, str] | None = None, *, once: Callable[[], object]) -> None:
        """Post something, and go away without an answer once something has come of it."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            fields = {"Content-Type": "application/json", **self.headers, **(headers or {})}
            given = {name: value for name, value in fields.items() if value}
            connection.request("POST", path, json.dumps(body).encode(), given)
            until(once)
        finally:
            connection.close()

    def until_asked(self, left: int) -> None:
        """Wait until the model has been asked for all but so many replies of its script.

        A step that is recorded has not asked yet: where it ends before that, the next one is given its reply.
        """
        until(lambda: self.model.left == left)

    def recorded(self, type: str) -> list[dict]:
        """All recorded events of a type."""
        return [event for event in self.logs() if event["type"] == type]

    def lmagent(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the terminal in the same workspace."""
        command = [sys.executable, "-m", "lmagent", *words]
        return subprocess.run(
            command, cwd=self.workspace, env=self.env, capture_output=True, text=True, timeout=120, check=False
        )

    def logs(self) -> list[dict]:
        """All recorded events; not the one that is being written, or was when the process died."""
        files = sorted(self.workspace.glob(".lmagent/sessions/*/events.jsonl"))
        return [json.loads(line) for file in files for line in file.read_bytes().split(b"\n")[:-1]]


def drained(connection: socket.socket) -> bytes:
    """What comes on a connection until it ends, is reset, or is silent for its timeout."""
    came = b""
    try:
        while piece := connection.recv(65536):
            came += piece
    except (TimeoutError, ConnectionError):
        pass
    return came


def until(done: Callable[[], object], *, seconds: float = 40) -> None:
    """Wait for something that tells nobody."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def held(then: Reply, gate: threading.Event) -> Callable[[Received], Reply]:
    """A reply of a script that is given once the gate is open; the model server answers nobody until then."""

    def answer(received: Received) -> Reply:
        assert gate.wait(30)
        return then

    return answer


@contextmanager
def gateway(
    folder: Path,
    script: Any = (),
    *,
    server: Any = None,
    options: Sequence[str] = (),
    project: Path | None = None,
    **env: str,
) -> Iterator[Running]:
    """A gateway with a scripted model.

    Args:
        folder: where workspace, home and data folder are made.
        script: what the model says; see `ScriptedServer`.
        server: a server in place of the one that says it; ends with the gateway.
        options: more of the command line.
        project: an agent project, which is served.
        env: variables of the process.
    """
    with server or ScriptedServer(list(script) if isinstance(script, tuple) else script) as model:
        running = Running(folder, model, options, env)
        running.project = project
        running.start()
        try:
            yield running
        except BaseException:
            print("".join(running.said), running.process and running.process.poll())  # beside the failure
            raise
        finally:
            if running.process is not None and running.process.poll() is None:
                running.stop()


class Rescripted(ScriptedServer):
    """A scripted model server that is given another script."""

    def follow(self, script: Any) -> None:
        self._script, self._position = script, 0
        self.prefix = PrefixMeter(1)
        for seen in (self.requests, self.chats, self.objections):
            seen.clear()


_shared: dict[Any, Running] = {}
_ending = ExitStack()


@contextmanager
def shared(script: Any = (), *, options: Sequence[str] = (), **env: str) -> Iterator[Running]:
    """A gateway as new, for a test that changes nothing but sessions and files of the workspace.

    The tests of a file that ask for the same options share the process: its sessions are deleted between them.
    """
    key = (*options, *sorted(env.items()))
    if key not in _shared:
        model = _ending.enter_context(Rescripted())
        folder = Path(_ending.enter_context(TemporaryDirectory(prefix="shared-gateway-")))
        _shared[key] = Running(folder, model, options, env)
        _ending.callback(lambda running=_shared[key]: running.process is not None and running.stop())
    running = _shared[key]
    if running.process is None or running.process.poll() is not None:
        running.start()
    for row in running.ask("GET", "/api/sessions?limit=500&children=true").json["sessions"]:
        assert running.ask("DELETE", f"/api/sessions/{row['id']}").status in (200, 404)
    for path in running.workspace.iterdir():
        if path.name != ".lmagent":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert isinstance(running.model, Rescripted)
    running.model.follow(list(script) if isinstance(script, tuple) else script)
    yield running


def end_shared() -> None:
    """End the gateways that tests shared."""
    _shared.clear()
    _ending.close()
