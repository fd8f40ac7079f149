"""Process: a worker's process and its log: started, measured, and ended with all that it started.

The worker writes to the log file itself, so that its last lines are there however it or the server ends. A file that
has grown too long is copied and emptied, as logrotate's `copytruncate` does: the worker appends, and so continues at
the beginning.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from msgspec.structs import replace

from lmagent.core.decoding import decode_json
from lmagent.modelserver.engine.cause import Cause, from_log, from_status
from lmagent.modelserver.pool.journal import last_lines
from lmagent.modelserver.pool.machine import memory_of
from lmagent.modelserver.spec import Hello, ModelEntry, WorkerSpec

LIMIT = 5 << 20  # bytes of a log file before it is rotated


def log_path(folder: Path, name: str) -> Path:
    """Return the log file of a model; letters that a file name cannot have are replaced."""
    plain = re.sub(r"[^\w.+-]", "_", name)[:80].lstrip(".")
    if plain != name:
        plain += "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return folder / f"{plain}.log"


class WorkerLog:
    def __init__(self, path: Path, *, limit: int = LIMIT) -> None:
        self.path = path
        self._limit = limit
        self._start = 0

    def open(self) -> int:
        """Return a descriptor for the worker's standard error, which can be read too; the caller closes it."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.rotate()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(descriptor, time.strftime("--- started %Y-%m-%d %H:%M:%S\n").encode())
        self._start = os.fstat(descriptor).st_size
        return descriptor

    def tail(self) -> list[str]:
        """Return the last lines since the worker was started."""
        return last_lines(self.path, self._start)

    def rotate(self) -> None:
        """Begin anew if the file has grown too long; the older one is `.log.1`."""
        with suppress(OSError):
            if self.path.stat().st_size >= self._limit:
                shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.1"))
                os.truncate(self.path, 0)
                self._start = 0


LOAD_LIMIT = 1800.0  # seconds after which a worker that still loads is taken for stuck
CLOSE_GRACE = 3.0  # seconds that a worker has to end when its standard input does
TERM_GRACE = 2.0  # seconds that it has to end after SIGTERM
_HELLO_LIMIT = 64 << 10
_LAST_LINES = 30
_ENGINE_SILENT = "Failed to init server"  # all that the engine's exception says; the reason is in its log

Program = Callable[[ModelEntry], Sequence[str]]  # the command that runs a model's worker


class StartError(Exception):
    def __init__(self, cause: Cause) -> None:
        super().__init__(str(cause))
        self.cause = cause


def program_of(entry: ModelEntry) -> Sequence[str]:
    """Return the command for a model's engine. `-P`: nothing is imported from the current folder."""
    module = "transformers" if entry.engine == "transformers" else "worker"
    return (sys.executable, "-P", "-m", f"lmagent.modelserver.engine.{module}")


