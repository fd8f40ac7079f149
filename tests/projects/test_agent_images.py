"""Images of agents: by the Agentfile of `agent init`, by that of the guide, and several with one model server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import openai
import pytest
from testkit.images import IMAGES, ROOT, build_image, docker_engine, healthy, run
from tools_kit import GUIDE

GUIDES_IMAGE = "ghcr.io/raine-works/lmstudio-cuda:latest"
HARDENED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
SCRIPTED = ("python3", "-m", "lmagent.testing", "--script", "/script.json", "--port", "9000")
SCRIPTED_URL = "http://127.0.0.1:9000/v1"
TOKEN = "t" * 40

pytestmark = [pytest.mark.xdist_group("docker-image"), pytest.mark.long]


@pytest.fixture(scope="module")
def docker() -> Iterator[dict[str, str]]:
    with docker_engine() as env:
        yield env


def made(tmp_path: Path, name: str, kind: str) -> Path:
    command = [sys.executable, "-m", "lmagent", "agent", "init", name, "--type", kind]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / name


def digest_of_build(folder: Path) -> str:
    archive = folder.parent / "built.tar.gz"
    command = [sys.executable, "-m", "lmagent", "agent", "build", str(folder), "-o", str(archive)]
    subprocess.run(command, check=True, capture_output=True)
    return sha256(archive.read_bytes()).hexdigest()


def script(tmp_path: Path, *replies: dict[str, object]) -> Path:
    file = tmp_path / "script.json"
    file.write_text(json.dumps(replies))
    file.chmod(0o644)
    return file


def calls(name: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "arguments": arguments}]}


@contextmanager
def container(docker: dict[str, str], replies: Path, *options: str) -> Iterator[str]:
    """Run an agent's image, with a scripted model server on the loopback of its container."""
    network = ["-p", "127.0.0.1::8000", "-e", f"LLM_URL={SCRIPTED_URL}"]
    agent = run(docker, "docker", "run", "-d", *network, *options)
    beside = ["--network", f"container:{agent}", "-v", f"{replies}:/script.json:ro", "--entrypoint", SCRIPTED[0]]
    server = run(docker, "docker", "run", "-d", *beside, IMAGES["agent"], *SCRIPTED[1:])
    try:
        yield agent
    finally:
        run(docker, "docker", "rm", "-f", "-v", server, agent)


def answer(port: str, token: str, model: str, text: str) -> tuple[str, str]:
    """Ask an agent as an OpenAI client does; return its answer, and the calls before it."""
    with openai.OpenAI(base_url=f"http://{port}/v1", api_key=token, max_retries=0, timeout=60) as client:
        assert model in [one.id for one in client.models.list()]
        told = client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}])
    message = told.choices[0].message
    return message.content or "", str((message.model_extra or {}).get("reasoning_content"))


def published(docker: dict[str, str], agent: str) -> str:
    return run(docker, "docker", "port", agent, "8000").splitlines()[0]


def token_in(log: str) -> str:
    (token,) = re.findall(r"token of programs, printed this once: (\S+)", log)
    return token


def test_an_agentfile_makes_an_image_that_serves_the_agent_confined_and_without_secrets(docker, tmp_path):
    build_image(docker, "agent")
    folder = made(tmp_path, "dice", "conversational")
    (folder / ".env").write_text("DICE_KEY=not-for-others\n")
    options = [
        "--build-arg",
        f"BASE={IMAGES['agent']}",
        "--network",
        "none",
        "-f",
        "Agentfile",
        "-t",
        "lmagent-test-dice",
    ]
    run(docker, "docker", "build", "-q", *options, ".", cwd=folder)
    replies = script(
        tmp_path,
        calls("roll_dice", sides=2, count=3),
        calls("days_until", day="2000-01-01"),
        {"text": "Three dice."},
    )
    with container(docker, replies, "--init", *HARDENED, "lmagent-test-dice") as agent:
        assert healthy(docker, agent) == "healthy running", run(docker, "docker", "logs", agent)
        token = token_in(run(docker, "docker", "logs", agent))
        text, before = answer(published(docker, agent), token, "agent/dice", "Roll three coins")
        assert text == "Three dice."
        assert re.search(r'"rolled":\[[12],[12],[12]\]', before), before  # JavaScript
        assert re.search(r"→ ok \([\d.]+ s\): -\d+", before), before  # Python
        with pytest.raises(openai.AuthenticationError):
            answer(published(docker, agent), "another", "agent/dice", "Roll")
        assert run(docker, "docker", "exec", agent, "id", "-u") == "10001"
        spied = [
            "lmagent",
            "sandbox",
            "exec",
            "-w",
            "/app/data/agents/dice/workspace",
            "--",
            "cat",
            "/app/data/web/token",
        ]
        seen = subprocess.run(
            ["docker", "exec", agent, *spied], env=docker, capture_output=True, text=True, check=False
        )
        assert (seen.returncode != 0, "lmw-" in seen.stdout) == (True, False)
        found = run(docker, "docker", "exec", agent, "sh", "-c", "ls -A /app; ls -d /build", check=False)
        assert found.split() == ["agent.tar.gz", "data"]
        packed = run(docker, "docker", "exec", agent, "sha256sum", "/app/agent.tar.gz").split()[0]
    assert packed == digest_of_build(shutil.copytree(folder, tmp_path / "elsewhere"))


