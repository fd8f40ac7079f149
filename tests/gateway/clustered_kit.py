"""Gateways of a cluster for tests: `lmagent web` and its workers, as processes over one PostgreSQL."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
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
        self._database = database()  # it ends with the test process
        self.url_of_database = self._database.__enter__()
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
            return connection.execute(query.encode()).fetchall()

    def logs(self) -> list[dict[str, Any]]:
        rows = self.sql("SELECT line FROM session JOIN event ON event.session = number ORDER BY id, event.seq")
        return [json.loads(bytes(line)) for (line,) in rows]
