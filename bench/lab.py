"""Lab: a workspace, model servers in processes of their own, and runs whose cost is measured from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(__file__).resolve().parent / ".cache"
MODEL = "bench-model"
TASK = "Read the files in the folder notes one after the other and tell me when you are done."


@dataclass(frozen=True)
class Run:
    """One run of a program from spawn to exit. Times are CLOCK_MONOTONIC seconds, the same in every process.

    `rows` are the server's log lines of this run; `cpu` is user + system seconds, `rss` the peak in bytes.
    """

    spawned: float
    exited: float
    code: int
    cpu: float
    rss: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def chats(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row.get("chat")]

    @property
    def start_ms(self) -> float:
        """Spawn until the first model request had arrived whole."""
        return (self.chats[0]["t_body"] - self.spawned) * 1000

    @property
    def gaps_ms(self) -> list[float]:
        """End of each answer until the next request had arrived whole."""
        chats = self.chats
        return [(later["t_body"] - sooner["t_end"]) * 1000 for sooner, later in pairwise(chats)]


class Server:
    """A scripted server in its own process; it ends when this process does."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "requests.jsonl"
        folder.mkdir(parents=True)
        self.log.touch()
        command = [sys.executable, str(ROOT / "bench" / "scripted.py"), "--model", MODEL, "--log", str(self.log)]
        self._process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.base_url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/v1"
        self._read = 0

    def news(self) -> list[dict[str, Any]]:
        """Log lines since the last call; the server writes a line when the last byte of an answer has gone."""
        time.sleep(0.02)
        with self.log.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Lab:
    """Everything one benchmark needs, in a folder that is removed at its end."""

    def __init__(self, *, timeout: float = 120.0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lmagent-bench-"))
        self.workspace = self.folder / "workspace"
        self.home = self.folder / "home"
        self.home.mkdir()
        self.timeout = timeout
        self._servers: list[Server] = []
        self._write_notes(204)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_notes(self, count: int) -> None:
        notes = self.workspace / "notes"
        notes.mkdir(parents=True)
        for number in range(count):
            text = (
                f"Note {number}\nWhat there is to know about day {number}: it rained, and then it did not.\nThe end.\n"
            )
            (notes / f"note_{number:03d}.txt").write_text(text)

    def server(self, *arguments: str) -> Server:
        """A server with the benchmark's script; `arguments` are those of `bench/scripted.py`."""
        server = Server(self.folder / f"server-{len(self._servers)}", *arguments)
        self._servers.append(server)
        return server

    def agent(self, server: Server, *more: str, task: str = TASK) -> Run:
        """One one-shot of lmagent."""
        return self._run([*agent_command(self.workspace, task), *more], agent_env(self.home, server.base_url), server)

    def floor(self, server: Server) -> Run:
        """One run of the bare loop."""
        script = Path(__file__).with_name("floor_httpx.py")
        command = [str(floor_python()), "-I", str(script), server.base_url, TASK]
        return self._run(command, {"PATH": os.environ["PATH"], "HOME": str(self.home)}, server)

    def _run(self, command: Sequence[str], env: dict[str, str], server: Server) -> Run:
        server.news()
        with (self.folder / "output.txt").open("ab") as output:
            spawned = time.monotonic()
            process = subprocess.Popen(
                command,
                cwd=self.workspace,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            killer = threading.Timer(self.timeout, _kill, [process.pid])
            killer.start()
            _, status, usage = os.wait4(process.pid, 0)
            exited = time.monotonic()
            killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        rows = server.news()
        run = Run(spawned, exited, process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, rows)
        if run.code or not run.chats:
            tail = (self.folder / "output.txt").read_bytes()[-2000:].decode("utf-8", "replace")
            raise SystemExit(f"{command[0]} ended with {run.code} after {len(run.chats)} model calls:\n{tail}")
        return run


def agent_command(workspace: Path, task: str = TASK) -> list[str]:
    """The one-shot that is measured."""
    program = Path(sys.executable).with_name("lmagent")
    return [str(program), task, "--permission", "auto", "--workspace", str(workspace)]


def agent_env(home: Path, base_url: str) -> dict[str, str]:
    """A small environment: nothing of this machine's settings gets in."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LLM_URL": base_url, "LLM_MODEL": MODEL}


def floor_python() -> Path:
    """The interpreter of an environment that holds only httpx; it is made on first use."""
    folder = CACHE / "floor"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        uv = subprocess.run([ROOT / "scripts" / "ensure_uv"], capture_output=True, text=True, check=True).stdout.strip()
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "httpx"], check=True)
        (CACHE / ".gitignore").write_text("*\n")
        (folder / ".ready").touch()
    return python


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
