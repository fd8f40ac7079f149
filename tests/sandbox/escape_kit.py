"""A case of the escape-and-abuse suite, and the ground on which it is played: what an escape would find and touch.

Every case has files of its own outside the workspace, with a secret that nobody tells it. The ground is a tripwire: a
secret in the output, a changed file outside, a connection to a listener, a victim that is hurt are an escape, whatever
the case itself looks for. A case that neither escaped nor came to its end proves nothing, and counts as broken.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import subprocess
import tempfile
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import anyio
from msgspec import Struct, field

from lmagent.core.sandbox import Exec, Exit, Limits, Sandbox, Stream

KEY = "ESCAPE_API_KEY"
"""Variable of the agent's environment that holds a secret."""

TRIED = "TRIED"
ESCAPED = "ESCAPED"

PRELUDE = """
import ctypes, os, socket, struct, subprocess, sys, time
E = os.environ
libc = ctypes.CDLL(None, use_errno=True)
def escaped(*what): print("ESCAPED", *what, flush=True)
def attempt(act, *args, escape=True):
    try: found = act(*args)
    except (OSError, ValueError) as error: print(getattr(act, "__name__", act), args, error); return None
    if escape: escaped(getattr(act, "__name__", act), args, found)
    return found
"""


class Ran(Struct):
    """What a command said and how it ended."""

    raw: bytes = b""
    end: Exit | None = None

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "replace")


class Case(Struct, frozen=True):
    """One attempt to escape.

    Attributes:
        id: its name.
        category: what it is after.
        language: of the program.
        script: the program; for C `file function`, in `escape_c/file.c`.
        args: its arguments; what it may know is in its environment (`Ground.env`).
        needs: what the ground has to offer: `tcp`, `udp`, `lan`, `abstract`, `unix`, `pty`, `victim`.
        before: prepares the workspace, on the host.
        proof: looks on the host whether it escaped, and says how; on top of the tripwires.
        act: takes the place of one command in the shared sandbox.
        control: whether it escapes without a sandbox: `escapes`, `root` only as root, `held` (something else than the
            sandbox holds it), `skip` where that would do harm.
        timeout: of the command.
        ends: it comes to its end, and says so.
        own: it needs a workspace of its own.
        alone: it must not run beside others.
        limits: of its sandbox.
        known: backends on which it escapes today, with the reason: an open finding.
    """

    id: str
    category: str
    language: Literal["sh", "python", "c"]
    script: str = ""
    args: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    before: Callable[[Ground], object] | None = None
    proof: Callable[[Ground, Ran], str] | None = None
    act: Callable[[Ground, Sandbox], Awaitable[str]] | None = None
    control: Literal["escapes", "root", "held", "skip"] = "escapes"
    timeout: float = 15.0
    ends: bool = True
    own: bool = False
    alone: bool = False
    limits: Limits | None = None
    known: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def argv(self) -> tuple[str, ...]:
        """The command; it says at its end that it came there."""
        if self.language == "c":
            program, function = self.script.split()
            return (f"./{program}", function, *self.args)
        if self.language == "python":
            return (*python(f"{textwrap.dedent(self.script)}\nprint('{TRIED}', flush=True)"), *self.args)
        return ("/bin/bash", "-c", f"{self.script}\necho {TRIED}", "bash", *self.args)


class Outcome(Struct):
    """What became of a case: `escaped`, `held`, `broken` (it proved nothing) or `skipped`, and why."""

    id: str
    status: str
    detail: str = ""
    seconds: float = 0.0


class Unavailable(Exception):
    """The machine does not have what the case needs."""


