"""The images of the model server and of the agent, built and run by a real docker engine from a base made here."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.gguf import build_tiny_gguf
from testkit.images import build_image, docker_engine, healthy, run

KEY = "a-key-of-the-test"

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("docker-image"), pytest.mark.long]


@pytest.fixture(scope="module")
def docker() -> Iterator[dict[str, str]]:
    with docker_engine() as env:
        yield env


@pytest.fixture(scope="module")
def image(docker: dict[str, str]) -> str:
    """The image of the server."""
    return build_image(docker, "server")


@pytest.fixture
def server(docker: dict[str, str], image: str, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A running container: its address and its id. The root is read only, as in compose.yaml."""
    pytest.importorskip("gguf", reason="the image was NOT tested: the package gguf is missing")
    models = tmp_path / "models"
    models.mkdir(mode=0o755)
    build_tiny_gguf(models / "tiny.gguf").chmod(0o644)
    hardened = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    volumes = ["-v", f"{models}:/models:ro", "-v", "/var/lib/lmagent", "-p", "127.0.0.1::1234"]
    started = run(docker, "docker", "run", "-d", *hardened, *volumes, "-e", f"LMAGENT_SERVER_KEY={KEY}", image)
    try:
        yield "http://" + run(docker, "docker", "port", started, "1234").splitlines()[0], started
    finally:
        run(docker, "docker", "rm", "-f", "-v", started)


def ask(url: str, body: object = None, key: str = KEY) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None)
    request.add_header("Authorization", f"Bearer {key}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_the_container_answers_chat_requests_as_nobody_in_particular_and_tells_its_health(docker, image, server):
    url, container = server
    state = healthy(docker, container)
    assert state == "healthy running", run(docker, "docker", "logs", container)
    assert [model["id"] for model in ask(f"{url}/v1/models")["data"]] == ["tiny"]
    messages = [{"role": "user", "content": "Hello"}]
    reply = ask(f"{url}/v1/chat/completions", {"model": "tiny", "messages": messages, "max_tokens": 8})
    assert reply["usage"]["completion_tokens"] > 0
    assert run(docker, "docker", "exec", container, "id", "-u") == "10001"
    users = run(docker, "docker", "run", "--rm", "--entrypoint", "cat", image, "/etc/passwd")
    assert "lmagent:x:10001:10001::/var/lib/lmagent:/usr/sbin/nologin" in users


def test_who_does_not_know_the_key_gets_nothing(docker, server):
    url, container = server
    assert healthy(docker, container) == "healthy running"
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(f"{url}/v1/models", key="another")
    assert refused.value.code == 401
    refused.value.close()


def test_the_image_has_no_ssh_and_no_password(docker, image):
    look = "ls /usr/sbin/sshd /usr/bin/ssh 2>/dev/null; cut -d: -f2 /etc/shadow | sort -u"
    found = run(docker, "docker", "run", "--rm", "--user", "0", "--entrypoint", "sh", image, "-c", look)
    assert set(found.split()) <= {"*", "!", "!!", "!*"}


def test_a_stopped_container_ends_at_once_and_well(docker, server):
    _, container = server
    healthy(docker, container)
    run(docker, "docker", "stop", "-t", "30", container)
    assert run(docker, "docker", "inspect", "-f", "{{.State.ExitCode}}", container) == "0"


@pytest.fixture
def agent(docker: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """A running agent with its gateway, as in compose.yaml: its container."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    workspace.chmod(0o777)
    hardened = ["--init", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    volumes = ["-v", f"{workspace}:/workspace", "-v", "/app/data", "-p", "127.0.0.1::7860"]
    model = ["-e", "LLM_URL=http://127.0.0.1:9/v1", "-e", "SANDBOX=landlock"]
    started = run(docker, "docker", "run", "-d", *hardened, *volumes, *model, build_image(docker, "agent"))
    try:
        yield started
    finally:
        run(docker, "docker", "rm", "-f", "-v", started)


def test_the_agents_container_prints_its_token_once_and_lets_in_who_has_it(docker, agent):
    assert healthy(docker, agent) == "healthy running", run(docker, "docker", "logs", agent)
    assert run(docker, "docker", "exec", agent, "id", "-u") == "10001"
    url = "http://" + run(docker, "docker", "port", agent, "7860").splitlines()[0]
    with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
        assert answer.read() == b"ok"
    logs = run(docker, "docker", "logs", agent)
    (line,) = [line for line in logs.splitlines() if "token of programs" in line]
    token = line.split()[-1]
    assert ask(f"{url}/api/me", key=token)["workspace"] == "/workspace"
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(f"{url}/api/me", key="another")
    assert refused.value.code == 401
    refused.value.close()
    run(docker, "docker", "restart", "-t", "30", agent)
    assert healthy(docker, agent) == "healthy running"
    assert run(docker, "docker", "logs", agent).count("token of programs") == 1
    assert run(docker, "docker", "exec", agent, "lmagent", "web", "token") == token


def test_a_command_in_the_agents_container_is_confined_or_refused(docker, agent):
    assert healthy(docker, agent) == "healthy running"
    spied = ["lmagent", "sandbox", "exec", "-w", "/workspace", "--", "cat", "/app/data/web/token"]
    done = subprocess.run(["docker", "exec", agent, *spied], env=docker, capture_output=True, text=True)
    assert done.returncode != 0
    assert "lmw-" not in done.stdout
    auto = subprocess.run(["docker", "exec", "-e", "SANDBOX=auto", agent, *spied], env=docker, capture_output=True)
    assert auto.returncode == 125, "bubblewrap works here: docs/gateway.md says otherwise"
