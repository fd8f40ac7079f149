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

import msgspec

from lmagent.core.decoding import decode_json
from lmagent.core.errors import StoreError
from lmagent.schedule.entries import CronRun as CronRun
from lmagent.schedule.entries import JobHistory as JobHistory
from lmagent.schedule.entries import LedgerEntry as LedgerEntry
from lmagent.schedule.entries import What as What
from lmagent.schedule.locks import locked
from lmagent.store.failures import store_error
from lmagent.store.files import FILE_MODE, OPEN_FLAGS, make_private, sync_file, sync_folder, write_whole

WRONG_CLOCK = 600.0
"""Seconds a horizon may lie in the future; beyond that the clock must have been wrong."""

LATEST = 253402300799
"""The last second of the year 9999; no ledger has later times."""

LARGE = 2 << 20
"""Bytes of the file after which it is shortened, if that at least halves it."""

HEAD = 64
"""Bytes of the beginning that identify a file."""


class Ledger:
    """The ledger of a workspace."""

    def __init__(self, home: Path, now: Callable[[], float]) -> None:
        self.path = home / "cron-history.jsonl"
        self.damaged = 0
        """Lines that could not be read."""
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
        """Fold in the entries that any process has appended since the last read.

        Raises StoreError if it cannot be read.
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
        """Hold the lock, with all entries of other processes read.

        Raises StoreError if the lock cannot be had, or the ledger cannot be read.
        """
        with locked(self._lock, "the history of the jobs"):
            self._held = True
            try:
                self.read()
                yield
            finally:
                self._held = False

    def append(self, *entries: LedgerEntry) -> None:
        """Append facts, on disk when this returns. Decisions need `locked`.

        Raises StoreError if they could not be written.
        """
        if self._held:
            self._write(entries)
        else:
            with self.locked():  # else the file could be replaced between opening it and writing to it
                self._write(entries)

    def _write(self, entries: Sequence[LedgerEntry]) -> None:
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
        if self._read_to > self._large:
            self._shorten()

    def _shorten(self) -> None:
        """Replace the file by a shorter one with the same meaning; if that fails, it stays unchanged."""
        from lmagent.schedule.shorter import facts_of, replace  # hardly ever needed

        facts = facts_of(self._jobs)
        size = sum(len(msgspec.json.encode(entry)) + 1 for entry in facts or ()) + sum(map(len, self._unread))
        self._large = max(LARGE, 2 * size)
        if facts and self._read_to > self._large:
            with suppress(OSError):
                replace(self.path, facts, self._unread)
            self.read()

    def note(self, job: str, what: What, at: int, *, session: str = "", outcome: str = "") -> None:
        """Append the result of a claimed time. Raises StoreError if it could not be written."""
        self.append(LedgerEntry(self._now(), job, what, at, session=session, outcome=outcome))

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
            return
        self.history(entry.job).apply(entry)
