"""Checks of a cluster, for `lmagent cluster doctor`: each fault with the command that mends it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

from lmagent.app.servers.battery import Finding
from lmagent.cluster.database import Connection, Database, only_row, time_of
from lmagent.cluster.status import read_status
from lmagent.core.errors import ConfigError, StoreError
from lmagent.core.plurals import plural

SKEW = 5.0  # seconds by which a clock may differ before it is reported
PATIENCE = 3.0  # seconds for which an object storage that is away is waited for
SLOW = 20.0  # milliseconds of a round trip, of which each event of a session needs one


def examine(database: Database, objects: str = "") -> Iterator[Finding]:
    """Yield the findings; the first fault of the database that keeps others from being looked for is its last one.

    Args:
        objects: the address of the object storage, if there is one.
    """
    if objects:
        yield _objects(objects)
    try:
        connection = database.connect()
        database.require_version(connection)
    except StoreError as away:
        yield Finding("database", "fault", away.message, away.fix)
        return
    with connection:
        version = connection.info.server_version
        yield Finding("database", "ok", f"{database.place}: PostgreSQL {version // 10000}.{version % 10000}")
        yield _latency(connection)
        yield _clock(connection)
        yield _pgvector(connection)
        rights = _rights(connection)
        yield rights
    if rights.state == "fault":
        return
    try:
        database.check()
        needed, there = database.schema()
        yield Finding("schema", "ok", f"schema {there} of {needed}")
        yield from _work(database)
    except StoreError as wrong:
        yield Finding("schema", "fault", wrong.message, wrong.fix)


def _objects(address: str) -> Finding:
    """Write, read and delete an object."""
    key, content = f"probe/{uuid.uuid4()}", b"lmagent cluster doctor"
    try:
        from lmagent.cluster.objects import ObjectStorage  # loads its library

        storage = ObjectStorage(address, patience=PATIENCE)
        began = time.perf_counter()
        storage.put(key, content)
        read = storage.get(key)
        storage.delete([key])
    except (ConfigError, StoreError) as wrong:
        return Finding("objects", "fault", wrong.message, wrong.fix)
    if read != content:
        text = f"{storage.name(key)} was written, and its content was not found when it was read"
        return Finding("objects", "fault", text, "use a storage that reads its own latest writes")
    took = (time.perf_counter() - began) * 1000
    return Finding("objects", "ok", f"{storage.address}: an object written, read and deleted in {took:.0f} ms")


def _latency(connection: Connection) -> Finding:
    times: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        connection.execute("SELECT 1")
        times.append((time.perf_counter() - began) * 1000)
    middle = sorted(times)[len(times) // 2]
    if middle < SLOW:
        return Finding("latency", "ok", f"{middle:.1f} ms for a round trip")
    text = f"{middle:.0f} ms for a round trip; each event of a session needs one"
    return Finding("latency", "warning", text, "run the workers near the database")


def _clock(connection: Connection) -> Finding:
    """Compare the clocks. Processes with sessions take the database's time; programs beside them do not."""
    before = time.time()
    answer = time_of(connection)
    difference = (before + time.time()) / 2 - answer
    if abs(difference) < SKEW:
        return Finding("clock", "ok", f"{difference:+.2f} s from the database's")
    text = f"this machine's clock is {difference:+.0f} s from the database's, whose time sessions and cron jobs have"
    return Finding("clock", "warning", text, "set the clocks by NTP")


def _pgvector(connection: Connection) -> Finding:
    query = "SELECT installed_version FROM pg_available_extensions WHERE name = 'vector'"
    (version,) = connection.execute(query).fetchone() or ("",)
    if version:
        return Finding("vector", "ok", f"version {version}: memories are found by meaning, by pgvector")
    how = "not installed on the server" if version == "" else "CREATE EXTENSION vector"
    return Finding("vector", "ok", f"absent, which nothing needs ({how})")


def _rights(connection: Connection) -> Finding:
    user, creates, has_schema, uses, writes, name = only_row(
        connection,
        "SELECT current_user, has_database_privilege(current_database(), 'CREATE'),"
        " to_regnamespace('lmagent') IS NOT NULL, coalesce(has_schema_privilege(to_regnamespace('lmagent'), 'USAGE'),"
        " false), coalesce((SELECT bool_and(has_table_privilege(oid, 'SELECT, INSERT, UPDATE, DELETE')) FROM pg_class"
        " WHERE relnamespace = to_regnamespace('lmagent') AND relkind = 'r'), true), current_database()",
    )
    if not has_schema and not creates:
        fix = f'as the owner of the database: GRANT CREATE ON DATABASE "{name}" TO "{user}"'
        return Finding("rights", "fault", f"{user} may not make the schema lmagent", fix)
    if has_schema and not (uses and writes):
        fix = (
            f'as the owner of the schema: GRANT USAGE ON SCHEMA lmagent TO "{user}";'
            f' GRANT ALL ON ALL TABLES IN SCHEMA lmagent TO "{user}";'
            f' GRANT ALL ON ALL SEQUENCES IN SCHEMA lmagent TO "{user}"'
        )
        return Finding("rights", "fault", f"{user} may not use the tables of lmagent", fix)
    return Finding("rights", "ok", f"{user} may {'use' if has_schema else 'make'} the tables")


def _work(database: Database) -> Iterator[Finding]:
    status = read_status(database)
    workers = [one for one in status.processes if one.kind == "worker" and one.alive]
    if workers:
        yield Finding("workers", "ok", plural(len(workers), "worker"))
    else:
        fix = "in the folder of a workspace: lmagent worker"
        yield Finding("workers", "warning", "no worker runs; jobs wait", fix)
    for workspace in status.workspaces:
        if workspace.fix:
            text = f"no worker mounts {workspace.name}; waiting: {plural(workspace.jobs, 'job')}"
            yield Finding("workspace", "warning", text, workspace.fix)
        elif workspace.resting:
            text = f"{workspace.name}: {plural(workspace.resting, 'job')} failed too often: {workspace.failure}"
            yield Finding("workspace", "warning", text, "lmagent cluster status")
