"""Writers of a cluster's session are killed, stopped and cut off, and the database restarts: no event is lost."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testkit.postgres import PostgresServer, postgres
from testkit.proxy import CutProxy

from lmagent.app.clock import SystemClock
from lmagent.cluster.database import Database
from lmagent.cluster.member import Member
from lmagent.cluster.store import ClusterStore
from lmagent.config.settings import Settings
from lmagent.core.events import InputReceived
from lmagent.testing.conformance.store import SESSION

pytestmark = pytest.mark.crash

VICTIM = Path(__file__).with_name("cluster_victim.py")
ROUNDS = int(os.environ.get("LMAGENT_ROUNDS", "20"))
TAKEOVER = 10.0  # seconds after which a session of a dead process must be open elsewhere


class Writer:
    """A process that appends events."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.written: list[str] = []
        self.refusal = ""
        self.process = subprocess.Popen(
            [sys.executable, str(VICTIM), url, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := re.fullmatch(r"written (\S+) \d+\n", line):
                self.written.append(match[1])
            elif line.startswith("refused"):
                self.refusal = line

    def until(self, more: int, seconds: float) -> None:
        """Wait until so many more events were acknowledged."""
        wanted = len(self.written) + more
        self.wait(lambda: len(self.written) >= wanted, seconds)

    def wait(self, holds: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert self.process.poll() is None or holds(), self._errors()
            assert time.monotonic() < end, f"{self.name}: {len(self.written)} events, {self.refusal}"
            time.sleep(0.01)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _errors(self) -> str:
        return f"{self.refusal} {self.process.stderr.read() if self.process.stderr else ''}"


class Stage:
    """A database, a proxy before it, and the writers of one session, one after the other."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.proxy = CutProxy(server.port)
        self.url = server.url().replace(f":{server.port}/", f":{self.proxy.port}/")
        self.writers: list[Writer] = []
        self.begin()

    @property
    def writer(self) -> Writer:
        return self.writers[-1]

    def begin(self) -> None:
        self.writers.append(Writer(self.url, f"w{len(self.writers)}"))
        self.writer.until(5, 30)

    def kill(self) -> None:
        """The next writer takes over within the time allowed."""
        self.writer.send(signal.SIGKILL)
        self.writers.append(Writer(self.url, f"w{len(self.writers)}"))
        self.writer.until(1, TAKEOVER)

    def stop(self) -> None:
        """A stopped writer that wakes up says that the session was taken from it."""
        stopped = self.writer
        stopped.send(signal.SIGSTOP)
        self.writers.append(Writer(self.url, f"w{len(self.writers)}"))
        self.writer.until(1, TAKEOVER)
        stopped.send(signal.SIGCONT)
        stopped.wait(lambda: bool(stopped.refusal), 30)
        assert stopped.refusal.startswith("refused SessionTaken")
        assert "taken over by process" in stopped.refusal

    def stop_briefly(self) -> None:
        self.writer.send(signal.SIGSTOP)
        time.sleep(0.2)
        self.writer.send(signal.SIGCONT)

    def cut(self) -> None:
        self.proxy.cut()

    def terminate(self) -> None:
        self.server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    def restart(self) -> None:
        self.server.stop(signal.SIGINT)
        self.server.start()

    def crash(self) -> None:
        self.server.stop(signal.SIGQUIT)
        self.server.start()

    def check(self) -> None:
        """Each acknowledged event is in the log once, in order, and no writer wrote after the next one."""
        for writer in self.writers:
            writer.end()
        member = Member(self.server.url())
        store = ClusterStore("project", member, SystemClock(), Settings(agent_data_dir=Path("unused")))
        events = list(store.read(SESSION))
        member.close()
        texts = [event.message.text for event in events if isinstance(event, InputReceived)]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert len(texts) == len(set(texts))
        for writer in self.writers:
            mine = [text for text in texts if text.startswith(f"{writer.name}:")]
            # A killed writer may have written one event more than it could print.
            assert mine[: len(writer.written)] == writer.written
            assert len(mine) - len(writer.written) <= 1
        names = [int(text.partition(":")[0][1:]) for text in texts]
        assert names == sorted(names)

    def close(self) -> None:
        for writer in self.writers:
            writer.end()
        self.proxy.close()


@pytest.fixture(name="stage")
def _stage() -> Iterator[Stage]:
    with postgres() as server:
        known = Database(server.url())
        known.migrate()
        known.close()
        stage = Stage(server)
        yield stage
        stage.close()


FAULTS = ["kill", "stop", "stop_briefly", "cut", "terminate", "restart", "crash"]


@pytest.mark.parametrize("fault", FAULTS)
def test_no_event_is_lost_or_doubled_by(fault: str, stage: Stage) -> None:
    getattr(stage, fault)()
    stage.writer.until(20, 40)
    stage.check()


@pytest.mark.long
def test_no_event_is_lost_or_doubled_by_faults_at_random(stage: Stage) -> None:
    seed = int(os.environ.get("LMAGENT_SEED", "0")) or random.randrange(1, 10**6)
    chosen = random.Random(seed)
    print(f"LMAGENT_SEED={seed}")
    weights = [1, 1, 4, 8, 8, 1, 1]
    for fault in chosen.choices(FAULTS, weights, k=ROUNDS):
        time.sleep(chosen.random() * 0.05)
        getattr(stage, fault)()
        stage.writer.until(3, 40)
    stage.check()
