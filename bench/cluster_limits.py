"""What the database of a cluster takes: the costs from which `cluster_growth.py` computes where a cluster ends.

    python bench/cluster_limits.py [--quick] > limits.json

PostgreSQL runs on this machine with its usual durability. The clients are pgbench with lmagent's own statements, and
one process that holds idle connections. CPU is that of all of PostgreSQL's processes. Kinds that are compared take
turns, so that other work on the machine slows all of them; each figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psycopg
from cluster_work import cpu, database_pids
from testkit.postgres import PostgresServer, postgres

from lmagent.cluster import log, presence, source
from lmagent.cluster.database import Database, connection_options
from lmagent.cluster.listening import EVENTS

WRITERS = (1, 4, 16, 64)
LISTENERS = (0, 1, 100, 1000)
DEPTHS = (100, 10_000, 100_000)
KEPT = (100, 10_000)
TAKERS = 100
LINE = "x" * 800  # about the middle of a session's events
BENCH = "options=-csearch_path%3Dlmagent%2Cpublic"
TAKE = "SELECT * FROM job_take('bench', 1)"
TEND = "SELECT * FROM job_tend('bench', 2, '{}')"

Figures = dict[str, Any]


class Bench:
    """A server with two databases, and pgbench."""

    def __init__(self, server: PostgresServer, folder: Path, *, quick: bool) -> None:
        self.server, self.folder, self.quick = server, folder, quick
        self.seconds = 1 if quick else 3
        self.rounds = 1 if quick else 3
        for name in ("bench", "elsewhere"):
            server.psql(f"CREATE DATABASE {name}")
            made = Database(server.url(name))
            made.migrate()
            made.close()
        self.connection = psycopg.connect(server.url("bench"), **connection_options())
        self.sql(
            "INSERT INTO process (kind, name, version, workspaces, beat) SELECT 'worker', 'host:' || n, '0', '{bench}',"
            " 'infinity' FROM generate_series(1, 1000) n"
        )

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        done = self.connection.execute(statement.encode())
        return done.fetchall() if done.description else []

    def run(self, script: str, clients: int, *more: str) -> Figures:
        """Run a script by so many clients; return its rate, its times, and the database's CPU for each run of it."""
        file, logs = self.folder / "script.sql", self.folder / "times"
        file.write_text(script)
        command = [str(self.server.programs / "pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-f", str(file)]
        command += ["-l", "--log-prefix", str(logs), "-D", "seq=0", *(more or ("-T", str(self.seconds)))]
        others = len(database_pids(self.server))
        before = cpu(database_pids(self.server))
        begun = time.monotonic()
        done = subprocess.run(
            [*command, self.server.url("bench") + "?" + BENCH], capture_output=True, text=True, check=False
        )
        took = time.monotonic() - begun
        assert done.returncode == 0, done.stderr
        self._wait_for_ends(others)
        used = cpu(database_pids(self.server)) - before
        times = sorted(float(line.split()[2]) / 1000 for path in self._logs() for line in path.read_text().splitlines())
        for path in self._logs():
            path.unlink()
        rate = re.search(r"tps = ([\d.]+)", done.stdout)
        if rate is None:  # the disk was busy for longer than the run
            return self.run(script, clients, *more)
        return {
            "per_s": float(rate[1]),
            "ms": median(times),
            "ms_95": quantiles(times, n=20)[18] if len(times) > 1 else times[0],
            "cpu_ms": used * 1000 / len(times),
            "cores": used / took,
        }

    def _wait_for_ends(self, others: int) -> None:
        """Wait until the processes of pgbench's connections have ended: their CPU is then their parent's."""
        end = time.monotonic() + 2
        while len(database_pids(self.server)) > others and time.monotonic() < end:
            time.sleep(0.05)

    def _logs(self) -> list[Path]:
        return list(self.folder.glob("times.*"))

    def in_turns(self, kinds: dict[str, Callable[[], Figures]]) -> Figures:
        """Return the medians of the figures of each kind."""
        found: dict[str, list[Figures]] = {name: [] for name in kinds}
        for _ in range(self.rounds):
            for name, measure in kinds.items():
                found[name].append(measure())
        return {
            name: {key: rounded(median(one[key] for one in figures)) for key in figures[0]}
            for name, figures in found.items()
        }


def rounded(value: float) -> float:
    return float(f"{value:.3g}")


# --- events -----------------------------------------------------------------------------------------------------------


def events(bench: Bench, writers: int, *, watched: bool) -> Figures:
    """Append events to a session of each writer, as a worker does it."""
    bench.sql("TRUNCATE session, event, blob RESTART IDENTITY")
    until = "infinity" if watched else "-infinity"
    bench.sql(
        f"INSERT INTO session (workspace, id, owner, watched) SELECT 'bench', 's' || n, 1, '{until}'"
        f" FROM generate_series(1, {writers}) n"
    )
    values = {"seq": ":seq::bigint", "number": "(:client_id + 1)", "epoch": "1", "owner": "1"}
    values |= {"id": "'20260101-120000-abcdef'", "workspace": "'bench'"}
    statement = log._APPEND.replace("%(line)b", f"'{LINE}'::bytea") % values  # pyright: ignore[reportPrivateUsage]
    return bench.run(f"\\set seq :seq + 1\n{' '.join(statement.split())};\n", writers)


def all_events(bench: Bench) -> Figures:
    return {
        str(writers): bench.in_turns(
            {
                "unwatched": lambda writers=writers: events(bench, writers, watched=False),
                "watched": lambda writers=writers: events(bench, writers, watched=True),
            }
        )
        for writers in (WRITERS[::2] if bench.quick else WRITERS)
    }


@contextmanager
def listeners(bench: Bench, count: int, channel: str, database: str) -> Iterator[None]:
    """Hold so many connections that listen; a thread reads what they receive and drops it."""
    with ExitStack() as stack:
        ready = selectors.DefaultSelector()
        for _ in range(count):
            one = stack.enter_context(psycopg.connect(bench.server.url(database), autocommit=True))
            one.execute(f'LISTEN "{channel}"'.encode())
            ready.register(one.fileno(), selectors.EVENT_READ)
        ends = threading.Event()

        def drop() -> None:
            while not ends.is_set():
                for key, _ in ready.select(0.1):
                    os.read(key.fd, 65536)

        thread = threading.Thread(target=drop)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
            ready.close()


def all_listeners(bench: Bench) -> Figures:
    """Return what each event costs with listeners: of its channel, of another one, and of another database."""
    found: Figures = {}
    places = {"same channel": (EVENTS, "bench"), "other channel": ("other", "bench")}
    places["other database"] = (EVENTS, "elsewhere")
    for count in LISTENERS[::2] if bench.quick else LISTENERS:
        found[str(count)] = {}
        for place, (channel, database) in places.items() if count else [("none", (EVENTS, "bench"))]:
            with listeners(bench, count, channel, database):
                kinds = {"watched": lambda: events(bench, 4, watched=True)}
                kinds["unwatched"] = lambda: events(bench, 4, watched=False)
                found[str(count)][place] = bench.in_turns(kinds)
    return found


# --- polls ------------------------------------------------------------------------------------------------------------


def heartbeats(bench: Bench) -> Figures:
    """Return the cost of the heartbeats of 1,000 processes, on a few connections."""
    rate = 1000 / presence.BEAT
    beat = "UPDATE process SET beat = greatest(beat, clock_timestamp()) WHERE id = :id RETURNING draining;"
    script = f"\\set id random(1, 1000)\n{beat}\n"
    return bench.in_turns({"1000": lambda: bench.run(script, 8, "-R", f"{rate:g}", "-T", str(bench.seconds))})["1000"]


def fill(bench: Bench, depth: int) -> None:
    """Put so many jobs of as many lanes into the queue."""
    bench.sql("TRUNCATE job, procrastinate_jobs RESTART IDENTITY CASCADE")
    each = f"FROM generate_series(1, {depth}) n"
    bench.sql(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args) SELECT 'bench', 'lmagent', 'bench/s' || n,"
        f" jsonb_build_object('job', 'inbox:' || n) {each}"
    )
    bench.sql(
        "INSERT INTO job (workspace, id, lane, run_at, state, queued)"
        f" SELECT 'bench', 'inbox:' || n, 's' || n, now(), 'queued', n {each}"
    )
    bench.sql("VACUUM ANALYZE job, procrastinate_jobs")
    bench.sql("CHECKPOINT")


