"""The ledger: the result of each time at which a job was due. All schedulers of a workspace share it.

A time is decided on under the lock of the file and recorded before anything acts on it. So it runs at most once, and
unfinished decisions are found again. The file only grows until it is large; then a shorter one with the same meaning
replaces it, under the same lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from lmagent.core.decoding import decode_json
from lmagent.store.files import append_lines, read_regular, replace_whole, store_error
from lmagent.store.lock import locked

HISTORY = 500  # times of a job that are remembered; older ones are covered by the horizon
WRONG_CLOCK = 600.0  # seconds a horizon may lie in the future; beyond that the clock must have been wrong
LATEST = 253402300799  # the last second of the year 9999; no ledger has later times
LARGE = 1 << 19  # bytes of the file after which it is shortened, if that at least halves it

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

    @property
    def unfinished(self) -> list[CronRun]:
        """The runs that have not ended, or whose result is being delivered."""
        return [run for run in self.runs.values() if run.stage in ("claimed", "delivering")]

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
        self.stamp: tuple[int, ...] = ()  # differs once the file has changed
        self._lock = home / "cron-history.lock"
        self._now = now
        self._held = False
        self._jobs: dict[str, JobHistory] = {}

    def history(self, job: str) -> JobHistory:
        return self._jobs.setdefault(job, JobHistory())

    def jobs(self) -> list[str]:
        return list(self._jobs)

    def read(self) -> None:
        """Read the file again if any process has changed it since the last time."""
        try:
            found = os.lstat(self.path)
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            lines = [] if stamp == self.stamp else read_regular(self.path).splitlines()
        except FileNotFoundError:
            stamp, lines = (0,), []
        except OSError as error:
            raise store_error(error, "the history of the jobs could not be read", self.path) from error
        if stamp != self.stamp:
            self.stamp = stamp
            self._jobs.clear()
            for line in lines:
                self._fold(line)

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

    def note(
        self, job: str, what: What, at: int, *, session: str = "", outcome: str = "", delivers: bool = False
    ) -> None:
        """Append the result of a claimed time, and in one step that its delivery begins."""
        now = self._now()
        entries = [LedgerEntry(now, job, what, at, session=session, outcome=outcome)]
        self.append(*entries, *([LedgerEntry(now, job, "delivering", at)] if delivers else []))

    def _write(self, entries: Sequence[LedgerEntry]) -> None:
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            append_lines(self.path, lines)
        except OSError as error:
            raise store_error(error, "the history of the jobs could not be written", self.path) from error
        self.read()
        if self.stamp[1:] and self.stamp[1] > LARGE:
            self._shorten()

    def _shorten(self) -> None:
        """Replace the file by one of at most half its size with the same meaning; if that fails, it stays unchanged."""
        facts = [LedgerEntry(self._now(), job, "history", history=history) for job, history in self._jobs.items()]
        content = b"".join(msgspec.json.encode(fact) + b"\n" for fact in facts)
        if 2 * len(content) <= self.stamp[1]:
            with suppress(OSError):
                replace_whole(self.path, self.path.with_suffix(".new"), content)
            self.read()

    def _fold(self, line: bytes) -> None:
        """Fold in an entry; a torn line, or one of a later version, is passed over."""
        try:
            entry = decode_json(line, LedgerEntry)
        except ValueError:
            return
        if not all(0 <= moment <= LATEST for moment in (entry.ts, entry.at, entry.until)):
            return
        if entry.history is not None:
            self._jobs[entry.job] = entry.history
        else:
            self.history(entry.job).apply(entry)