class Ground:
    """The host's side of one case.

    Attributes:
        ws, here: the workspace, and the case's folder in it.
        outside, canary: a folder outside, and a file in it that holds the secret.
        home: a home folder of a user with keys.
    """

    def __init__(self, base: Path, ws: Path, case: Case, key: str) -> None:
        self.base, self.ws, self.case, self.key = base / case.id, ws, case, key
        self.here = ws / case.id if not case.own else ws
        self.outside, self.home = self.base / "outside", self.base / "home"
        self.secret = f"secret-{secrets.token_hex(12)}"
        self.canary, self.mark = self.outside / "canary", self.outside / "pwned"
        for folder in (self.here, self.outside, self.home / ".ssh", self.base / "other"):
            folder.mkdir(parents=True, exist_ok=True)
        for file in (self.canary, self.home / ".ssh/id_rsa", self.home / ".bashrc", self.base / "other/file"):
            file.write_text(f"{self.secret}\n")
        self.elsewhere = Path(tempfile.mkdtemp(prefix="lmagent-escape-", dir="/var/tmp"))
        (self.elsewhere / "canary").write_text(self.secret)
        self.victim: subprocess.Popen[bytes] | None = None
        self.sockets: dict[str, socket.socket] = {}
        self.env: dict[str, str] = {}
        self._open = contextlib.ExitStack()
        for need in case.needs:
            getattr(self, f"_{need}")()
        self._tell()
        self._before: dict[str, Any] = {}

    def _tell(self) -> None:
        self.env |= {
            "OUT": str(self.outside),
            "CANARY": str(self.canary),
            "MARK": str(self.mark),
            "RELATIVE": os.path.relpath(self.canary, self.here),
            "ELSEWHERE": str(self.elsewhere),
            "USERHOME": str(self.home),
            "OTHER": str(self.base / "other"),
            "AGENT": str(os.getpid()),
            "NAME": self.base.name,
        }

    def _victim(self) -> None:
        stdin = self._open.enter_context(self.canary.open("rb"))
        env = {"PATH": os.defpath, "VICTIM_SECRET": self.secret}
        self.victim = subprocess.Popen(["/bin/sleep", "100"], stdin=stdin, env=env, start_new_session=True)
        self.env["VICTIM"] = str(self.victim.pid)

    def _listen(self, name: str, family: int, kind: int, address: Any) -> Any:
        listener = self._open.enter_context(socket.socket(family, kind))
        try:
            listener.bind(address)
        except OSError as error:
            raise Unavailable(f"{name}: {error}") from error
        if kind == socket.SOCK_STREAM:
            listener.listen()
        listener.setblocking(False)
        self.sockets[name] = listener
        return listener.getsockname()

    def _tcp(self) -> None:
        self.env["PORT"] = str(self._listen("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))[1])

    def _tcp6(self) -> None:
        self.env["PORT"] = str(self._listen("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0))[1])

    def _udp(self) -> None:
        self.env["PORT"] = str(self._listen("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))[1])

    def _lan(self) -> None:
        """An address of this machine that is not the loopback's."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.77", 9))  # sends nothing
            except OSError as error:
                raise Unavailable("this machine has no address but the loopback's") from error
            self.env["LAN"] = probe.getsockname()[0]
        self.env["PORT"] = str(self._listen("lan", socket.AF_INET, socket.SOCK_STREAM, (self.env["LAN"], 0))[1])

    def _abstract(self) -> None:
        self.env["ABSTRACT"] = f"lmagent-{secrets.token_hex(6)}"
        self._listen("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.env["ABSTRACT"])

    def _unix(self) -> None:
        self.env["SOCKET"] = os.path.join(self.elsewhere, "s")  # short: a socket's path has 108 bytes
        self._listen("unix", socket.AF_UNIX, socket.SOCK_STREAM, self.env["SOCKET"])

    def _datagram(self) -> None:
        self.env["SOCKET"] = os.path.join(self.elsewhere, "d")
        self._listen("datagram", socket.AF_UNIX, socket.SOCK_DGRAM, self.env["SOCKET"])

    def _pty(self) -> None:
        self.master, slave = os.openpty()
        self._open.callback(os.close, self.master)
        self._open.callback(os.close, slave)
        os.set_blocking(self.master, False)
        self.env["PTY"] = os.ttyname(slave)

    def note(self) -> None:
        """Remember what is outside now."""
        self._before = self._look()

    def _look(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for root in (self.outside, self.home, self.base / "other", self.elsewhere):
            for folder, folders, files in os.walk(root):
                for name in (*folders, *files):
                    path = os.path.join(folder, name)
                    with contextlib.suppress(FileNotFoundError):
                        info = os.lstat(path)
                        found[path] = (info.st_mode, info.st_nlink, info.st_uid, _content(path))
        return found

    def tripped(self, ran: Ran) -> str:
        """How the tripwires say that it escaped; empty when none does."""
        for secret in (self.secret, self.key):
            if secret.encode() in ran.raw:
                return "it read a secret"
        for line in ran.text.splitlines():
            if line.startswith(ESCAPED):
                return line[:300]
        now = self._look()
        if changed := [path for path in {*now, *self._before} if now.get(path) != self._before.get(path)]:
            return f"outside was changed: {', '.join(sorted(changed)[:3])}"
        for name, listener in self.sockets.items():
            with contextlib.suppress(BlockingIOError):
                _ = listener.accept()[0].close() if listener.type == socket.SOCK_STREAM else listener.recv(1)
                return f"it reached the {name} socket"
        return self._hurt()

    def _hurt(self) -> str:
        if self.victim is not None:
            if self.victim.poll() is not None:
                return "it killed a process"
            status = Path(f"/proc/{self.victim.pid}/stat").read_text().rpartition(")")[2].split()
            limits = Path(f"/proc/{self.victim.pid}/limits").read_text()
            if status[0] in "tT" or status[16] != "0" or "5555" in limits:
                return "it changed a process"
            if os.sched_getaffinity(self.victim.pid) != os.sched_getaffinity(0):
                return "it changed a process's processors"
        if hasattr(self, "master"):
            with contextlib.suppress(BlockingIOError, OSError):
                return f"it wrote to a terminal: {os.read(self.master, 100)!r}"
        return ""

    def close(self) -> None:
        """End what was started."""
        self._open.close()
        if self.victim is not None:
            self.victim.kill()
            self.victim.wait()


def _content(path: str) -> str:
    if os.path.islink(path):
        return os.readlink(path)
    if not os.path.isfile(path):
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


async def run(ground: Ground, sandbox: Sandbox, argv: tuple[str, ...], timeout: float = 15.0, **more: Any) -> Ran:
    """Run a command in the case's folder, to its end."""
    ran, pieces = Ran(), bytearray()

    def take(stream: Stream, piece: bytes) -> None:
        if stream != "channel" and len(pieces) < 4 << 20:
            pieces.extend(piece)

    cwd = os.path.relpath(ground.here, sandbox.workspace)
    env = {**ground.env, **more.pop("env", {})}
    running = await sandbox.start(Exec(argv, **{"cwd": cwd, "env": env, "timeout": timeout, **more}), take)
    with anyio.fail_after(timeout + 30):
        ran.end = await running.wait()
    ran.raw = bytes(pieces)
    return ran


def bash(script: str) -> tuple[str, ...]:
    """A script as a command."""
    return ("/bin/bash", "-c", script)


def python(script: str) -> tuple[str, ...]:
    """A program as a command."""
    return ("/usr/bin/python3", "-I", "-c", PRELUDE + script)