def queue(bench: Bench) -> Figures:
    """Return the times of `job_take` by one and by many takers, and of `job_tend`, by the length of the queue.

    A job that was taken is put back by taking the transaction back, so that the length stays. The commit is not in it.
    """
    found: Figures = {}
    take = f"BEGIN;\n{TAKE};\nROLLBACK;"
    many = ("-t", "2" if bench.quick else "20")  # a new connection's first take needs more CPU than the others
    for depth in (0, *(DEPTHS[1:2] if bench.quick else DEPTHS)):
        fill(bench, depth)
        kinds = {
            "take, 1 takers": lambda: bench.run(take, 1),
            f"take, {TAKERS} takers": lambda: bench.run(take, TAKERS, *many),
        }
        found[str(depth)] = bench.in_turns({**kinds, "tend": lambda: bench.run(f"{TEND};", 1)})
    return found


def jobs(bench: Bench) -> Figures:
    """Return the cost of a job in the queue: it is submitted, and then taken and ended in one transaction."""
    fill(bench, 0)
    submit = "SELECT job_submit('bench', 'inbox:' || :client_id || ' ' || :seq, 's' || :client_id, 0, 0);"
    end = "SELECT job_end('bench', id, run) FROM job_take('bench', 1);"
    return bench.in_turns({"1": lambda: bench.run(f"\\set seq :seq + 1\n{submit}\n{end}\n", 1)})["1"]


