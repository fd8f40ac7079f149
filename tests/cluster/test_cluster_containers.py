"""compose.cluster.yaml, run by a real docker engine: PostgreSQL, two workers and two gateways as containers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testkit.images import ROOT, build_image, build_postgres, docker_engine, healthy, run
from testkit.proxy import CutProxy

from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, call, say, slow

TOKEN = "a-token-of-the-test"
PASSWORD = "database0password"
GATEWAYS = ("gateway-1", "gateway-2")

pytestmark = [pytest.mark.xdist_group("docker-image"), pytest.mark.long]


def answered(received: Received) -> Reply:
    """Answer as the model: for a slow task it writes a file first, and its next step takes 8 s."""
    task, done = "", 0
    for message in received.fields["messages"]:
        task = str(message["content"]) if message["role"] == "user" else task
        done += message["role"] == "tool"
    if "slowly" not in task:
        return say("Two gateways, one answer.")
    return slow(say("Written."), first=8.0) if done else call("write", path="made.txt", content="made\n")


class Containers:
    """The containers of the compose file; `model` is the port on loopback of the scripted server."""

    def __init__(self, env: dict[str, str], folder: Path, model: str) -> None:
        workspace = folder / "workspace"
        workspace.mkdir(mode=0o777, parents=True)
        workspace.chmod(0o777)
        image = build_image(env, "cluster")
        override = folder / "override.yaml"
        named = {name: {"image": image} for name in ("init", "worker", *GATEWAYS)}
        override.write_text(json.dumps({"services": named}))
        self.workspace = workspace
        self.env = env | {"LMAGENT_DB_PASSWORD": PASSWORD, "AGENT_PIN": "493817", "AGENT_TOKEN": TOKEN}
        self.env |= {"LLM_URL": model, "LLM_MODEL": "test-model", "LMAGENT_POSTGRES_IMAGE": build_postgres(env)}
        self.env |= {"LMAGENT_WORKSPACE": str(workspace), "LMAGENT_WEB_PORT": "0", "LMAGENT_WEB_PORT_2": "0"}
        files = ("-f", str(ROOT / "compose.cluster.yaml"), "-f", str(override))
        self._command = (*_program(env), "-p", f"lmagent-test-{os.getpid()}", *files)

    def compose(self, *arguments: str) -> str:
        return run(self.env, *self._command, *arguments)

    def up(self) -> None:
        """Start the containers that do not run, and wait until both workers are in the cluster."""
        try:
            self.compose("up", "-d", "--no-build", "--no-recreate")
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{self.compose('logs')[-6000:]}") from None
        self.until(lambda: len(self.workers()) == 2, "two workers")
        for name in GATEWAYS:
            (container,) = self.compose("ps", "-q", name).split()
            assert healthy(self.env, container) == "healthy running", self.compose("logs")

    def workers(self) -> list[dict[str, Any]]:
        """Return the living workers, as `lmagent cluster status` shows them in a container."""
        (container,) = self.compose("ps", "-q", "gateway-1").split()
        shown = run(self.env, "docker", "exec", container, "lmagent", "cluster", "status", "--json")
        return [one for one in json.loads(shown)["processes"] if one["kind"] == "worker" and one["alive"]]

    def ask(self, gateway: str, path: str, body: object = None) -> Any:
        address = self.compose("port", gateway, "7860").splitlines()[0]
        request = urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode() if body else None)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def submit(self, gateway: str, text: str) -> str:
        """Begin a session with a task; return its id."""
        session = self.ask(gateway, "/api/sessions", {"mode": "auto"})["session"]
        message = {"role": "user", "parts": [{"type": "text", "text": text}]}
        self.ask(gateway, f"/api/sessions/{session}/commands", {"type": "submit", "message": message})
        return session

    def shown(self, gateway: str, session: str) -> str:
        """Return what a gateway shows of a session, as text."""
        return json.dumps(self.ask(gateway, f"/api/sessions/{session}/view"))

    def until(self, holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"not within {seconds} s: {what}\n{self.compose('logs')[-6000:]}"
            time.sleep(0.5)


def _program(env: dict[str, str]) -> tuple[str, ...]:
    if subprocess.run(["docker", "compose", "version"], env=env, capture_output=True, check=False).returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        pytest.skip("needs docker-compose: neither the program nor the plugin is installed")
    return ("docker-compose",)


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    with docker_engine() as env, ScriptedServer(answered, slots=8) as model:
        # The address of the host that the engine names to containers.
        asked = ("--rm", "--add-host", "host:host-gateway", "--entrypoint", "getent", build_image(env, "cluster"))
        host = run(env, "docker", "run", *asked, "hosts", "host").split()[0]
        proxy = CutProxy(model.port, address=host)
        made = Containers(env, tmp_path_factory.mktemp("cluster"), f"http://{host}:{proxy.port}/v1")
        try:
            yield made
        finally:
            made.compose("down", "-v", "-t", "45")
            proxy.close()


@pytest.fixture
def cluster(containers: Containers) -> Containers:
    containers.up()
    return containers


def test_a_session_begun_at_one_gateway_is_answered_at_the_other(cluster: Containers) -> None:
    session = cluster.submit("gateway-1", "How many gateways are there?")
    cluster.until(lambda: "Two gateways, one answer." in cluster.shown("gateway-2", session), "the answer")
    assert [row["id"] for row in cluster.ask("gateway-2", "/api/sessions")["sessions"]].count(session) == 1


def test_a_session_ends_though_the_container_of_its_worker_is_killed(cluster: Containers) -> None:
    session = cluster.submit("gateway-1", "Write slowly")
    made = cluster.workspace / "made.txt"
    cluster.until(made.exists, "the first step")
    (owner,) = [worker["name"] for worker in cluster.workers() if worker["sessions"]]
    run(cluster.env, "docker", "kill", owner.partition(":")[0])
    cluster.until(lambda: "Written." in cluster.shown("gateway-2", session), "the end of the turn")
    assert owner not in [worker["name"] for worker in cluster.workers()]
    assert made.read_text() == "made\n"


def test_the_inbox_is_worked_off_once_the_workspace_is_trusted_in_one_worker(cluster: Containers) -> None:
    def sessions() -> list[str]:
        return [row["id"] for row in cluster.ask("gateway-1", "/api/sessions?search=dropped")["sessions"]]

    cluster.compose("exec", "-T", "worker", "lmagent", "submit", "Answer what was dropped here")
    assert "trusted /workspace" in cluster.compose("exec", "-T", "worker", "lmagent", "config", "trust")
    cluster.until(lambda: len(sessions()) == 1, "a session")
    cluster.until(lambda: "one answer." in cluster.shown("gateway-2", sessions()[0]), "its answer")


def test_a_stopped_worker_leaves_the_cluster_by_itself(cluster: Containers) -> None:
    container = cluster.workers()[0]["name"].partition(":")[0]
    run(cluster.env, "docker", "stop", "-t", "45", container)
    assert run(cluster.env, "docker", "inspect", "-f", "{{.State.ExitCode}}", container) == "0"
    assert [worker["name"].partition(":")[0] for worker in cluster.workers()].count(container) == 0


def test_the_image_that_was_built_says_whether_its_tables_are_those_of_the_database(cluster: Containers) -> None:
    found = cluster.compose("run", "--rm", "-T", "--entrypoint", "lmagent cluster doctor", "init")
    assert [line.split()[:2] for line in found.splitlines() if "schema" in line] == [["✓", "schema"]]


def test_the_database_is_dumped_in_its_container(cluster: Containers) -> None:
    dumped = cluster.compose("exec", "-T", "postgres", "pg_dump", "-U", "lmagent", "-s", "lmagent")
    assert "CREATE TABLE lmagent.event " in dumped


def test_every_container_is_healthy_and_a_command_in_a_worker_reads_no_password(cluster: Containers) -> None:
    for container in cluster.compose("ps", "-q", "postgres", "worker").split():
        assert healthy(cluster.env, container) == "healthy running"
    worker = cluster.workers()[0]["name"].partition(":")[0]
    assert PASSWORD in run(cluster.env, "docker", "exec", worker, "cat", "/proc/1/environ")
    spy = ["lmagent", "sandbox", "exec", "-w", "/workspace", "--", "sh", "-c", "env; cat /proc/*/environ"]
    done = subprocess.run(["docker", "exec", worker, *spy], env=cluster.env, capture_output=True, check=False)
    assert b"LMAGENT_SANDBOX=1" in done.stdout or done.returncode == 125, done.stderr  # refused without Landlock
    assert PASSWORD.encode() not in done.stdout
