"""The model server as a person starts it: a real process, real workers, real models."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from http.client import HTTPConnection

import openai
import pytest
from router_kit import HELLO, calling_gguf, chunks
from server_kit import Home

from lmagent.gateway.http.lan import addresses
from lmagent.modelserver.http import daemon
from lmagent.modelserver.http.listening import ServerError, listen
from lmagent.store.lock import Owner
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say


@pytest.fixture
def home(tmp_path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    daemon.stop(made.server)


def test_it_starts_says_where_it_is_and_stops(home):
    assert (home.run("server", "status").returncode, home.run("server", "stop").returncode) == (1, 0)
    started = home.told("server", "start", "--port", "0")
    assert started["bind"] == "127.0.0.1"
    status = home.told("server", "status")
    assert (status["running"], status["health"], status["url"]) == (True, "ok", started["url"])
    again = home.run("server", "start", "--port", "0")
    assert again.returncode == 1
    assert f"process {started['pid']}" in again.stderr
    second = home.run("server", "start", "--foreground", "--port", "0")
    assert "runs already" in second.stderr
    assert home.told("daemon", "status")["pid"] == started["pid"]
    assert home.told("server", "stats")["requests"] == 0
    assert "no models yet" in home.run("server", "models", "list").stdout
    assert home.told("server", "stop") == {"stopped": True, "pid": started["pid"]}
    assert home.run("daemon", "status").returncode == 1
    assert not (home.server / "server.json").exists()


def test_a_server_that_died_is_noticed_and_does_not_stand_in_the_way(home):
    first = home.told("server", "start", "--port", "0")
    os.kill(first["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while home.run("server", "status").returncode == 0:
        assert time.monotonic() < deadline
    assert home.told("server", "start", "--port", "0")["pid"] != first["pid"]


def test_a_state_file_of_another_process_with_the_same_number_is_not_believed(tmp_path):
    daemon.announce(tmp_path, "127.0.0.1", 1, "x", guarded=False)
    assert daemon.state_of(tmp_path) is not None
    owner = Owner(os.getpid(), 1, os.uname().nodename)
    (tmp_path / "server.json").write_text(
        json.dumps({"owner": {"pid": owner.pid, "started": 1, "host": owner.host}, "bind": "", "port": 1})[:-1]
        + ',"since":0,"version":""}'
    )
    assert daemon.state_of(tmp_path) is None
    (tmp_path / "server.json").write_text("{")
    assert daemon.state_of(tmp_path) is None


def test_a_port_that_is_taken_is_told_with_the_way_to_see_who_has_it(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = home.run("server", "start", "--port", str(port))
        assert done.returncode == 1
        assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr
        assert f"sport = :{port}" in done.stderr
    with pytest.raises(ServerError, match="no address"):
        listen("nowhere.invalid", 0)


def test_on_other_addresses_a_key_is_made_kept_and_needed(home):
    started = home.told("server", "start", "--port", "0", "--bind", "0.0.0.0")
    file = home.server / "server.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = file.read_text()
    assert len(key) > 40

    def models(**headers: str) -> int:
        connection = HTTPConnection("127.0.0.1", started["port"])
        connection.request("GET", "/v1/models", headers=headers)
        code = connection.getresponse().status
        connection.close()
        return code

    assert (models(), models(Authorization=f"Bearer {key}")) == (401, 200)
    assert home.told("server", "stats")["requests"] == 0  # the command line finds the key by itself
    assert not (home.server / "server.log").stat().st_mode & 0o77  # it is said there, once
    home.run("server", "stop")
    started = home.told("server", "start", "--port", "0", LMAGENT_SERVER_KEY="my-own")
    assert (models(Authorization="Bearer my-own"), models()) == (200, 401)
    assert home.run("server", "start", "--foreground", "--api-key", "a b").returncode == 1


def test_ctrl_c_ends_a_server_in_the_foreground_with_0(home):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = home.spawn("server", "start", "--foreground", "--port", "0")
        assert process.stdout is not None
        assert b"listens at" in process.stdout.readline()
        process.send_signal(number)
        assert process.wait(30) == 0
        process.stdout.close()


@pytest.mark.parametrize(
    "wrong", [("--port", "99999"), ("--cors-origin", "chat.example"), ("--memory", "much"), ("--ttl", "-1")]
)
def test_settings_that_make_no_sense_are_refused(home, wrong):
    assert home.run("server", "start", *wrong).returncode == 64


@pytest.mark.engine
def test_a_model_is_loaded_when_it_is_asked_for_and_the_verbs_work(home):
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    models = home.folder / "models"
    models.mkdir()
    calling_gguf(models / "tiny.gguf")
    calling_gguf(models / "vector.gguf")
    (models / "tiny.toml").write_text("context = 2048\nthreads = 1\n")
    (models / "vector.toml").write_text('context = 512\nthreads = 1\nembedding = true\npooling = "mean"\n')
    started = home.told("server", "start", "--port", "0", "--memory", "2GB", "--ttl", "900")
    listed = home.run("server", "models", "list").stdout
    assert "tiny" in listed
    assert "vector" in listed
    with openai.OpenAI(base_url=f"{started['url']}/v1", api_key="x", max_retries=0) as client:
        stream = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5, stream=True)
        assert len(list(stream)) > 3
        made = client.embeddings.create(model="vector", input=["one", "two"], encoding_format="float")
        assert [len(item.embedding) for item in made.data] == [64, 64]
    stats = home.told("server", "stats")
    assert (stats["requests"], stats["loads"], stats["errors"]) == (2, 2, 0)
    assert "tiny: ready" in home.run("server", "logs").stdout
    assert home.run("server", "logs", "tiny").stdout
    assert "no model" in home.run("server", "logs", "nobody").stderr
    assert home.run("models", "unload", "tiny").stdout.startswith("tiny: unloaded")
    assert home.told("models", "load", "tiny")["state"] == "ready"
    assert "tiny" in home.run("models", "ps").stdout


@pytest.mark.engine
def test_a_worker_that_is_killed_takes_its_request_with_it_and_nothing_else(home):
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    models = home.folder / "models"
    models.mkdir()
    calling_gguf(models / "tiny.gguf")
    (models / "tiny.toml").write_text("context = 16000\nthreads = 1\n")
    with ScriptedServer(lambda _: say("From afar.")) as other:
        (models / "far.toml").write_text(f'upstream = "{other.base_url}"\nupstream_model = "theirs"\n')
        started = home.told("server", "start", "--port", "0", "--memory", "2GB")
        connection = HTTPConnection("127.0.0.1", started["port"])
        body = {"model": "tiny", "messages": HELLO, "stream": True, "ignore_eos": True, "max_tokens": 15_000}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = connection.getresponse()
        begun = answer.read1(100)
        (running,) = map(json.loads, home.run("models", "ps", "--json").stdout.splitlines())
        os.kill(running["pid"], signal.SIGKILL)
        events = chunks((begun + answer.read()).decode())
        connection.close()
        assert events[-1]["error"]["code"] == "worker_crashed"
        with openai.OpenAI(base_url=f"{started['url']}/v1", api_key="x", max_retries=0) as client:
            assert (
                client.chat.completions.create(model="far", messages=HELLO).choices[0].message.content == "From afar."
            )
            assert client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=3).choices
        assert home.told("server", "stats")["crashes"] == 1


def test_on_all_addresses_the_one_that_others_use_is_printed(home):
    if not (found := addresses()):
        pytest.skip("this machine is on no network")
    shown = home.run("server", "start", "--port", "0", "--bind", "0.0.0.0").stdout
    port = home.told("server", "status")["port"]
    assert f"other machines reach it at http://{found[0]}:{port}/v1" in shown
