"""The database of a cluster: connections, its schema, and errors that say what to do.

Everything of lmagent is in the schema `lmagent`, the tables of Procrastinate too.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, LiteralString, TypeVar

from lmagent.core.errors import ConfigError, StoreError

try:
    import psycopg
    from psycopg import conninfo, errors
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as missing:
    raise ConfigError(
        "cluster_url is set, and the libraries for PostgreSQL are missing",
        fix="pip install 'lmagent-local[cluster]', or unset cluster_url",
    ) from missing

T = TypeVar("T")
Connection = psycopg.Connection
DatabaseError = psycopg.Error
Query = LiteralString | bytes
Values = Sequence[object] | Mapping[str, object]

SCHEMA = "lmagent"
OLDEST = 130000  # server_version_num of PostgreSQL 13, the oldest that Procrastinate supports
CONNECT = 5  # seconds for which a connection attempt may take
PATIENCE = 30.0  # seconds for which a lost database is waited for, as long as a restart takes
FIRST = 3.0  # the same before the first success: the address or the password may be wrong
PAUSE = 0.2  # seconds between two attempts
CONNECTIONS = 8  # of a process, at most
SURE = 0.5  # seconds within which the database's answer tells its time
STEP = 1.0  # seconds by which the clocks differ before this matters

_MIGRATIONS = "lmagent.cluster.migrations"
_LOCK = 0x1A6E57  # key of the advisory lock under which the schema is changed
# The pool logs each lost connection; a lost database is reported by the errors of `Database`.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

_LOST = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)
_STEP = re.compile(r"(\d{3})_\w+\.sql")


class Database:
    """Connections to the cluster's database, for all threads of this process. The first use connects.

    Args:
        url: a connection URI or string of libpq.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.place = _place(url)
        self._pool = ConnectionPool(
            url,
            kwargs=connection_options(),
            min_size=0,
            max_size=CONNECTIONS,
            open=False,
            timeout=CONNECT + 1,
            reconnect_timeout=1,
            max_idle=60,
        )
        self._is_checked = False
        self.ahead = 0.0
        """Seconds by which the database's clock is ahead of this machine's; 0 below `STEP`."""

    def run(self, work: Callable[[Connection], T], *, patience: float = PATIENCE) -> T:
        """Return the result of `work`. Each of its statements commits by itself, unless it opens a transaction.

        If the connection is lost, `work` is called again for so many seconds, also after a commit whose answer was
        lost: it must be repeatable.

        Raises StoreError: the database cannot be reached, has no schema for this version, or refuses the work.
        """
        until = time.monotonic() + (patience if self._is_checked else min(patience, FIRST))
        while True:
            try:
                self.check(patience=0)
                self._pool.open()
                with self._pool.connection() as connection:
                    return work(connection)
            except _LOST as lost:
                if time.monotonic() >= until and self._is_lost():
                    raise self._unreachable(lost) from lost
            except psycopg.Error as refused:
                raise self._refused(refused) from refused
            time.sleep(PAUSE)

    def rows(self, query: Query, values: Values = (), *, patience: float = PATIENCE) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, which `run` carries out."""
        return self.run(lambda connection: connection.execute(query, values).fetchall(), patience=patience)

    def _is_lost(self) -> bool:
        """Whether the database is away, and not only connections of the pool, which are then replaced."""
        try:
            self.connect(patience=0).close()
            self._pool.check()
        except (StoreError, psycopg.Error):
            return True
        return False

    def check(self, *, patience: float = FIRST) -> None:
        """Check that the database can be used, once. Raise StoreError if not, with the command that mends it."""
        if self._is_checked:
            return
        steps, found = self.schema(patience=patience)
        if found < steps:
            what = "has no tables of lmagent" if found == 0 else f"has schema {found}, and this version needs {steps}"
            raise StoreError(f"the database {self.place} {what}", fix="lmagent cluster init")
        if found > steps:
            text = f"the database {self.place} has schema {found}, and this version knows {steps}"
            raise StoreError(text, fix="update lmagent on this machine")
        self._is_checked = True

    def schema(self, *, patience: float = FIRST) -> tuple[int, int]:
        """Return the schema that this version needs, and the database's; 0 for none. Raise StoreError or psycopg's."""
        with self.connect(patience=patience) as connection:
            self.require_version(connection)
            asked = time.time()
            self.compare_clocks(asked, time_of(connection))
            try:
                return max(migrations()), _version(connection)
            except errors.InsufficientPrivilege as refused:
                raise self._refused(refused) from refused

    def require_version(self, connection: Connection) -> None:
        """Raise StoreError if the server is too old."""
        version = connection.info.server_version
        if version < OLDEST:
            text = f"the database {self.place} is PostgreSQL {version // 10000}; lmagent needs 13 or newer"
            raise StoreError(text, fix="give the address of a newer server in cluster_url")

    def compare_clocks(self, asked: float, answer: float) -> None:
        """Note the database's time, for which this process has just `asked`, both in Unix seconds."""
        now = time.time()
        ahead = answer - (asked + now) / 2
        if now - asked < SURE and abs(ahead - self.ahead) >= STEP:
            self.ahead = ahead

    def connect(self, *, patience: float = FIRST) -> Connection:
        """Return a connection outside the pool, which commits each statement."""
        until = time.monotonic() + patience
        while True:
            try:
                return psycopg.connect(self.url, **connection_options())
            except _LOST as lost:
                if time.monotonic() >= until:
                    raise self._unreachable(lost) from lost
            time.sleep(PAUSE)

    def repeat(self, work: Callable[[Connection], object], pause: float, ends: threading.Event) -> None:
        """Call `work` every `pause` seconds until `ends` is set, also after failures.

        It has a connection of its own: those of the pool may all be busy.
        """
        connection: Connection | None = None
        while not ends.wait(pause):
            try:
                connection = connection or self.connect(patience=0)
                work(connection)
            except (StoreError, psycopg.Error):
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def migrate(self) -> list[int]:
        """Bring the schema up to date; return the numbers of the steps taken. Several processes may do it at once.

        Raises StoreError: the server is too old, or the user may not do it.
        """
        taken: list[int] = []
        try:
            with self.connect() as connection, connection.transaction():
                self.require_version(connection)
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
                for number, file in migrations().items():
                    if number > _version(connection):
                        connection.execute(file.read_bytes())
                        connection.execute("INSERT INTO migration (number) VALUES (%s)", (number,))
                        taken.append(number)
        except psycopg.Error as refused:
            raise self._refused(refused) from refused
        self._is_checked = False
        return taken

    def close(self) -> None:
        self._pool.close()

    def _unreachable(self, lost: Exception) -> StoreError:
        reason = str(lost).strip().splitlines()[-1:] or [type(lost).__name__]
        return StoreError(
            f"the database {self.place} cannot be reached: {reason[0]}",
            fix="start PostgreSQL, or correct cluster_url: lmagent cluster doctor",
        )

    def _refused(self, refused: psycopg.Error) -> StoreError:
        reason = (refused.diag.message_primary or str(refused)).strip()
        if isinstance(refused, errors.InsufficientPrivilege):
            user = conninfo.conninfo_to_dict(self.url).get("user", "the user of cluster_url")
            fix = f"as its owner: GRANT CREATE ON DATABASE … TO {user}; then lmagent cluster init"
            if "for database" not in reason:
                fix = "see the GRANT that is missing: lmagent cluster doctor"
            return StoreError(f"{user} lacks rights in the database {self.place}: {reason}", fix=fix)
        if isinstance(refused, errors.UndefinedTable | errors.UndefinedColumn | errors.InvalidSchemaName):
            return StoreError(f"the database {self.place} has an older schema: {reason}", fix="lmagent cluster init")
        if isinstance(refused, errors.ReadOnlySqlTransaction):
            return StoreError(
                f"the database {self.place} is read-only", fix="give the address of the primary in cluster_url"
            )
        return StoreError(f"the database {self.place} refused: {reason}", fix="lmagent cluster doctor")


