"""The table of jobs: which process may do which job now. Every decision is one transaction; all processes share the
table.

The table is an index: after a loss, the readers of the logs and the files submit its jobs again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from lmagent.core.errors import StoreError
from lmagent.core.ports import DispatchJob

T = TypeVar("T")

KEPT = 7 * 86400
"""Seconds that a finished job stays in the table, so that a late repeat of its submission is recognised."""

_CLAIMABLE = """
SELECT id, lane, run_at, attempts FROM job AS mine
WHERE state = 'queued' AND run_at <= :now AND not_before <= :now AND :only IN ('', id)
  AND NOT EXISTS (SELECT 1 FROM job WHERE lane = mine.lane AND state = 'claimed')
  AND NOT EXISTS (
    SELECT 1 FROM job WHERE lane = mine.lane AND state = 'queued' AND number < mine.number AND run_at <= :now)
ORDER BY number LIMIT :most
"""


class Claim(Struct, frozen=True):
    """A job that this process is to do now."""

    job: DispatchJob
    token: str  # names this claim; another process that takes it over gets a new one
    attempts: int  # how often it has failed before


class JobTable:
    """The jobs of a workspace.

    Args:
        connect: opens the database, with its schema.
        path: where it is, to notice when the file is removed.
        owner: names this process.
        is_alive: whether the process of that name still runs.
        only: id of the one job that this process is to do; empty for all.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        path: Path,
        owner: str,
        is_alive: Callable[[str], bool],
        *,
        only: str = "",
    ) -> None:
        self._connect = connect
        self._path = path
        self._owner = owner
        self._is_alive = is_alive
        self.only = only
        self._db = connect()
        self._file = self._identity()
        self._leased_until = 0.0
        self.held: dict[str, Claim] = {}
        """The claims of this process, by id."""

    def close(self) -> None:
        self._db.close()

    # --- in and out ---------------------------------------------------------------------------------------------------

    def add(self, job: DispatchJob) -> bool:
        """Add a job; False if its id is known."""
        query = "INSERT OR IGNORE INTO job (id, lane, run_at) VALUES (?, ?, ?)"
        return self._run(lambda: self._change(query, (job.id, job.lane, job.run_at))) > 0

    def remove(self, job: str) -> bool:
        return self._run(lambda: self._change("DELETE FROM job WHERE id = ? AND state = 'queued'", (job,))) > 0

    def revive(self, now: float) -> None:
        """Give jobs that were given up another chance, and forget jobs that ended long ago."""

        def work() -> None:
            self._change("UPDATE job SET state = 'queued', attempts = 0, not_before = 0 WHERE state = 'failed'", ())
            self._change("DELETE FROM job WHERE state = 'done' AND ended < ?", (now - KEPT,))

        self._run(work)

    # --- claims -------------------------------------------------------------------------------------------------------

    def claim(self, now: float, most: int, lease: float) -> list[Claim]:
        """Take jobs whose time has come, from lanes in which nothing runs, for `lease` seconds unless renewed."""

        def work() -> list[Claim]:
            if not self._lost(now) and not (most and self._claimable(now, 1)):
                return []  # most looks find nothing, and need not wait for other processes' transactions
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for token in self._lost(now):
                    self._change("UPDATE job SET state = 'queued', claim = '' WHERE claim = ?", (token,))
                claims = [
                    Claim(DispatchJob(str(id), str(lane), float(run_at)), os.urandom(8).hex(), int(attempts))
                    for id, lane, run_at, attempts in self._claimable(now, most)
                ]
                for claim in claims:
                    self._hold(claim, now + lease)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            return claims

        claims, self._leased_until = self._run(work), now + lease
        self.held |= {claim.job.id: claim for claim in claims}
        return claims

    def renew(self, now: float, lease: float) -> None:
        self._leased_until = now + lease
        tokens = [(self._leased_until, claim.token) for claim in self.held.values()]
        if tokens:
            self._run(lambda: self._db.executemany("UPDATE job SET lease_until = ? WHERE claim = ?", tokens))

    def done(self, claim: Claim, now: float) -> None:
        """Record that the job is done, even if another process has claimed it since."""
        self.held.pop(claim.job.id, None)
        query = "UPDATE job SET state = 'done', claim = '', ended = ? WHERE id = ?"
        self._run(lambda: self._change(query, (now, claim.job.id)))

    def give_back(self, claim: Claim, not_before: float = 0.0) -> None:
        """Release the job for a later attempt, no sooner than `not_before`, Unix seconds."""
        self.held.pop(claim.job.id, None)
        query = "UPDATE job SET state = 'queued', claim = '', not_before = ? WHERE claim = ?"
        self._run(lambda: self._change(query, (not_before, claim.token)))

    def failed(self, claim: Claim, error: str, *, retry_at: float | None) -> None:
        """Record a failed attempt; it is tried again at `retry_at` (Unix seconds), or given up."""
        self.held.pop(claim.job.id, None)
        query = (
            "UPDATE job SET state = ?, claim = '', attempts = attempts + 1, not_before = ?, error = ? WHERE claim = ?"
        )
        state = "failed" if retry_at is None else "queued"
        self._run(lambda: self._change(query, (state, retry_at or 0.0, error, claim.token)))

    def next_due(self, now: float) -> float | None:
        """Return when the next job may be claimed, as far as that depends on time alone; None for never."""
        query = "SELECT MIN(MAX(run_at, not_before)) FROM job WHERE state = 'queued' AND MAX(run_at, not_before) > ?"
        (due,) = self._run(lambda: self._db.execute(query, (now,)).fetchone())
        return due

    def counts(self) -> Mapping[str, int]:
        return self._run(lambda: dict(self._db.execute("SELECT state, COUNT(*) FROM job GROUP BY state").fetchall()))

    # --- the database -------------------------------------------------------------------------------------------------

    def _claimable(self, now: float, most: int) -> list[tuple[str, str, float, int]]:
        mine = {claim.job.lane for claim in self.held.values()}
        rows = self._db.execute(_CLAIMABLE, {"now": now, "most": most + len(mine), "only": self.only}).fetchall()
        return [row for row in rows if row[1] not in mine][:most]

    def _lost(self, now: float) -> list[str]:
        """Return the claims whose owner is gone, or has not renewed them within the lease."""
        rows = self._db.execute("SELECT claim, owner, lease_until FROM job WHERE state = 'claimed'").fetchall()
        dead = {owner for owner in {row[1] for row in rows} - {self._owner} if not self._is_alive(owner)}
        mine = {claim.token for claim in self.held.values()}
        return [token for token, owner, until in rows if token not in mine and (owner in dead or until < now)]

    def _hold(self, claim: Claim, until: float) -> None:
        job = claim.job
        query = (
            "INSERT INTO job (id, lane, run_at, attempts, state, claim, owner, lease_until) "
            "VALUES (?, ?, ?, ?, 'claimed', ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "state = excluded.state, claim = excluded.claim, owner = excluded.owner, lease_until = excluded.lease_until"
        )
        self._change(query, (job.id, job.lane, job.run_at, claim.attempts, claim.token, self._owner, until))

    def _change(self, query: str, values: tuple[object, ...]) -> int:
        return self._db.execute(query, values).rowcount

    def _run(self, work: Callable[[], T]) -> T:
        """Work on the database; a removed or damaged one is opened anew. Raises StoreError if that does not help."""
        try:
            if self._file is not None and self._identity() != self._file:
                self._reopen()
            return work()
        except sqlite3.OperationalError as error:  # locked for long, or the disk is full: nothing was changed
            raise _refusal(error, self._path) from error
        except sqlite3.DatabaseError:
            pass
        try:
            self._reopen()
            return work()
        except sqlite3.DatabaseError as error:
            raise _refusal(error, self._path) from error

    def _reopen(self) -> None:
        with suppress(sqlite3.Error):
            self._db.close()
        self._db = self._connect()
        self._file = self._identity()
        for claim in self.held.values():
            self._hold(claim, self._leased_until)

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _refusal(error: sqlite3.Error, path: Path) -> StoreError:
    return StoreError(f"the table of jobs cannot be used: {error}: {path}", fix=f"check the disk, or delete {path}")
