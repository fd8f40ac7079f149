"""The ledger: what became of each time at which a job was due. Append-only; all schedulers of a workspace share it.

A time is decided on under the lock of the file and written down before anything is done about it; so it runs at most
once, whatever becomes of the table of jobs, and what was decided and did not end is found again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from lmagent.core.errors import StoreError
from lmagent.schedule.locks import locked
from lmagent.store.failures import store_error
from lmagent.store.files import FILE_MODE, OPEN_FLAGS, make_private, sync_file, sync_folder, write_whole

HISTORY = 500
"""Times of a job that are remembered; older ones are known by the horizon."""

WRONG_CLOCK = 600.0
"""Seconds by which a horizon may lie in the future before a clock that was wrong is what explains it."""

LATEST = 253402300799
"""The last second of the year 9999; what lies behind is no time that anybody wrote here."""

What = Literal["on", "off", "claimed", "ran", "missed", "delivering", "delivered"]


class Entry(Struct, frozen=True, omit_defaults=True):
    """One fact.

    Attributes:
        ts: Unix seconds at which it was written.
        job: id of the job.
        what: `on`: its times count from here, by this schedule. `off`: they do not. `claimed`: it is going to run.
            `ran`: it ended. `missed`: times that nobody will run. `delivering`, `delivered`: its result.
        at: the time it was due, Unix seconds; the first one, where several were missed.
        until: the last one, where several were missed.
        count: how many were missed.
        schedule: of `on`.
        session: in which it ran.
        outcome: how the turn ended, or the delivery.
        by: who wanted it, where it was not the schedule.
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


class Run(Struct):
    """One time of a job and what became of it."""

    at: int
    stage: What
    session: str = ""
    outcome: str = ""
    delivery: str = ""
    by: str = ""
    count: int = 1
    until: int = 0


class JobHistory(Struct):
    """What is known about a job: a fold of its entries.

    Attributes:
        on: its times count.
        schedule: by which they do.
        horizon: up to here, Unix seconds, every time has been decided on.
        runs: by the time they were due, the last ones.
    """

    on: bool = False
    schedule: str = ""
    horizon: float = 0.0
    runs: dict[int, Run] = field(default_factory=dict[int, Run])

    def unfinished(self, *, delivers: bool) -> list[Run]:
        """What was decided and has not ended; where a result is delivered, that counts as well."""
        stages = ("claimed", "ran", "delivering") if delivers else ("claimed",)
        return [run for run in self.runs.values() if run.stage in stages]

    @property
    def busy(self) -> bool:
        """A turn of it has not ended."""
        return any(run.stage == "claimed" for run in self.runs.values())

    def apply(self, entry: Entry) -> None:
        """Fold one entry in."""
        match entry.what:
            case "on":
                self.on, self.schedule, self.horizon = True, entry.schedule, entry.ts
            case "off":
                self.on = False
            case "claimed":
                self.runs[entry.at] = Run(entry.at, "claimed", entry.session, by=entry.by)
                if not entry.by:
                    self.horizon = max(self.horizon, entry.at)
            case "missed":
                self.runs[entry.at] = Run(entry.at, "missed", count=entry.count, until=entry.until)
                self.horizon = max(self.horizon, entry.until)
            case _:
                self._settle(entry)
        while len(self.runs) > HISTORY:
            del self.runs[next(iter(self.runs))]

    def _settle(self, entry: Entry) -> None:
        run = self.runs.get(entry.at)
        if run is None:
            return
        run.stage = entry.what
        if entry.what == "ran":
            run.session, run.outcome = entry.session or run.session, entry.outcome
        else:
            run.delivery = entry.outcome


class Ledger:
    """The ledger of a workspace.

    Args:
        home: its `.lmagent`.
        now: the wall clock, Unix seconds.
    """

    def __init__(self, home: Path, now: Callable[[], float]) -> None:
        self.path = home / "cron-history.jsonl"
        self.damaged = 0
        """Lines that could not be read."""
        self._lock = home / "cron-history.lock"
        self._now = now
        self._jobs: dict[str, JobHistory] = {}
        self._read_to = 0
        self._file: tuple[int, int] | None = None

    def history(self, job: str) -> JobHistory:
        """What is known about a job."""
        return self._jobs.setdefault(job, JobHistory())

    def jobs(self) -> list[str]:
        """Ids of all jobs that it knows."""
        return list(self._jobs)

    def read(self) -> None:
        """Fold in what was appended since the last time, by whomever.

        Raises:
            StoreError: it cannot be read.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | OPEN_FLAGS)
        except FileNotFoundError:
            self._begin_anew(None)
            return
        except OSError as error:
            raise store_error(error, "the history of the jobs could not be read", self.path) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StoreError(f"{self.path} is no regular file", fix="move it away")
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(file.fileno())
            if self._file != (found.st_dev, found.st_ino) or found.st_size < self._read_to:
                self._begin_anew((found.st_dev, found.st_ino))
            file.seek(self._read_to)
            for line in file:
                if line.endswith(b"\n"):
                    self._fold(line)
                    self._read_to += len(line)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Decide while nobody else does: what was written meanwhile is known inside.

        Raises:
            StoreError: the lock cannot be had, or the ledger cannot be read.
        """
        with locked(self._lock, "the history of the jobs"):
            self.read()
            yield

    def append(self, *entries: Entry) -> None:
        """Write facts down, on disk when this returns. Those that decide something: inside `locked`.

        Raises:
            StoreError: they could not be written.
        """
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            made = make_private(self.path.parent)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | OPEN_FLAGS, FILE_MODE)
            try:
                size = os.fstat(fd).st_size
                if size and os.pread(fd, 1, size - 1) != b"\n":
                    lines = b"\n" + lines  # the writer of the last line was killed in the middle of it
                write_whole(fd, lines)
                sync_file(fd)
            finally:
                os.close(fd)
            for folder in {*made, *([self.path.parent] if not size else [])}:
                sync_folder(folder)
        except OSError as error:
            raise store_error(error, "the history of the jobs could not be written", self.path) from error
        self.read()

    def note(self, job: str, what: What, at: int, *, session: str = "", outcome: str = "") -> None:
        """Write down what became of a time that was claimed.

        Raises:
            StoreError: it could not be written.
        """
        self.append(Entry(self._now(), job, what, at, session=session, outcome=outcome))

    def _begin_anew(self, file: tuple[int, int] | None) -> None:
        self._jobs.clear()
        self._read_to, self._file = 0, file

    def _fold(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except ValueError:
            self.damaged += 1
            return
        if not all(0 <= moment <= LATEST for moment in (entry.ts, entry.at, entry.until)):
            self.damaged += 1
            return
        self.history(entry.job).apply(entry)
