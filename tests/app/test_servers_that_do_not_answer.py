"""A model server that is configured and does not answer, while another one does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from testkit.servers.ollama import OllamaServer

from lmagent.providers.discovery import DEFAULT, usual
from lmagent.testing.script import say


def listens(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as trial:
        return trial.connect_ex((parts.hostname, parts.port)) == 0


pytestmark = pytest.mark.skipif(
    any(listens(server.base_url) for server in DEFAULT), reason="a model server of this machine would be found"
)


@pytest.fixture
def dead() -> Iterator[str]:
    """An address where nothing listens, and no other test begins to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


class Machine:
    """A home folder with Ollama on a port of its own."""

    def __init__(self, home: Path, ollama: OllamaServer) -> None:
        self.home, self.work = home / "home", home / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.saved = self.home / ".config/lmagent/.env"
        self.port = urlsplit(ollama.base_url).port
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "OLLAMA_HOST": f"127.0.0.1:{self.port}"}

    def save(self, text: str) -> None:
        self.saved.parent.mkdir(parents=True)
        self.saved.write_text(text)

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lmagent", *arguments],
            env={**self.env, **env},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def ollama() -> Iterator[OllamaServer]:
    with OllamaServer([say("Hello.")] * 4) as server:
        yield server


@pytest.fixture
def machine(tmp_path: Path, ollama: OllamaServer) -> Machine:
    return Machine(tmp_path, ollama)


def test_without_a_terminal_the_error_names_the_server_that_answers_and_the_option(machine, dead):
    machine.save(f"LLM_URL={dead}\n")
    run = machine.run("hello")
    assert run.returncode == 1
    assert f"{dead} (LLM_URL in {machine.saved}) does not answer" in run.stderr
    assert f"Ollama answers on port {machine.port}" in run.stderr
    assert f"--base-url http://127.0.0.1:{machine.port}/v1" in run.stderr
    assert machine.saved.read_text() == f"LLM_URL={dead}\n"


def test_the_doctor_names_the_place_of_the_address_and_the_server_that_answers(machine, dead):
    machine.save(f"LLM_URL={dead}\n")
    found = {item["name"]: item for item in json.loads(machine.run("doctor", "--json").stdout)}
    assert found["server"]["state"] == "fault"
    assert f"LLM_URL in {machine.saved}" in found["server"]["text"]
    assert f"Ollama answers on port {machine.port}" in found["server"]["text"]


def test_an_address_where_nothing_else_answers_either_is_named_with_its_place(machine, dead):
    machine.save(f"LLM_URL={dead}\n")
    machine.env["OLLAMA_HOST"] = dead.removeprefix("http://")
    found = {item["name"]: item for item in json.loads(machine.run("doctor", "--json").stdout)}
    assert f"LLM_URL in {machine.saved}" in found["server"]["text"]


@pytest.mark.parametrize(
    ("named", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1:9999", "http://127.0.0.1:9999/v1"),
        ("http://box.lan:9999", "http://box.lan:9999/v1"),
        ("https://ollama.example", "https://ollama.example:443/v1"),
        ("[::1]:9999", "http://[::1]:9999/v1"),
        ("no address", "http://127.0.0.1:11434/v1"),
    ],
)
def test_ollama_is_looked_for_where_its_own_variable_says(named, url):
    (ollama,) = [server for server in usual({"OLLAMA_HOST": named}) if server.name == "Ollama"]
    assert ollama.base_url == url
