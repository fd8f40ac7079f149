"""PostgreSQL for tests: a server of this process's own, from Debian's packages, and an empty database for each test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

USER = "lmagent"


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs; None if it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


class PostgresServer:
    """A server on loopback and on a socket in its folder. As root, it runs as the user `postgres`."""

    def __init__(self, folder: Path, options: Sequence[str] = (), found: Path | None = None) -> None:
        found = found or programs()
        if found is None:
            pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
        self.programs, self.folder = found, folder
        self.data = folder / "data"
        self.port = _free_port()
        self._options = options
        self._as: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        self._call("initdb", "-D", str(self.data), "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8", "--locale=C")
        self._process: subprocess.Popen[Any] | None = None
        self.start()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        given = ["-k", str(self.folder), "-p", str(self.port), "-h", "127.0.0.1", "-F", "-c", "max_connections=300"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.data), *given, *self._options],
                stdout=log,
                stderr=log,
                **self._as,
            )
        end = time.monotonic() + 60
        while subprocess.run(
            [str(self.programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"], check=False
        ).returncode:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < end, "PostgreSQL does not start"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        """End the server: SIGINT closes its connections, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def psql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement; return its rows as text."""
        command = (str(self.programs / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement)
        done = subprocess.run((*command, self.url(database)), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _call(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            capture_output=True,
            check=False,
            **self._as,
        )
        assert done.returncode == 0, done.stderr.decode()


@contextmanager
def postgres(*options: str, vectors: bool = False) -> Iterator[PostgresServer]:
    """Start a server of its own, for tests that stop or restart it; with `vectors`, one that has pgvector."""
    folder, found = Path(tempfile.mkdtemp(prefix="lmagent-postgres-")), None
    if vectors:
        installed = find_spec("pgserver")
        if installed is None or installed.origin is None:
            pytest.skip("pgserver is not installed, which brings pgvector")
        # A copy: the user `postgres` may not be able to read this environment.
        package = Path(installed.origin).parent
        for part in (package / "pginstall", package.parent / "pgserver.libs"):
            shutil.copytree(part, folder / "copy" / part.relative_to(package.parent))
        folder.chmod(0o755)
        found = folder / "copy" / "pgserver" / "pginstall" / "bin"
    server = PostgresServer(folder, options, found)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@cache
def shared_server() -> PostgresServer:
    """Return the server of this test process; it ends with the process."""
    import atexit

    context = postgres()
    server = context.__enter__()
    atexit.register(context.__exit__, None, None, None)
    return server


@contextmanager
def database(*, schema: bool = True) -> Iterator[str]:
    """Yield the URL of an empty database, with lmagent's tables unless `schema` is false."""
    server = shared_server()
    name = f"t{time.monotonic_ns()}"
    server.psql(f"CREATE DATABASE {name} TEMPLATE {_template() if schema else 'template0'}")
    try:
        yield server.url(name)
    finally:
        server.psql(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def stranger(url: str) -> Iterator[str]:
    """Yield the URL of the same database for the user `stranger`, who has no rights in it."""
    server, name = shared_server(), url.rpartition("/")[2]
    server.psql("DROP ROLE IF EXISTS stranger")
    server.psql("CREATE ROLE stranger LOGIN")
    try:
        yield url.replace(f"{USER}@", "stranger@")
    finally:
        server.psql("DROP ROLE stranger", name)


@cache
def _template() -> str:
    """Return the name of a database with lmagent's tables: a copy of it is made faster than the tables are."""
    from lmagent.cluster.database import Database

    server = shared_server()
    server.psql("CREATE DATABASE made TEMPLATE template0")
    made = Database(server.url("made"))
    made.migrate()
    made.close()
    return "made"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