class Processes:
    """Starts workers.

    With `keyed` the model server demands a key of its clients. Then an engine that knows no keys is refused: other
    users of this machine could get around the server.
    """

    def __init__(self, logs: Path, program: Program = program_of, *, keyed: bool = False) -> None:
        self._logs = logs
        self._program = program
        self._keyed = keyed

    def log(self, name: str) -> Path:
        return log_path(self._logs, name)

    def start(self, entry: ModelEntry, spec: WorkerSpec) -> ProcessWorker:
        """Start a worker in the thread of the event loop: Linux ends the worker when that thread ends."""
        if self._keyed and entry.engine == "transformers":
            text = "this server demands a key, and `transformers serve` knows none: use a GGUF model, or no server key"
            raise StartError(Cause(text))
        log = WorkerLog(self.log(entry.name))
        spec = replace(spec, key=secrets.token_urlsafe(32))
        errors = -1
        try:
            errors = log.open()
            popen = subprocess.Popen(
                list(self._program(entry)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(Cause(f"its process cannot be started: {error}")) from error
        finally:
            if errors >= 0:
                os.close(errors)
        worker = ProcessWorker(popen, log, spec.key)
        worker.tell(spec)
        return worker


class ProcessWorker:
    """A worker's process; `address` is the root of its HTTP server, empty before `ready` has returned."""

    def __init__(self, popen: subprocess.Popen[bytes], log: WorkerLog, key: str) -> None:
        self.pid = popen.pid
        self.address = ""
        self.key = key
        self._popen = popen
        self._log = log
        self._gpu = 0

    def tell(self, spec: WorkerSpec) -> None:
        """Write the line that names the model; `ready` notices a worker that died at once."""
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):
            self._popen.stdin.write(msgspec.json.encode(spec) + b"\n")

    async def ready(self) -> Hello:
        """Wait until the model is loaded; raise StartError if it cannot be. `stop` ends the rest."""
        assert self._popen.stdout is not None
        line = None
        with anyio.move_on_after(LOAD_LIMIT):
            # The thread waits for the line, or for the end of the worker's output.
            read = self._popen.stdout.readline
            line = await anyio.to_thread.run_sync(read, _HELLO_LIMIT, abandon_on_cancel=True)
        if line is None:
            text = f"it was still loading after {LOAD_LIMIT / 60:.0f} minutes"
            raise StartError(Cause(text, f"look into its log: {self._log.path}", "load_stalled"))
        if not line.endswith(b"\n"):
            raise StartError(await self._silence())
        try:
            hello = decode_json(line, Hello)
        except msgspec.DecodeError as error:
            raise StartError(Cause(f"its worker said something else than hello: {line[:200]!r} ({error})")) from error
        if hello.error:
            raise StartError(self._explained(hello.error))
        self.address = hello.address
        self._gpu = hello.gpu
        return hello

    async def ended(self) -> Cause:
        """Wait until the process is gone; return why, as far as that is known."""
        status = await self._gone()
        if status in (-signal.SIGKILL, -signal.SIGTERM):
            return from_status(status)
        said = from_log(self._log.tail()[-_LAST_LINES:]) if status else None
        return replace(said, text=f"{from_status(status).text}: {said.text}") if said else from_status(status)

    def alive(self) -> bool:
        return self._popen.poll() is None

    def memory(self, *, awake: bool = True) -> int:
        """Return the bytes that it takes now; without the graphics card's while it sleeps."""
        return memory_of(self.pid) + (self._gpu if awake else 0)

    def tidy(self) -> None:
        self._log.rotate()

    async def stop(self) -> None:
        """End it by closing its standard input, then by signals; it is gone when this returns."""
        with anyio.CancelScope(shield=True):
            assert self._popen.stdin is not None
            with suppress(OSError):
                self._popen.stdin.close()
            for grace, number in ((CLOSE_GRACE, signal.SIGTERM), (TERM_GRACE, signal.SIGKILL)):
                with anyio.move_on_after(grace):
                    await self._gone()
                if self._popen.poll() is not None:
                    break
                self._signal(number)
            await self._gone()
            if self._popen.stdout is not None:
                self._popen.stdout.close()

    def _signal(self, number: signal.Signals) -> None:
        """Signal the worker's whole group, only while it is not reaped, so that the number is surely its own."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _gone(self) -> int:
        """Wait for the process, without a thread if the system allows it; return the exit status."""
        if self._popen.poll() is None and hasattr(os, "pidfd_open"):
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(self.pid)
                try:
                    await anyio.wait_readable(descriptor)
                finally:
                    os.close(descriptor)
        while True:
            status = self._popen.poll()
            if status is not None:
                return status
            await anyio.sleep(0.05)

    async def _silence(self) -> Cause:
        """Explain why the worker printed no hello."""
        with anyio.move_on_after(TERM_GRACE):
            status = await self._gone()
            return from_log(self._log.tail()) or from_status(status)
        return Cause("its worker closed its output and said nothing", f"look into its log: {self._log.path}")

    def _explained(self, error: str) -> Cause:
        said = from_log(self._log.tail())
        return said if said and (str(said) == error or error.startswith(_ENGINE_SILENT)) else Cause(error)
