"""The state of a cluster: its processes, and the work of each workspace."""

from __future__ import annotations

from typing import LiteralString

import msgspec
from msgspec import Struct

from lmagent.cluster.database import Connection, Database


class ClusterProcess(Struct, frozen=True):
    """A process that uses the database.

    Attributes:
        beat: seconds since its last heartbeat.
        alive: whether that is younger than the lease.
        running: the ids of the jobs that it runs.
        sessions: how many sessions it has open for writing.
    """

    id: int
    kind: str
    name: str
    version: str
    workspaces: list[str]
    draining: bool
    uptime: float
    beat: float
    alive: bool
    running: list[str]
    sessions: int


class ClusterWorkspace(Struct, frozen=True):
    """The work of one workspace.

    Attributes:
        waiting: jobs that could run now.
        oldest: seconds for which the oldest of these has waited; None without one.
        due: jobs whose time has not come.
        resting: jobs that failed too often, and are tried again later.
        failure: the reason of the latest of these.
        open: sessions that a living process has open.
        workers: living workers that mount it, draining ones excepted.
        fix: the command after which its jobs run, if no worker mounts it.
    """

    name: str
    waiting: int
    running: int
    oldest: float | None
    due: int
    resting: int
    failure: str
    sessions: int
    open: int
    workers: int
    fix: str = ""

    @property
    def jobs(self) -> int:
        return self.waiting + self.running + self.due + self.resting


class ClusterStatus(Struct, frozen=True):
    processes: list[ClusterProcess]
    workspaces: list[ClusterWorkspace]


_PROCESSES: LiteralString = """
    SELECT id, kind, name, version, workspaces, draining,
        extract(epoch FROM clock_timestamp() - started)::float8, extract(epoch FROM clock_timestamp() - beat)::float8,
        is_alive(beat),
        ARRAY(SELECT job.id FROM job WHERE job.process = process.id ORDER BY 1),
        (SELECT count(*) FROM session WHERE owner = process.id)
    FROM process WHERE is_alive(beat) OR beat > clock_timestamp() - interval '10 minutes' ORDER BY kind DESC, id"""

_WORKSPACES: LiteralString = """
    WITH work AS (
        SELECT workspace, count(*) FILTER (WHERE state = 'queued' AND process IS NULL) AS waiting,
            count(*) FILTER (WHERE process IS NOT NULL) AS running,
            extract(epoch FROM clock_timestamp() - min(created) FILTER (
                WHERE state = 'queued' AND process IS NULL))::float8 AS oldest,
            count(*) FILTER (WHERE state = 'due' AND failure = '') AS due,
            count(*) FILTER (WHERE state = 'due' AND failure <> '') AS resting,
            coalesce((array_agg(failure ORDER BY changed DESC) FILTER (WHERE state = 'due' AND failure <> ''))[1], '')
                AS failure
        FROM job WHERE state <> 'done' GROUP BY workspace
    ), kept AS (
        SELECT workspace, count(*) AS sessions, count(process.id) AS open
        FROM session LEFT JOIN process ON process.id = owner AND is_alive(beat) GROUP BY workspace
    ), mounted AS (
        SELECT workspace, count(*) AS workers FROM process, unnest(workspaces) AS workspace
        WHERE kind = 'worker' AND NOT draining AND is_alive(beat) GROUP BY workspace
    )
    SELECT workspace, coalesce(waiting, 0), coalesce(running, 0), oldest, coalesce(due, 0), coalesce(resting, 0),
        coalesce(failure, ''), coalesce(sessions, 0), coalesce(open, 0), coalesce(workers, 0)
    FROM work FULL JOIN kept USING (workspace) FULL JOIN mounted USING (workspace) ORDER BY workspace"""


def read_status(database: Database) -> ClusterStatus:
    """Return the state of the cluster. Raise StoreError if the database cannot be used."""

    def work(connection: Connection) -> ClusterStatus:
        processes = [ClusterProcess(*row) for row in connection.execute(_PROCESSES)]
        workspaces = [_with_fix(ClusterWorkspace(*row)) for row in connection.execute(_WORKSPACES)]
        return ClusterStatus(processes, workspaces)

    return database.run(work)


def _with_fix(workspace: ClusterWorkspace) -> ClusterWorkspace:
    if workspace.workers or not workspace.jobs:
        return workspace
    return msgspec.structs.replace(workspace, fix=f"lmagent worker --label {workspace.name}=PATH")


def drain(database: Database, worker: str = "") -> list[str]:
    """Ask a worker, by its name or number, or all workers to end; return the names of those that will."""
    query: LiteralString = """
        UPDATE process SET draining = true
        WHERE kind = 'worker' AND is_alive(beat) AND (%s = '' OR name = %s OR id::text = %s) RETURNING name"""
    return sorted(str(name) for (name,) in database.rows(query, (worker, worker, worker)))
