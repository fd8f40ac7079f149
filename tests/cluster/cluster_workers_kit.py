"""Workers of a cluster as processes, on a database that can be cut and restarted, with a scripted model over HTTP."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from testkit.postgres import PostgresServer, postgres

from lmagent.cluster.database import Database
from lmagent.config.trust import trust
from lmagent.schedule.inbox import Inbox
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, call, say, slow

STEPS = 4
WORKSPACE = "project"
OURS = ("LLM", "LM_", "XDG", "AGENT")
AWAY = (psycopg.OperationalError, psycopg.InterfaceError)


def stamping(seconds: float) -> Callable[[Received], Reply]:
    """Return a model that takes `STEPS` steps for a task; each appends its own line to a file.

    A message with "WAIT: …" is answered by that; when the session was woken, it is done.
    """

    def answer(received: Received) -> Reply:
        messages = received.fields["messages"]
        waits = re.search(r"WAIT: .*", str(messages[-1]["content"]))
        if waits is not None and "You waited" not in waits[0]:
            return say(waits[0])
        names = [found for message in messages if (found := re.search(r"stamp (\w+)", str(message["content"])))]
        done = sum(message["role"] == "tool" for message in messages)
        if done >= STEPS or not names:
            return slow(say("done"), first=seconds)
        return slow(call("shell", command=f"echo {names[0][1]}-{done} >> stamps"), first=seconds)

    return answer


SHIFTED = "import time; real = time.time; time.time = lambda: real() + ({}); from lmagent.cli.main import main; main()"
"""A program whose machine has another time."""


class Workers:
    """Worker processes for one workspace, unless `start` gets others."""

    def __init__(
        self,
        folder: Path,
        server: PostgresServer,
        model: ScriptedServer,
        *,
        count: int,
        lanes: int,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.server = server
        self.url = server.url()
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        known = Database(self.url)
        known.migrate()
        known.close()
        trust(folder / "data", self.workspace)
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        self.env |= {"HOME": str(folder), "AGENT_DATA_DIR": str(folder / "data"), "LMAGENT_CLUSTER_URL": self.url}
        self.env |= {"LLM_URL": model.base_url, "LLM_MODEL": "scripted", "LLM_RETRY_DELAY": "0", "SANDBOX": "off"}
        self.env |= {"PERMISSION_MODE": "auto", "SCHEDULER_POLL_INTERVAL": "0.5", "ENABLE_MEMORY": "false"}
        self.env |= more or {}
        self.log = folder / "workers.log"
        self._arguments = ["--lanes", str(lanes), "--grace", "5"]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.submitted = 0
        self.start(count)

    def start(self, count: int, labels: Mapping[str, Path] | None = None, *, shift: float = 0.0) -> None:
        """Start workers for the workspaces; their clocks are `shift` seconds ahead of this machine's."""
        self.processes += [self._started(labels, shift) for _ in range(count)]

    def folder_of(self, workspace: str) -> Path:
        """Return the new folder of a further workspace."""
        path = self.folder / workspace
        path.mkdir()
        trust(self.folder / "data", path)
        return path

    def _started(self, labels: Mapping[str, Path] | None = None, shift: float = 0.0) -> subprocess.Popen[bytes]:
        program = ["-c", SHIFTED.format(shift)] if shift else ["-m", "lmagent"]
        named = (labels or {WORKSPACE: self.workspace}).items()
        mounts = [word for name, path in named for word in ("--label", f"{name}={path}")]
        command = [sys.executable, *program, "worker", *mounts, *self._arguments]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=self.env, cwd=self.workspace, stdout=log, stderr=log)

    def lmagent(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lmagent", *arguments]
        return subprocess.run(command, env=self.env, cwd=self.workspace, capture_output=True, text=True, check=False)

    def submit(self, count: int, workspace: Path | None = None, task: str = "") -> None:
        for _ in range(count):
            text = task or f"stamp s{self.submitted}"
            Inbox((workspace or self.workspace) / ".lmagent").submit(text, time.time())
            self.submitted += 1

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query; wait for a database that is away."""
        end = time.monotonic() + 60
        while True:
            try:
                with psycopg.connect(self.url, options="-c search_path=lmagent", autocommit=True) as connection:
                    return connection.execute(query.encode()).fetchall()
            except AWAY:
                assert time.monotonic() < end
                time.sleep(0.2)

    def until(self, holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"{what}\n{self.log.read_text()[-4000:]}"
            time.sleep(0.1)

    def until_joined(self) -> None:
        count = len(self.processes)
        alive = "SELECT count(*) FROM process WHERE is_alive(beat)"
        self.until(lambda: self.sql(alive)[0][0] >= count, "the workers do not start")

    # --- faults -----------------------------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """Kill a worker, and start another in its place."""
        self.processes[number].kill()
        self.processes[number].wait(30)
        self.processes[number] = self._started()

    def pause(self, number: int, seconds: float) -> None:
        self.processes[number].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.processes[number].send_signal(signal.SIGCONT)

    def cut(self, share: float) -> None:
        """Cut a share of the connections to the database."""
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < {share}"
        )

    def restart(self, *, crash: bool) -> None:
        self.server.stop(signal.SIGQUIT if crash else signal.SIGINT)
        self.server.start()

    def fault(self, chance: random.Random) -> str:
        """Do something bad to a worker or to the database; return its name."""
        number = chance.randrange(len(self.processes))
        name = chance.choices(("kill", "pause", "cut", "restart"), (4, 2, 3, 1))[0]
        match name:
            case "kill":
                self.kill(number)
            case "pause":
                self.pause(number, chance.choice((0.3, 2.0, 8.5)))
            case "cut":
                self.cut(chance.choice((0.3, 1.0)))
            case _:
                self.restart(crash=chance.random() < 0.5)
        return name

    # --- what came of it --------------------------------------------------------------------------------------------

    def finished(self) -> int:
        query = "SELECT count(*) FROM event WHERE convert_from(line, 'UTF8') LIKE '%\"type\":\"turn.finished\"%'"
        return int(self.sql(query)[0][0])

    def until_all_ended(self, seconds: float = 180) -> None:
        self.until(lambda: self.finished() >= self.submitted, "the sessions do not end", seconds)
        left = "SELECT count(*) FROM job WHERE state <> 'done'"
        self.until(lambda: self.sql(left)[0][0] == 0, "jobs are left", 60)

    def logs(self) -> dict[str, list[dict[str, Any]]]:
        rows = self.sql("SELECT id, event.seq, line FROM session JOIN event ON event.session = number ORDER BY 1, 2")
        logs: dict[str, list[dict[str, Any]]] = {}
        for id, seq, line in rows:
            event = json.loads(bytes(line))
            assert event["seq"] == seq
            logs.setdefault(id, []).append(event)
        return logs

    def assert_done_once(self) -> int:
        """Check the logs and the file; return how many calls were cut off."""
        stamps = (self.workspace / "stamps").read_text().split()
        counts, place = Counter(stamps), {stamp: at for at, stamp in enumerate(stamps)}
        assert max(counts.values()) == 1, counts.most_common(3)
        logs = self.logs()
        assert len(logs) == self.submitted
        assert dict(self.sql("SELECT id, seq FROM session")) == {id: len(events) for id, events in logs.items()}
        return sum(_assert_session(events, place) for events in logs.values())

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)


def _assert_session(events: list[dict[str, Any]], place: dict[str, int]) -> int:
    """Check one log: no event is missing, each call was begun and ended at most once, and the file has its lines."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    kinds = Counter(event["type"] for event in events)
    assert (kinds["session.created"], kinds["input.received"], kinds["turn.finished"]) == (1, 1, 1), kinds
    ends = [event for event in events if event["type"] == "tool.finished"]
    begun = Counter(event["call_id"] for event in events if event["type"] == "tool.started")
    assert not begun or max(begun.values()) == 1
    assert len({event["call_id"] for event in ends}) == len(ends) == STEPS
    assert [event["outcome"] for event in events if event["type"] == "turn.finished"] == ["done"]
    task = next(event for event in events if event["type"] == "input.received")
    found = re.search(r"stamp (\w+)", json.dumps(task["message"]))
    assert found is not None
    stamps = [f"{found[1]}-{number}" for number in range(STEPS)]
    places = [place[stamp] for stamp in stamps if stamp in place]
    assert places == sorted(places)
    assert all(stamp in place for stamp, end in zip(stamps, ends, strict=True) if end["status"] == "ok")
    return sum(event["status"] != "ok" for event in ends)


@contextmanager
def workers(
    folder: Path,
    *,
    count: int = 3,
    lanes: int = 4,
    seconds: float = 0.05,
    options: tuple[str, ...] = (),
    more: Mapping[str, str] | None = None,
) -> Generator[Workers]:
    """Start workers; `more` variables of their environment, `options` of the database."""
    with postgres(*options) as server, ScriptedServer(stamping(seconds), slots=64) as model:
        made = Workers(folder, server, model, count=count, lanes=lanes, more=more)
        try:
            made.until_joined()
            yield made
        finally:
            made.stop()
