"""Parts: this installation at work, each part of it watched: model server, one task, conversation, page in a browser.

They run on the tiny model that comes along, in a folder and a home of their own: this proves something about the
program, not about the user's settings and servers.
"""

from __future__ import annotations

import json
import os
import pty
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from lmagent.core.errors import LmagentError
from lmagent.modelserver.engine.devices import ask_engine
from lmagent.modelserver.opening import DEMO
from lmagent.offline.watch import Attempt, ConnectionWatch
from lmagent.sandbox.environment import find_browser, with_home
from lmagent.tools.sanitize import one_line, printable

_QUIET = (  # without the browser's own calls to its maker
    *("--headless", "--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps"),
)
_TASK, _FILE = "Write milk and bread to shopping.txt", "shopping.txt"
_PATIENCE = 120.0  # seconds for a part on a slow machine
_END = 20.0  # seconds for a program's end


class PartReport(Struct):
    """The addresses that a part of the program tried.

    Attributes:
        failure: why it did not work.
        skipped: why it was left out.
        probed: Chromium has looked for IPv6.
    """

    name: str
    attempts: dict[Attempt, int] = field(default_factory=dict[Attempt, int])
    failure: str = ""
    skipped: str = ""
    probed: bool = False


class _Failed(Exception):
    """A part of the program did not do its work."""


def run_parts() -> Generator[PartReport]:
    """Run the parts, one after the other, and yield a report on each."""
    engine = ask_engine()
    if engine.problem:
        for name in ("model server", "one task", "conversation", "page"):
            yield PartReport(name, skipped=f"{engine.problem}\n  → {engine.fix}")
        return
    with tempfile.TemporaryDirectory(prefix="lmagent-offline-") as folder:
        stage = _Stage(Path(folder))
        served = ConnectionWatch()
        part = PartReport("model server", served.attempts)
        with ExitStack() as server:
            try:
                server.enter_context(stage.model_server(served))
            except _Failed as failure:
                part.failure = str(failure)
                yield part
                return
            for name, run in (("one task", stage.task), ("conversation", stage.conversation), ("page", stage.page)):
                yield _watched(name, run)
        yield part  # after its end: what it tried while it was used counts


def _watched(name: str, run: Callable[[ConnectionWatch], str]) -> PartReport:
    watch = ConnectionWatch()
    part = PartReport(name, watch.attempts)
    try:
        part.skipped = run(watch)
    except (_Failed, LmagentError) as failure:
        part.failure = str(failure)
    watch.join(_END)
    part.probed = watch.probed
    return part


class _Stage:
    """A home and a workspace for the parts, and the model server's address."""

    def __init__(self, folder: Path) -> None:
        self._home, self._workspace = folder / "home", folder / "work"
        self._home.mkdir()
        self._workspace.mkdir()
        self._env = {**with_home(self._home, os.environ), "TERM": "xterm-256color"}

    @contextmanager
    def model_server(self, watch: ConnectionWatch) -> Generator[None]:
        key, models = secrets.token_urlsafe(32), self._home / "models"
        models.mkdir()
        options = ("--foreground", "--json", "--port", "0", "--api-key", key, "--models-dir", str(models))
        process = self._start(watch, ["server", "start", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        try:
            line = process.stdout.readline() if select.select([process.stdout], [], [], _PATIENCE)[0] else b""
            try:
                self._env |= {"LLM_URL": json.loads(line)["url"], "LLM_API_KEY": key, "LLM_MODEL": DEMO}
            except (ValueError, KeyError) as error:
                raise _Failed("the model server did not start") from error
            yield
        finally:
            _end(process)
            process.stdout.close()
            watch.join(_END)

    def task(self, watch: ConnectionWatch) -> str:
        process = self._start(
            watch, ["run", "--permission", "auto", _TASK], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            output, _ = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            _end(process)
            raise _Failed("the task took too long") from None
        if not self._is_done():
            raise _Failed(f"the task was not done: {_tail(output)}")
        return ""

    def conversation(self, watch: ConnectionWatch) -> str:
        with self._terminal(watch, ["chat", "--permission", "auto"], {}) as terminal:
            terminal.until(lambda: bool(terminal.shown.strip()), "the conversation did not begin")
            terminal.type(f"{_TASK}\r")
            terminal.until(self._is_done, "the task was not done")
            terminal.type("/quit\r")
            terminal.until(lambda: not terminal.runs, "the conversation did not end")
        return ""

    def page(self, watch: ConnectionWatch) -> str:
        browser = find_browser("", os.environ, self._workspace)
        if not browser:
            return "no Chromium is installed here"
        profile = self._home / "browser"
        command = [browser, *_QUIET, f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom", "%s"]
        opened = {"BROWSER": " ".join(command), "DISPLAY": ":0"}  # lmagent opens the page as for a user at a desktop
        with self._terminal(watch, ["web", "--port", "0"], opened) as terminal:
            terminal.until(lambda: b"</html>" in terminal.shown, "the page was not shown")
            if b"<textarea" not in terminal.shown:
                raise _Failed("the page was shown without a field for a message")
        return ""

    def _is_done(self) -> bool:
        """Return whether the task's file was written since the last time."""
        with suppress(FileNotFoundError):
            (self._workspace / _FILE).unlink()
            return True
        return False

    def _start(self, watch: ConnectionWatch, arguments: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "lmagent", *arguments]
        return watch.start(
            command, **{"cwd": self._workspace, "env": self._env, "stdin": subprocess.DEVNULL, **options}
        )

    @contextmanager
    def _terminal(self, watch: ConnectionWatch, arguments: Sequence[str], env: dict[str, str]) -> Generator[_Terminal]:
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb+", buffering=0) as terminal:
            try:
                standard = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
                process = self._start(watch, arguments, **standard, env={**self._env, **env}, start_new_session=True)
            finally:
                os.close(theirs)
            try:
                yield _Terminal(process, terminal.fileno())
            finally:
                _end(process)


class _Terminal:
    """A program in a terminal; `shown` is all that it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.shown = b""
        self._process, self._terminal = process, terminal

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, happened: Callable[[], bool], otherwise: str) -> None:
        """Read what the program prints until something has happened. Raise _Failed if it does not."""
        end = time.monotonic() + _PATIENCE
        while not happened():
            if time.monotonic() > end or (not self.runs and not select.select([self._terminal], [], [], 0)[0]):
                raise _Failed(f"{otherwise}: {_tail(self.shown)}")
            if select.select([self._terminal], [], [], 0.1)[0]:
                with suppress(OSError):  # the last program has closed it
                    self.shown += os.read(self._terminal, 65536)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(output: bytes) -> str:
    lines = printable(output[-4000:].decode("utf-8", "replace")).strip().splitlines()
    return one_line(lines[-1], 200) if lines else "it printed nothing"
