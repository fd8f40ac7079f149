"""A worker for Transformers models: it runs `transformers serve`, for which a small program of ours takes its place."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from worker_kit import group, until

from lmagent.modelserver.pool.process import program_of
from lmagent.modelserver.spec import Hello, ModelEntry, ModelSettings, WorkerSpec

SERVE = """\
#!{python}
import http.server, json, os, sys
assert sys.argv[1] == "serve" and os.environ["HF_HUB_OFFLINE"] == "1"
options = dict(word.removeprefix("--").split("=") for word in sys.argv[2:])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = {{"options": options, "model": asked["model"], "there": os.path.isdir(asked["model"])}}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer((options["host"], int(options["port"])), Handler).serve_forever()
"""


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "models" / "Tiny"
    folder.mkdir(parents=True)
    return folder


def installed(tmp_path, text: str) -> str:
    program = tmp_path / "bin" / "transformers"
    program.parent.mkdir()
    program.write_text(text)
    program.chmod(0o755)
    return str(program.parent)


@contextmanager
def worker(model, path: str, **settings):
    spec = WorkerSpec(str(model), "hf", "secret", ModelSettings(context=400, threads=1, **settings))
    process = subprocess.Popen(
        list(program_of(ModelEntry("hf", "transformers"))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PATH": path},
        start_new_session=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        process.stdin.flush()
        yield process, msgspec.json.decode(process.stdout.readline(), type=Hello)
        process.stdin.close()
        process.wait(30)
    until(lambda: group(process.pid) == [])


def ask(hello, name: str):
    address = urlsplit(hello.address)
    with closing(http.client.HTTPConnection(address.hostname, address.port, timeout=60)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps({"model": name}))
        return json.loads(connection.getresponse().read())


def test_the_server_of_transformers_runs_beside_the_model_and_ends_with_the_worker(model, tmp_path):
    with worker(model, installed(tmp_path, SERVE.format(python=sys.executable)), gpu_layers=0, sleep=7.5) as (_, hello):
        assert hello.error == ""
        told = ask(hello, "Tiny")
        assert told["there"]
        assert (told["options"]["host"], told["options"]["device"]) == ("127.0.0.1", "cpu")
        assert told["options"]["model-timeout"] == "7"


def test_the_worker_ends_when_the_server_dies(model, tmp_path):
    with worker(model, installed(tmp_path, SERVE.format(python=sys.executable))) as (process, hello):
        assert hello.error == ""
        children = [pid for pid in group(process.pid) if b"\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(children[0], signal.SIGKILL)
        assert process.wait(20) == signal.SIGKILL


def test_a_server_that_does_not_start_is_reported(model, tmp_path):
    with worker(model, installed(tmp_path, "#!/bin/sh\nexit 3\n")) as (process, hello):
        assert "ended with status 3" in hello.error
    assert process.returncode == 1


def test_a_template_in_the_settings_is_refused(model, tmp_path):
    with worker(model, installed(tmp_path, "#!/bin/sh\n"), template="own.jinja") as (_, hello):
        assert "needs a GGUF model" in hello.error


def test_without_transformers_the_worker_says_what_to_install(model, tmp_path):
    with worker(model, str(tmp_path)) as (process, hello):
        assert "pip install" in hello.error
        assert "[transformers]' torch" in hello.error
    assert process.returncode == 1
