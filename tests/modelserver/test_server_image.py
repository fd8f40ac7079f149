"""The images of the model server and of the agent, built and run by a real docker engine from a base made here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.gguf import build_tiny_gguf

ROOT = Path(__file__).resolve().parents[2]
DOCKERD = ROOT / "scripts" / "dockerd.sh"
BASE, IMAGE, AGENT = "lmagent-test-base", "lmagent-server-test", "lmagent-agent-test"
KEY = "a-key-of-the-test"

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("docker-image"), pytest.mark.long]


def run(env: dict[str, str], *argv: str, check: bool = True) -> str:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, cwd=ROOT)
    if check and done.returncode:
        raise AssertionError(f"{argv[:3]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.strip()


@pytest.fixture(scope="module")
def docker() -> Iterator[dict[str, str]]:
    """The environment in which a docker engine answers."""
    env, started = dict(os.environ), False
    if shutil.which("docker") is None:
        pytest.skip("needs docker: the docker program is not installed")
    if subprocess.run(["docker", "version"], env=env, capture_output=True).returncode:
        script = subprocess.run([DOCKERD, "start", str(os.getpid())], capture_output=True, text=True)
        if script.returncode:
            pytest.skip(f"needs docker: no engine answers, and none can be started ({script.stderr.strip()})")
        started, env["DOCKER_HOST"] = True, script.stdout.strip()
    try:
        yield env
    finally:
        if started:
            subprocess.run([DOCKERD, "stop", str(os.getpid())], check=True)


@pytest.fixture(scope="module")
def image(docker: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image, built without network from the sources and from wheels that this machine has."""
    if not run(docker, "docker", "images", "-q", BASE):
        made = subprocess.run([ROOT / "scripts" / "docker_base.sh", BASE], env=docker, capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"needs a base image: none can be made here ({made.stderr.strip()[-300:]})")
    context = tmp_path_factory.mktemp("context")
    for name in ("src", "pyproject.toml", "README.md", "LICENSE", "Dockerfile", ".dockerignore"):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, context / name)
    # The base has Debian's Python: its wheels are asked for, whatever this process runs on.
    wanted = ["--python-version", "3.11", "--only-binary", ":all:"]
    wheels = [sys.executable, "-m", "pip"] if shutil.which("pip") is None else ["pip"]
    project = [*_needed("local"), "hatchling"]
    got = subprocess.run([*wheels, "download", "-q", "-d", context / "wheels", *wanted, *project], capture_output=True)
    if got.returncode:
        pytest.skip(f"needs wheels for the image: {got.stderr.decode()[-300:]}")
    options = ["--build-arg", f"BASE={BASE}", "--build-arg", "PIP_OPTIONS=--no-index --find-links /src/wheels"]
    options += ["--build-arg", "PACKAGES=", "--network", "none"]
    for target, name in (("agent", AGENT), ("server", IMAGE)):
        run(docker, "docker", "build", "-q", *options, "--target", target, "-t", name, str(context))
    return IMAGE


def _needed(extra: str) -> list[str]:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"][extra]]


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


def healthy(docker: dict[str, str], container: str) -> str:
    state = ""
    for _ in range(120):
        state = run(docker, "docker", "inspect", "-f", "{{.State.Health.Status}} {{.State.Status}}", container)
        if not state.startswith("starting running"):
            return state
        time.sleep(0.5)
    return state


def test_the_container_answers_chat_requests_as_nobody_in_particular_and_tells_its_health(docker, server):
    url, container = server
    state = healthy(docker, container)
    assert state == "healthy running", run(docker, "docker", "logs", container)
    assert [model["id"] for model in ask(f"{url}/v1/models")["data"]] == ["tiny"]
    messages = [{"role": "user", "content": "Hello"}]
    reply = ask(f"{url}/v1/chat/completions", {"model": "tiny", "messages": messages, "max_tokens": 8})
    assert reply["usage"]["completion_tokens"] > 0
    assert run(docker, "docker", "exec", container, "id", "-u") == "10001"
    users = run(docker, "docker", "run", "--rm", "--entrypoint", "cat", IMAGE, "/etc/passwd")
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
def agent(docker: dict[str, str], image: str, tmp_path: Path) -> Iterator[str]:
    """A running agent with its gateway, as in compose.yaml: its container."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    workspace.chmod(0o777)
    hardened = ["--init", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    volumes = ["-v", f"{workspace}:/workspace", "-v", "/app/data", "-p", "127.0.0.1::7860"]
    model = ["-e", "LLM_URL=http://127.0.0.1:9/v1", "-e", "SANDBOX=landlock"]
    started = run(docker, "docker", "run", "-d", *hardened, *volumes, *model, AGENT)
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
