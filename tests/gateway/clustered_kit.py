"""Gateways of a cluster for tests: `lmagent web` and its workers, as processes over one PostgreSQL."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from gateway_kit import Running, until
from testkit.postgres import database

from lmagent.testing import ScriptedServer

NAME = "project"


class Clustered(Running):
    """A gateway of a cluster, with the workers that it started; as `gateway_kit.Running` otherwise."""

    def __init__(self, folder: Path, model: ScriptedServer, options: Sequence[str], env: dict[str, str]) -> None:
        super().__init__(folder, model, options, env)
        place = ExitStack()
        self.url_of_database = place.enter_context(database())
        atexit.register(place.close)  # before the server's end
        self.env |= {"LMAGENT_CLUSTER_URL": self.url_of_database, "LMAGENT_CLUSTER_WORKSPACE": NAME}
        self.workers: list[subprocess.Popen[bytes]] = []
        self.worker_log = folder / "workers.log"
        self.count = 1

    def start(self) -> None:
        while len(self.workers) < self.count:
            self.workers.append(self.new_worker())
        super().start()

    def new_worker(self, **env: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "lmagent", "worker", "--label", f"{NAME}={self.workspace}", "--grace", "3"]
        command += ["--base-url", self.model.base_url, "-m", "scripted", *self._options]
        known = self.sql("SELECT count(*) FROM process WHERE kind = 'worker'")[0][0]
        with self.worker_log.open("ab") as log:
            process = subprocess.Popen(command, env={**self.env, **env}, cwd=self.workspace, stdout=log, stderr=log)
        until(lambda: self.sql("SELECT count(*) FROM process WHERE kind = 'worker'")[0][0] > known)
        return process

    def stop(self, *, timeout: float = 30) -> int:
        code = super().stop(timeout=timeout)
        for worker in self.workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        for worker in self.workers:
            worker.wait(30)
        self.workers.clear()
        return code

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url_of_database, options="-c search_path=lmagent", autocommit=True) as connection:
            done = connection.execute(query.encode())
            return done.fetchall() if done.description is not None else []

    def logs(self) -> list[dict[str, Any]]:
        rows = self.sql("SELECT line FROM session JOIN event ON event.session = number ORDER BY id, event.seq")
        return [json.loads(bytes(line)) for (line,) in rows]

    @contextmanager
    def another_gateway(self, folder: Path) -> Iterator[Running]:
        """Start another gateway of the cluster, on a machine without the workspace and with no folder in common."""
        folder.mkdir()
        env = {name: self.env[name] for name in ("LMAGENT_CLUSTER_URL", "LMAGENT_CLUSTER_WORKSPACE")}
        other = Running(folder, self.model, (), env)
        other.start()
        try:
            yield other
        finally:
            if other.process is not None and other.process.poll() is None:
                other.stop()


@contextmanager
def cluster(folder: Path, script: Any = (), *, workers: int = 1, **env: str) -> Iterator[Clustered]:
    """A gateway and its workers, with a scripted model; `env`: variables of all processes."""
    with ScriptedServer(list(script) if isinstance(script, tuple) else script) as model:
        running = Clustered(folder, model, (), env)
        running.count = workers
        running.start()
        try:
            yield running
        except BaseException:
            print("".join(running.said), running.worker_log.read_text()[-4000:])  # beside the failure
            raise
        finally:
            running.stop()
