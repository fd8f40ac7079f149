"""A worker with the real engine: it serves, sleeps, says why it cannot load, and never outlives its parent."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest
from pool_kit import noted, process_pool
from testkit.gguf import build_tiny_gguf
from worker_kit import alive, group, until

from lmagent.modelserver.engine.cause import from_log
from lmagent.modelserver.pool.process import program_of
from lmagent.modelserver.spec import Hello, ModelEntry, ModelServerError, ModelSettings, WorkerSpec

pytestmark = pytest.mark.engine

SMALL = ModelSettings(context=2048, threads=1)


class RealClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(anyio.sleep)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    return build_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@contextmanager
def worker(model, log, *, settings=SMALL, draft=""):
    """A worker, its process and what it said."""
    spec = WorkerSpec(str(model), "small", "secret", settings, str(draft))
    with log.open("ab") as errors:
        process = subprocess.Popen(
            list(program_of(ModelEntry("small", "llama"))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
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


def request(hello, method, path, body=None, key="secret"):
    address = urlsplit(hello.address)
    with closing(http.client.HTTPConnection(address.hostname, address.port, timeout=60)) as connection:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}


def test_it_serves_under_its_alias_to_those_who_have_the_key_alone(tiny, tmp_path):
    with worker(tiny, tmp_path / "log", settings=ModelSettings(context=1024, threads=1, parallel=2)) as (
        process,
        hello,
    ):
        assert hello.pid == process.pid
        assert hello.load_s > 0
        assert hello.address.startswith("http://127.0.0.1:")
        status, models = request(hello, "GET", "/v1/models")
        assert status == 200
        assert json.loads(models)["data"][0]["id"] == "small"
        assert "tiny.gguf" not in json.loads(models)["data"][0]["id"]
        status, chat = request(hello, "POST", "/v1/chat/completions", CHAT)
        assert status == 200
        assert json.loads(chat)["usage"]["completion_tokens"] <= 8
        slots = json.loads(request(hello, "GET", "/slots")[1])
        assert [slot["n_ctx"] for slot in slots] == [1024, 1024]
        assert "llamacpp" in request(hello, "GET", "/metrics")[1]
        for path in ("/v1/models", "/slots", "/metrics"):
            assert request(hello, "GET", path, key="wrong")[0] == 401
    assert process.returncode == 0
    until(lambda: group(process.pid) == [])


def test_it_takes_a_template_a_draft_model_and_other_types_of_cache(tiny, tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}TURN {{ m.content }}\n{% endfor %}")
    chosen = ModelSettings(
        context=1024, threads=1, template=str(template), cache_type_k="bf16", cache_type_v="f32", flash_attention="on"
    )
    with worker(tiny, tmp_path / "log", settings=chosen, draft=tiny) as (_, hello):
        assert hello.error == ""
        prompt = json.loads(request(hello, "POST", "/apply-template", CHAT)[1])["prompt"]
        assert prompt.startswith("TURN hi")
        assert request(hello, "POST", "/v1/chat/completions", CHAT)[0] == 200


def test_it_makes_embeddings(tiny, tmp_path):
    chosen = ModelSettings(context=512, threads=1, embedding=True, pooling="mean")
    with worker(tiny, tmp_path / "log", settings=chosen) as (_, hello):
        status, body = request(hello, "POST", "/v1/embeddings", {"input": ["one", "two"]})
        assert status == 200
        assert [len(row["embedding"]) for row in json.loads(body)["data"]] == [64, 64]


@pytest.mark.parametrize(
    ("damage", "settings", "reason"),
    [
        (lambda whole: whole[:20_000], SMALL, "damaged or not complete: the tensor token_embd.weight"),
        (lambda whole: b"<html>not found</html>" * 50, SMALL, "it is not a GGUF file"),
        (lambda whole: whole.replace(b"llama", b"flama"), SMALL, "the engine does not know the architecture flama"),
        (
            lambda whole: whole,
            ModelSettings(context=1024, threads=1, cache_type_v="q8_0", flash_attention="off"),
            'set flash_attention = "on"',
        ),
        (
            lambda whole: whole,
            ModelSettings(threads=1, template="{here}/bad.jinja"),
            "the chat template cannot be read",
        ),
        (lambda whole: whole, ModelSettings(threads=1, mmproj="{here}/m.gguf"), "the projector for images"),
        (lambda whole: whole, ModelSettings(threads=1, template="{here}/none"), "No such file"),
        (lambda whole: whole, ModelSettings(threads=1, pooling="sideways"), "sideways"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_the_engines_reason(tiny, tmp_path, damage, settings, reason):
    model = tmp_path / "m.gguf"
    model.write_bytes(damage(tiny.read_bytes()))
    (tmp_path / "bad.jinja").write_text("{% if x %}{{ oops")
    there = {name: getattr(settings, name).replace("{here}", str(tmp_path)) for name in ("template", "mmproj")}
    settings = msgspec.structs.replace(settings, **there)
    with worker(model, tmp_path / "log", settings=settings) as (process, hello):
        log = (tmp_path / "log").read_text("utf-8", "replace")
        assert reason in f"{hello.error} {from_log(log.splitlines())}"
        assert hello.address == ""
    assert process.returncode == 1
    until(lambda: group(process.pid) == [])


def test_it_ends_while_it_loads_when_its_input_does(tiny, tmp_path):
    """A cache of this size keeps the engine busy for a long time, with Python's lock in its hand."""
    spec = WorkerSpec(str(tiny), "small", "k", ModelSettings(context=5_000_000, parallel=60, threads=1))
    with (tmp_path / "log").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lmagent.modelserver.engine.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    with process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        process.stdin.flush()
        until(lambda: b"n_ctx_seq" in (tmp_path / "log").read_bytes())
        process.stdin.close()
        process.wait(20)
    until(lambda: group(process.pid) == [])