def test_the_agentfile_of_the_guide_is_built_and_run_byte_for_byte(docker, tmp_path):
    build_image(docker, "agent")
    folder = made(tmp_path, "my-agent", "conversational")
    shutil.copy(GUIDE / "Agentfile", folder / "Agentfile")
    before = run(docker, "docker", "images", "-q", GUIDES_IMAGE)
    run(docker, "docker", "tag", build_image(docker, "lms"), GUIDES_IMAGE)
    try:
        run(docker, "docker", "build", "-f", "Agentfile", ".", "-t", "lmagent-test-guide", cwd=folder)
    finally:
        if before:
            run(docker, "docker", "tag", before, GUIDES_IMAGE)
        else:
            run(docker, "docker", "rmi", GUIDES_IMAGE)
    replies = script(tmp_path, calls("roll_dice"), {"text": "A four."})
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 10001, 10001)
    with container(docker, replies, "-v", f"{data}:/app/data", "lmagent-test-guide") as agent:
        assert healthy(docker, agent) == "healthy running", run(docker, "docker", "logs", agent)
        token = token_in(run(docker, "docker", "logs", agent))
        assert answer(published(docker, agent), token, "agent/my-agent", "Roll")[0] == "A four."
        assert "no model server runs" in run(docker, "docker", "exec", agent, "lms", "daemon", "status", check=False)
    assert (data / "agents" / "my-agent" / "workspace").is_dir()


def compose_program(docker: dict[str, str]) -> list[str]:
    if not subprocess.run(["docker", "compose", "version"], env=docker, capture_output=True, check=False).returncode:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        pytest.skip("several agents were NOT tested: neither docker compose nor docker-compose is installed")
    return ["docker-compose"]


@pytest.mark.engine
def test_two_agents_of_the_compose_example_answer_with_one_model_server(docker, tmp_path):
    compose = compose_program(docker)
    shutil.copy(ROOT / "examples" / "agents-compose" / "compose.yaml", tmp_path)
    made(tmp_path, "librarian", "knowledge")
    made(tmp_path, "clerk", "task-oriented")
    models = tmp_path / "models"
    models.mkdir()
    (models / "scripted.toml").write_text(f'upstream = "{SCRIPTED_URL}"\nupstream_model = "test-model"\n')
    replies = script(
        tmp_path,
        calls("cite", file="opening-hours.md", line=2),
        {"text": "It is open."},
        calls("count_words", text="one two three"),
        {"text": "Three words."},
    )
    # The model server of the example, with a scripted server on its loopback as its only model.
    scripted = {"image": IMAGES["agent"], "network_mode": "service:models", "entrypoint": list(SCRIPTED)}
    scripted["volumes"] = [f"{replies}:/script.json:ro"]
    (tmp_path / "scripted.json").write_text(json.dumps({"services": {"scripted": scripted}}))
    env = docker | {"COMPOSE_PROJECT_NAME": "lmagent-test-agents", "LMAGENT_SERVER_KEY": "k" * 20}
    env |= {"LMAGENT_AGENT_IMAGE": build_image(docker, "agent"), "LMAGENT_SERVER_IMAGE": build_image(docker, "server")}
    env |= {"LMAGENT_TOKEN": TOKEN, "LIBRARIAN_PORT": "0", "CLERK_PORT": "0"}
    files = ["-f", "compose.yaml", "-f", "scripted.json"]
    shown = run(env, *compose, "-f", "compose.yaml", "config", cwd=tmp_path)
    assert "librarian:" in shown
    try:
        run(env, *compose, *files, "up", "-d", "--build", cwd=tmp_path)
        for name, text, said, before in (
            ("librarian", "When is the library open?", "It is open.", "[opening-hours.md, line 2]"),
            ("clerk", "Count the words", "Three words.", '"words": 3'),
        ):
            agent = run(env, *compose, *files, "ps", "-q", name, cwd=tmp_path)
            assert healthy(docker, agent) == "healthy running", run(docker, "docker", "logs", agent)
            told, called = answer(published(docker, agent), TOKEN, f"agent/{name}", text)
            assert (told, before in called) == (said, True), called
        server = run(env, *compose, *files, "ps", "-q", "models", cwd=tmp_path)
        stats = run(docker, "docker", "exec", server, "lmagent", "server", "stats", "--json")
        assert {one["name"]: one["requests"] for one in json.loads(stats)["models"]}["scripted"] == 4
    finally:
        run(env, *compose, *files, "down", "-v", "--rmi", "local", cwd=tmp_path)
