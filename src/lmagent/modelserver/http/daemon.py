"""Daemon: the one model server of a data folder, started and stopped in the background.

The kernel holds `server.lock` while the server lives; `server.json` has its address. Both are ignored when the process
is gone, or another one has its number.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import SessionBusy
from lmagent.modelserver.http.listening import GRACE, ServerError, is_loopback
from lmagent.store.lock import Owner, hold, is_alive, this_process

START = 30.0  # seconds that a server in the background has to come up
KEY_VARIABLE = "LMAGENT_SERVER_KEY"


class DaemonState(Struct, frozen=True):
    """A server that runs."""

    owner: Owner  # its process
    bind: str  # the address that it listens on
    port: int  # its port
    since: float  # Unix time of its start
    version: str  # of lmagent
    guarded: bool = False  # it wants a key

    @property
    def url(self) -> str:
        """Return its address on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.bind, self.bind)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def state_of(folder: Path) -> DaemonState | None:
    """Return the server of a data folder; None if no server lives."""
    try:
        state = decode_json((folder / "server.json").read_bytes(), DaemonState)
    except (OSError, ValueError):
        return None
    return state if is_alive(state.owner) else None


@contextmanager
def holding(folder: Path) -> Generator[None]:
    """Make this process the only server of the folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        lock = hold(folder / "server.lock", "server")
    except SessionBusy:
        state = state_of(folder)
        where = f" at {state.url} (process {state.owner.pid})" if state else ""
        fix = "lmagent server stop ends it, lmagent server status shows it"
        raise ServerError(f"a model server of this data folder runs already{where}", fix=fix) from None
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            (folder / "server.json").unlink()
        lock.release()


def announce(folder: Path, bind: str, port: int, version: str, *, guarded: bool) -> DaemonState:
    """Write down that this process is the server, and its address."""
    state = DaemonState(this_process(), bind, port, time.time(), version, guarded)
    fresh = folder / "server.json.new"
    fresh.write_bytes(msgspec.json.encode(state))
    fresh.replace(folder / "server.json")
    return state


def key_for(folder: Path, bind: str, given: str) -> tuple[str, bool]:
    """Return the key and whether it was made now. On loopback none is needed; elsewhere it is made and kept."""
    if given:
        if not given.isascii() or not given.isprintable() or " " in given:
            raise ServerError("the API key has characters that no request can carry", fix="use letters and digits")
        _keep(folder, given)
        return given, False
    if is_loopback(bind):
        return "", False
    if known := kept_key(folder):
        return known, False
    made = f"lma-{secrets.token_urlsafe(32)}"
    _keep(folder, made)
    return made, True


def key_file(folder: Path) -> Path:
    return folder / "server.key"


def kept_key(folder: Path) -> str:
    """Return the key that is kept; empty if no key is."""
    try:
        return key_file(folder).read_text().strip()
    except OSError:
        return ""


def _keep(folder: Path, key: str) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = key_file(folder)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as kept:
        kept.write(key)
    file.chmod(0o600)


def start_detached(folder: Path, arguments: Sequence[str], env: Mapping[str, str]) -> DaemonState:
    """Start a server in the background and wait until it listens."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / "server.log"
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lmagent", "server", "start", "--foreground", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(env),
            start_new_session=True,
            cwd="/" if os.name == "posix" else None,
        )
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        state = state_of(folder)
        if state is not None and state.owner.pid == process.pid:
            return state
        if process.poll() is not None:
            printed = log.read_text("utf-8", "replace").strip().removeprefix("lmagent: ")
            raise ServerError(printed[-2000:] or f"the server ended with status {process.returncode}")
        time.sleep(0.05)
    process.terminate()
    raise ServerError(f"the server did not come up within {START:.0f} s", fix=f"see {log}")


def stop(folder: Path, seconds: float = GRACE + 15.0) -> DaemonState | None:
    """Stop the server after its running requests; return its state, or None if no server lives."""
    state = state_of(folder)
    if state is None:
        return None
    with suppress(ProcessLookupError):
        os.kill(state.owner.pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while is_alive(state.owner):
        if time.monotonic() > deadline:
            fix = f"kill {state.owner.pid}, or with -9 if that does not help"
            raise ServerError(f"process {state.owner.pid} does not end", fix=fix)
        time.sleep(0.05)
    return state