def test_input_that_is_no_description_of_a_model_is_an_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lmagent.modelserver.engine.worker"],
        input=b"{}\n",
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "no description of a model" in msgspec.json.decode(done.stdout, type=Hello).error


def ask(running):
    return request(Hello(running.address), "POST", "/v1/chat/completions", CHAT, key=running.key)


def test_the_pool_loads_it_wakes_it_and_survives_its_death(tiny, tmp_path):
    async def main() -> None:
        settings = ModelSettings(context=1024, threads=1, sleep=1, ttl=0)
        entries = [
            ModelEntry("good", "llama", tiny, settings, needed=64 << 20),
            ModelEntry("bad", "llama", tmp_path / "none.gguf", settings, needed=64 << 20),
        ]
        async with process_pool(tmp_path, RealClock(), *entries, budget=1 << 30, program=program_of) as pool:
            async with pool.lease("good") as running:
                status, body = await anyio.to_thread.run_sync(ask, running)
                assert status == 200
                assert json.loads(body)["model"] == "good"
            with pytest.raises(ModelServerError, match="No such file"):
                await pool.load("bad")
            with anyio.fail_after(30):
                while pool.statuses()[1].state != "sleeping":  # noqa: ASYNC110
                    await anyio.sleep(0.1)
            async with pool.lease("good") as running:
                assert (await anyio.to_thread.run_sync(ask, running))[0] == 200
                assert pool.statuses()[1].state == "ready"
            pid = pool.statuses()[1].pid
            os.kill(pid, signal.SIGSEGV)
            await noted(pool, "crashed")
            assert not alive(pid)
            async with pool.lease("good") as running:
                assert (await anyio.to_thread.run_sync(ask, running))[0] == 200
            assert pool.statuses()[1].crashes == 1
            assert "listening on" in pool.log("good").read_text()
            last = pool.statuses()[1].pid
        until(lambda: group(pid) == [] and group(last) == [])

    anyio.run(main)
