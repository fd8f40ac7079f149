"""Cluster: queued sessions on three workers, the database's share, and the cost of a step against one process's files.

python bench/cluster_work.py [--sessions 60] [--alone 10]

The server is scripted and in a process of its own. All tasks are in the inbox before the workers start; throughput
counts from the first event to the end of the last job. The database's share is the CPU time of PostgreSQL's processes
in that of all. Each log is checked afterwards: events numbered without a gap, each step once and in order, one end. The
cost of a step is the time between the ends of two model calls of a session that runs alone, by the times in the log: in
a worker of one lane, and in `lmagent scheduler` with files.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "cluster")]

import psycopg  # noqa: E402
from cluster_workers_kit import STEPS, Workers  # noqa: E402  # pyright: ignore[reportMissingImports]
from testkit.postgres import PostgresServer, postgres  # noqa: E402

WORKERS, LANES = 3, 8
SERVER = """
import sys
from lmagent.testing import ScriptedServer
from lmagent.testing.prefix import PrefixMeter
from lmagent.testing.script import call, say
def forget(_received):  # else it keeps each prompt
    server.requests.clear()
    server.chats.clear()
    server.prefix = PrefixMeter()
def answer(received):
    results = sum(message["role"] == "tool" for message in received.body["messages"])
    return say("Done.") if results >= int(sys.argv[1]) else call("read", path="note.txt")
with ScriptedServer(answer, finished=forget) as server:
    print(server.base_url, flush=True)
    sys.stdin.read()
"""


def cpu(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes and of their ended children."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def database_pids(server: PostgresServer) -> list[int]:
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [server.pid, *map(int, children)]


def step_times(logs: Iterable[list[dict[str, Any]]]) -> list[float]:
    """Return the milliseconds between the answers of a model in one turn."""
    found: list[float] = []
    for events in logs:
        times = [
            event["ts"] for event in events if event["type"] == "message.added" and event["message"]["role"] != "user"
        ]
        found += [(later - sooner) * 1000 for sooner, later in pairwise(times)]
    return found


def queued(folder: Path, model: Any, sessions: int) -> None:
    with postgres("-c", "fsync=on") as server:  # tests have it off
        made = Workers(folder, server, model, count=0, lanes=LANES)
        (made.workspace / "note.txt").write_text("a note\n")
        made.submit(sessions)
        made.start(WORKERS)
        made.until(lambda: bool(made.sql("SELECT 1 FROM event LIMIT 1")), "no session begins")
        began, before = time.monotonic(), cpu(database_pids(server))
        own = [process.pid for process in made.processes]
        own_before = cpu(own)
        connections = until_done(made, sessions)
        took = time.monotonic() - began
        of_database, of_workers = cpu(database_pids(server)) - before, cpu(own) - own_before
        commits = made.sql("SELECT sum(xact_commit) FROM pg_stat_database")[0][0]
        memory = max(peak_mb(pid) for pid in own)
        events = [assert_in_order(log) for log in logs(made.url)]
        assert len(events) == sessions
        made.stop()
    steps = sessions * STEPS
    print(f"{sessions} sessions of {STEPS} steps, {WORKERS} workers of {LANES} lanes: {took:.1f} s")
    print(f"  all ended, in order, no event lost or doubled; {sum(events) / sessions:.1f} events a session")
    print(f"  {sessions / took:.1f} sessions/s, {steps / took:.1f} steps/s")
    print(f"  CPU: workers {of_workers:.1f} s, database {of_database:.1f} s", end="")
    print(f" ({of_database / (of_database + of_workers):.0%}); {commits / sessions:.0f} transactions a session")
    print(f"  at most {connections} connections; a worker's peak memory {memory:.0f} MB; this program's ", end="")
    print(f"{peak_mb(os.getpid()):.0f} MB")


def until_done(made: Workers, sessions: int) -> int:
    """Wait until the jobs of all sessions are done; return the largest number of the workers' connections."""
    end, most = time.monotonic() + 2 * 3600, 0
    with psycopg.connect(made.url, options="-c search_path=lmagent", autocommit=True) as connection:
        while True:
            row = connection.execute(
                "SELECT (SELECT count(*) FROM job WHERE state = 'done'),"
                " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') - 1"
            ).fetchone()
            assert row is not None
            done, most = row[0], max(most, row[1])
            if done >= sessions:
                return most
            assert time.monotonic() < end, f"the sessions do not end\n{made.log.read_text()[-4000:]}"
            time.sleep(1)


def logs(url: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the events of each session, one session at a time: all of them may be larger than the memory."""
    query = "SELECT session, line FROM lmagent.event ORDER BY session, seq"
    with psycopg.connect(url) as connection, connection.cursor("lines", binary=True) as lines:
        lines.execute(query)
        for _, rows in groupby(lines, key=lambda row: row[0]):
            yield [json.loads(bytes(line)) for _, line in rows]


def assert_in_order(events: list[dict[str, Any]]) -> int:
    """Check a log: no gap, each step once and in order, one end; return how many events it has."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    calls = [event["call_id"] for event in events if event["type"] == "tool.started"]
    assert [event["call_id"] for event in events if event["type"] == "tool.finished"] == calls
    assert len(set(calls)) == len(calls) == STEPS
    assert [event["outcome"] for event in events if event["type"] == "turn.finished"] == ["done"]
    return len(events)


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has had, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def alone(folder: Path, model: Any, sessions: int) -> None:
    with postgres("-c", "fsync=on") as server:  # tests have it off
        made = Workers(folder, server, model, count=0, lanes=1)
        (made.workspace / "note.txt").write_text("a note\n")
        made.submit(sessions)
        made.start(1)
        made.until_all_ended(600)
        cluster = step_times(made.logs().values())
        made.stop()
        made.env.pop("LMAGENT_CLUSTER_URL")
        made.submit(sessions)
        command = [sys.executable, "-m", "lmagent", "scheduler"]
        env = {**made.env, "SCHEDULER_LANES": "1"}
        with subprocess.Popen(command, env=env, cwd=made.workspace, stdout=subprocess.DEVNULL) as scheduler:
            folders = made.workspace / ".lmagent" / "sessions"
            made.until(lambda: _ended(folders) >= sessions, "the sessions with files do not end", 600)
            scheduler.terminate()
        logs = [_events(log) for log in folders.glob("*/events.jsonl")]
    embedded = step_times(logs)
    middle, files = statistics.median(cluster), statistics.median(embedded)
    print(f"a step alone: cluster {middle:.1f} ms, files {files:.1f} ms: {middle - files:+.1f} ms (median)")


def _events(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_bytes().splitlines()]


def _ended(folders: Path) -> int:
    return sum(b'"turn.finished"' in log.read_bytes() for log in folders.glob("*/events.jsonl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--alone", type=int, default=10)
    given = parser.parse_args()
    command = [sys.executable, "-c", SERVER, str(STEPS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        model = SimpleNamespace(base_url=server.stdout.readline().strip())
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        print(f"load before: {load}; {os.cpu_count()} cores")
        for work, count in ((queued, given.sessions), (alone, given.alone)):
            with tempfile.TemporaryDirectory() as folder:
                work(Path(folder), model, count)
        server.stdin.close()


if __name__ == "__main__":
    main()