def only_row(connection: Connection, query: Query, values: Values = ()) -> tuple[Any, ...]:
    """Return the row of a statement that always has one."""
    row = connection.execute(query, values).fetchone()
    assert row is not None
    return row


def time_of(connection: Connection) -> float:
    """Return the database's time, in Unix seconds."""
    return float(only_row(connection, "SELECT extract(epoch FROM clock_timestamp())::float8")[0])


def connection_options() -> dict[str, Any]:
    """Return the options of each connection: it notices a dead server within seconds, not within hours."""
    return {
        "autocommit": True,
        "connect_timeout": CONNECT,
        "options": f"-c search_path={SCHEMA},public -c client_min_messages=warning",
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    }


def migrations() -> dict[int, Path]:
    """Return the SQL files that make the schema, by number, in order.

    Step 4 is the schema of Procrastinate, whose minor version is fixed; see the package of the migrations.
    """
    folder = Path(import_module(_MIGRATIONS).__path__[0])
    found = {int(match[1]): file for file in folder.iterdir() if (match := _STEP.fullmatch(file.name))}
    if (library := find_spec("procrastinate")) is not None and library.submodule_search_locations:
        found[4] = Path(library.submodule_search_locations[0]) / "sql" / "schema.sql"
    return dict(sorted(found.items()))


def _version(connection: Connection) -> int:
    try:
        with connection.transaction():
            return int(only_row(connection, f"SELECT max(number) FROM {SCHEMA}.migration".encode())[0] or 0)
    except errors.UndefinedTable:
        return 0


def _place(url: str) -> str:
    """Return the address without its password."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.Error as wrong:
        raise ConfigError(
            f"cluster_url cannot be read: {str(wrong).strip()}", fix="postgresql://user:password@host:5432/database"
        ) from None
    name, host, port = (str(parts.get(key) or "") for key in ("dbname", "host", "port"))
    return f"{name or 'postgres'} at {host or 'this machine'}" + (f":{port}" if port else "")