def lists(bench: Bench) -> Figures:
    """Return the cost of a look at the sessions of a workspace, by how many it keeps."""
    found: Figures = {}
    query = source._LOGS.replace("%s", "'bench'")  # pyright: ignore[reportPrivateUsage]
    for kept in KEPT:
        bench.sql("TRUNCATE session, event, blob RESTART IDENTITY")
        bench.sql(f"INSERT INTO session (workspace, id) SELECT 'bench', 's' || n FROM generate_series(1, {kept}) n")
        bench.sql("VACUUM ANALYZE session")
        found[str(kept)] = bench.in_turns({"look": lambda: bench.run(f"{query};", 1)})["look"]
    return found


# --- connections ------------------------------------------------------------------------------------------------------


def memory(bench: Bench) -> Figures:
    """Return the private memory of a connection in the server, in MB: idle, and after it has done a worker's work."""
    count = 10 if bench.quick else 30
    with ExitStack() as stack:
        before = private(bench.server)
        opened = [
            stack.enter_context(psycopg.connect(bench.server.url("bench"), **connection_options()))
            for _ in range(count)
        ]
        idle = private(bench.server)
        for one in opened:
            for statement in (TAKE, TEND, source._LOGS.replace("%s", "'bench'")):  # pyright: ignore[reportPrivateUsage]
                for _ in range(6):  # a statement is prepared from its fifth run on
                    one.execute(statement.encode()).fetchall()
        used = private(bench.server)
    return {"idle_mb": rounded((idle - before) / count), "used_mb": rounded((used - before) / count)}


def private(server: PostgresServer) -> float:
    """Return the memory that the server's processes share with no other, in MB."""
    total = 0
    for pid in database_pids(server):
        with suppress(OSError):  # it has just ended
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += sum(int(size) for size in re.findall(r"Private_\w+: +(\d+)", rollup))
    return total / 1024


PARTS: dict[str, Callable[[Bench], Figures]] = {
    "events": all_events,
    "listeners": all_listeners,
    "heartbeats_of_1000": heartbeats,
    "queue": queue,
    "job": jobs,
    "look_at_sessions": lists,
    "connection": memory,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of each, about 40 s")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be given several times")
    given = parser.parse_args(arguments)
    options = ("-c", "fsync=on", "-c", "max_connections=1200")
    with postgres(*options) as server, tempfile.TemporaryDirectory() as folder:
        bench = Bench(server, Path(folder), quick=given.quick)
        figures: Figures = {}
        for name in given.only or PARTS:
            load, begun = os.getloadavg()[0], time.monotonic()
            figures[name] = PARTS[name](bench)
            print(f"{name}: {time.monotonic() - begun:.0f} s, load before {load:.1f}", file=sys.stderr)
        bench.connection.close()
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
