"""The ledger: the result of each time at which a job was due. All schedulers of a workspace share it.

A time is decided on under the lock of the file and recorded before anything acts on it. So it runs at most once, even
if the table of jobs is lost, and unfinished decisions are found again. The file only grows until it is large; then a
shorter one with the same meaning replaces it, under the same lock.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from lmagent.core.decoding import decode_json
from lmagent.core.errors import StoreError
from lmagent.store.files import OPEN_FLAGS, append_lines, replace_whole, store_error
from lmagent.store.lock import locked

HISTORY = 500  # times of a job that are remembered; older ones are covered by the horizon
WRONG_CLOCK = 600.0  # seconds a horizon may lie in the future; beyond that the clock must have been wrong
LATEST = 253402300799  # the last second of the year 9999; no ledger has later times
LARGE = 2 << 20  # bytes of the file after which it is shortened, if that at least halves it
HEAD = 128  # bytes of the beginning that identify a file

What = Literal["on", "off", "claimed", "ran", "missed", "delivering", "delivered", "history"]


class CronRun(Struct, omit_defaults=True):
    at: int
    stage: What
    session: str = ""
    outcome: str = ""
    delivery: str = ""
    by: str = ""
    count: int = 1
    until: int = 0


class JobHistory(Struct):
    """The state of a job, a fold of its entries: the last runs, and whether and by which schedule its times count.

    Up to `horizon`, Unix seconds, every time has been decided on.
    """

    on: bool = False
    schedule: str = ""
    horizon: float = 0.0
    runs: dict[int, CronRun] = field(default_factory=dict[int, CronRun])

    def unfinished(self, *, delivers: bool) -> list[CronRun]:
        """Return the runs that have not ended; if results are delivered, also those without a delivery."""
        stages = ("claimed", "ran", "delivering") if delivers else ("claimed",)
        return [run for run in self.runs.values() if run.stage in stages]

    @property
    def busy(self) -> bool:
        return any(run.stage == "claimed" for run in self.runs.values())

    def apply(self, entry: LedgerEntry) -> None:
        match entry.what:
            case "on":
                self.on, self.schedule, self.horizon = True, entry.schedule, entry.ts
            case "off":
                self.on = False
            case "claimed":
                self.runs[entry.at] = CronRun(entry.at, "claimed", entry.session, by=entry.by)
                if not entry.by:
                    self.horizon = max(self.horizon, entry.at)
            case "missed":
                self.runs[entry.at] = CronRun(entry.at, "missed", count=entry.count, until=entry.until)
                self.horizon = max(self.horizon, entry.until)
            case "ran" if run := self.runs.get(entry.at):
                run.stage, run.session, run.outcome = "ran", entry.session or run.session, entry.outcome
            case "delivering" | "delivered" if run := self.runs.get(entry.at):
                run.stage, run.delivery = entry.what, entry.outcome
            case _:
                pass
        while len(self.runs) > HISTORY:
            del self.runs[next(iter(self.runs))]


class LedgerEntry(Struct, frozen=True, omit_defaults=True):
    """One fact.

    Attributes:
        what: `on`: its times count from here, by this schedule. `off`: they do not. `claimed`: it is going to run.
            `ran`: it ended. `missed`: times that will never run. `delivering`, `delivered`: its result. `history`:
            all that earlier entries of the job meant.
        at: the time it was due, Unix seconds; the first one, if several were missed.
        by: the surface that asked for it, if it was not the schedule.
    """

    ts: float
    job: str
    what: What
    at: int = 0
    until: int = 0
    count: int = 0
    schedule: str = ""
    session: str = ""
    outcome: str = ""
    by: str = ""
    history: JobHistory | None = None


class Ledger:
    """The ledger of a workspace, in its `.lmagent`."""

    def __init__(self, home: Path, now: Callable[[], float]) -> None:
        self.path = home / "cron-history.jsonl"
        self.damaged = 0  # lines that could not be read
        self._lock = home / "cron-history.lock"
        self._now = now
        self._held = False
        self._jobs: dict[str, JobHistory] = {}
        self._unread: list[bytes] = []
        self._read_to = 0
        self._head = b""
        self._large = LARGE
        self._file: tuple[int, int] | None = None

    def history(self, job: str) -> JobHistory:
        return self._jobs.setdefault(job, JobHistory())

    def jobs(self) -> list[str]:
        return list(self._jobs)

    def read(self) -> None:
        """Fold in the entries that any process has appended since the last read."""
        try:
            fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | OPEN_FLAGS)
        except FileNotFoundError:
            self._begin_anew(None)
            return
        except OSError as error:
            raise store_error(error, "the history of the jobs could not be read", self.path) from error
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise StoreError(f"{self.path} is no regular file", fix="move it away")
        with os.fdopen(fd, "rb") as file:
            same = self._file == (found.st_dev, found.st_ino) and found.st_size >= self._read_to
            if not same or file.read(len(self._head)) != self._head:
                self._begin_anew((found.st_dev, found.st_ino))
            file.seek(self._read_to)
            for line in file:
                if line.endswith(b"\n"):
                    self._fold(line)
                    self._read_to += len(line)
            file.seek(0)
            self._head = file.read(min(HEAD, self._read_to))

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock, with all entries of other processes read."""
        with locked(self._lock, f"another process keeps the history of the jobs locked, by {self._lock}"):
            self._held = True
            try:
                self.read()
                yield
            finally:
                self._held = False

    def append(self, *entries: LedgerEntry) -> None:
        """Append facts, on disk when this returns. Decisions need `locked`."""
        if self._held:
            self._write(entries)
        else:
            with self.locked():  # else the file could be replaced between opening it and writing to it
                self._write(entries)

    def note(self, job: str, what: What, at: int, *, session: str = "", outcome: str = "") -> None:
        """Append the result of a claimed time."""
        self.append(LedgerEntry(self._now(), job, what, at, session=session, outcome=outcome))

    def _write(self, entries: Sequence[LedgerEntry]) -> None:
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            append_lines(self.path, lines)
        except OSError as error:
            raise store_error(error, "the history of the jobs could not be written", self.path) from error
        self.read()
        if self._read_to > self._large:
            self._shorten()

    def _shorten(self) -> None:
        """Replace the file by a shorter one with the same meaning; if that fails, it stays unchanged.

        The random text makes its beginning one that no ledger had before: a system may reuse a file's number.
        """
        facts = [
            LedgerEntry(self._now(), job, "history", by=os.urandom(8).hex(), history=history)
            for job, history in self._jobs.items()
        ]
        content = b"".join([*(msgspec.json.encode(fact) + b"\n" for fact in facts), *self._unread])
        self._large = max(LARGE, 2 * len(content))
        if facts and self._read_to > self._large:
            with suppress(OSError):
                replace_whole(self.path, self.path.with_suffix(".new"), content)
            self.read()

    def _begin_anew(self, file: tuple[int, int] | None) -> None:
        self._jobs.clear()
        self._unread.clear()
        self._read_to, self._file, self._head, self.damaged = 0, file, b"", 0

    def _fold(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            entry = decode_json(line, LedgerEntry)
        except ValueError:
            entry = None
        if entry is None or not all(0 <= moment <= LATEST for moment in (entry.ts, entry.at, entry.until)):
            self.damaged += 1
            self._unread.append(line)
        elif entry.history is not None:
            self._jobs[entry.job] = entry.history
        else:
            self.history(entry.job).apply(entry)
