"""Models are loaded, unloaded and downloaded over HTTP, as far as the connected server can do it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import Running, gateway, until
from testkit.servers.lmstudio import LMStudioServer
from testkit.servers.ollama import OllamaServer

from lmagent.modelserver.http.daemon import state_of, stop
from lmagent.testing.loopback import Drop, Hang
from lmagent.testing.script import Reply

sys.path.insert(0, str(Path(__file__).parents[1] / "modelserver"))

from fakehub import REPO, FakeHub
from madegguf import chat_file

LAYER = b'{"status":"pulling abc","digest":"sha256:abc","total":2000,"completed":%d}\n'


def row_of(running: Running, name: str) -> dict[str, Any]:
    """A model in the list."""
    return next(row for row in running.ask("GET", "/api/models").json["models"] if row["id"] == name)


def downloads(running: Running) -> list[dict[str, Any]]:
    return running.ask("GET", "/api/models/downloads").json["downloads"]


@pytest.mark.parametrize("kind", [LMStudioServer, OllamaServer])
def test_a_model_is_loaded_and_unloaded_by_the_routes_of_its_server(tmp_path, kind):
    server = kind(loaded=False)
    with gateway(tmp_path, server=server) as running:
        name = server.model
        assert {"load", "unload"} <= set(running.ask("GET", "/api/models").json["actions"])
        assert row_of(running, name)["loaded"] is False
        answer = running.ask("POST", "/api/models/load", {"model_id": name})
        assert (answer.status, answer.json["loaded"]) == (200, True), answer.body
        assert row_of(running, name)["loaded"] is True
        assert running.ask("POST", "/api/models/unload", {"model_id": name}).status == 200
        assert row_of(running, name)["loaded"] is False


def test_the_facts_of_a_model_are_listed_with_it(tmp_path):
    server = LMStudioServer(vision=True)
    with gateway(tmp_path, server=server) as running:
        row = row_of(running, server.model)
        assert (row["quant"], row["size"], row["bytes"]) == ("Q4_K_M", "8B", 5_027_783_872)
        assert (row["tools"], row["thinking"], row["vision"]) == (True, True, True)


def test_a_server_that_cannot_load_a_model_is_quoted_with_what_to_do(tmp_path):
    with gateway(tmp_path, server=OllamaServer()) as running:
        answer = running.ask("POST", "/api/models/load", {"model_id": "no-such:1b"})
        assert answer.status == 502
        error = answer.json["error"]
        assert "could not load no-such:1b: model 'no-such:1b' not found" in error["message"]
        assert error["fix"]


def test_an_lm_studio_without_these_routes_is_called_too_old(tmp_path):
    server = LMStudioServer(versions=("v0",))
    with gateway(tmp_path, server=server) as running:
        answer = running.ask("POST", "/api/models/load", {"model_id": server.model})
        assert answer.status == 502
        assert "could not load" in answer.json["error"]["message"]


def test_a_server_that_loads_by_itself_is_offered_no_action_and_refuses_one(tmp_path):
    with gateway(tmp_path) as running:
        assert running.ask("GET", "/api/models").json["actions"] == []
        answer = running.ask("POST", "/api/models/load", {"model_id": "scripted"})
        assert (answer.status, answer.code) == (409, "not_supported")
        answer = running.ask("POST", "/api/models/downloads", {"name": "qwen3:4b", "into": "server"})
        assert (answer.status, answer.code) == (409, "not_supported")


def test_a_model_that_a_session_works_with_is_not_unloaded(tmp_path):
    server = OllamaServer([Reply(text="thinking", stop_chunks=1, stop=Hang())], model="scripted")
    with gateway(tmp_path, server=server) as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        message = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
        running.ask("POST", f"/api/sessions/{session}/commands", {"type": "submit", "message": message})
        until(lambda: server.chats)
        answer = running.ask("POST", "/api/models/unload", {"model_id": "scripted"})
        assert (answer.status, answer.code) == (409, "in_use")
        running.ask("POST", f"/api/sessions/{session}/commands", {"type": "interrupt"})


def test_ollama_downloads_a_model_and_its_progress_is_listed(tmp_path):
    server = OllamaServer(
        pulls=(b'{"status":"pulling manifest"}\n', LAYER % 1000, LAYER % 2000, b'{"status":"success"}')
    )
    with gateway(tmp_path, server=server) as running:
        answer = running.ask("POST", "/api/models/downloads", {"name": "qwen3:4b", "into": "server"})
        assert answer.status == 202
        until(lambda: downloads(running)[0]["state"] == "done")
        (row,) = downloads(running)
        assert (row["have"], row["total"], row["model"], server.pulled) == (2000, 2000, "qwen3:4b", ["qwen3:4b"])


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((LAYER % 500, b'{"error":"pull model manifest: file does not exist"}\n'), "file does not exist"),
        ((LAYER % 500, b'{"error":"write: no space left on device"}\n'), "no space left"),
        ((LAYER % 500, Drop()), "broke off"),
        ((LAYER % 500,), "before it was complete"),
    ],
)
def test_a_download_that_fails_in_the_server_says_why_and_what_to_do(tmp_path, steps, said):
    with gateway(tmp_path, server=OllamaServer(pulls=steps)) as running:
        running.ask("POST", "/api/models/downloads", {"name": "qwen3:4b", "into": "server"})
        until(lambda: downloads(running)[0]["state"] == "failed")
        (row,) = downloads(running)
        assert said in row["problem"]
        assert row["fix"]
        assert running.ask("DELETE", f"/api/models/downloads/{row['id']}").status == 200
        assert downloads(running) == []


def test_a_download_that_is_stopped_ends_in_the_server_and_can_be_begun_again(tmp_path):
    server = OllamaServer(pulls=(LAYER % 500, Hang()))
    with gateway(tmp_path, server=server) as running:
        first = running.ask("POST", "/api/models/downloads", {"name": "qwen3:4b", "into": "server"}).json["id"]
        again = running.ask("POST", "/api/models/downloads", {"name": "qwen3:4b", "into": "server"}).json["id"]
        assert again == first
        until(lambda: downloads(running)[0]["have"] == 500)
        assert running.ask("DELETE", f"/api/models/downloads/{first}").status == 409
        assert running.ask("POST", f"/api/models/downloads/{first}/stop").status == 200
        until(lambda: [one.hung_up for one in server.requests if one.path == "/api/pull"] == [True])
        assert [row["state"] for row in downloads(running)] == ["stopped"]
        running.ask("POST", "/api/models/downloads", {"name": "qwen3:4b", "into": "server"})
        assert [row["state"] for row in downloads(running)] == ["running"]


def test_a_download_into_the_library_resumes_after_the_gateway_was_killed(tmp_path):
    content = chat_file(tmp_path / "made.gguf").read_bytes() + os.urandom(400_000)
    with FakeHub({"model-Q4_K_M.gguf": content}, slow=0.05) as hub, gateway(tmp_path, **hub.env) as running:
        name = {"name": f"{REPO}:Q4_K_M", "into": "library"}
        assert running.ask("POST", "/api/models/downloads", name).status == 202
        until(lambda: downloads(running)[0]["have"] > 100_000)
        running.kill()
        hub.slow = 0.0
        running.start()
        (row,) = downloads(running)
        assert row["state"] == "stopped"
        assert 100_000 < row["have"] < row["total"] == len(content)
        running.ask("POST", "/api/models/downloads", {"name": row["name"], "into": "library"})
        until(lambda: [one["state"] for one in downloads(running)] == ["done"])
        (row,) = downloads(running)
        assert row["model"]
        assert hub.ranges_asked[-1].startswith("bytes=")
        assert list((tmp_path / "data" / "models").rglob("*.part")) == []


def test_a_part_that_nobody_wants_is_deleted(tmp_path):
    with FakeHub({"model-Q4_K_M.gguf": os.urandom(400_000)}, slow=0.05) as hub, gateway(tmp_path, **hub.env) as running:
        running.ask("POST", "/api/models/downloads", {"name": REPO, "into": "library"})
        until(lambda: downloads(running)[0]["have"] > 0)
        id = downloads(running)[0]["id"]
        running.ask("POST", f"/api/models/downloads/{id}/stop")
        until(lambda: downloads(running)[0]["state"] == "stopped")
        assert running.ask("DELETE", f"/api/models/downloads/{id}").status == 200
        assert downloads(running) == []
        assert list((tmp_path / "data" / "models").rglob("*.part*")) == []


def test_a_name_that_is_no_model_is_refused_before_anything_begins(tmp_path):
    with gateway(tmp_path) as running:
        answer = running.ask("POST", "/api/models/downloads", {"name": "no name", "into": "library"})
        assert (answer.status, answer.code) == (400, "bad_name")
        assert "OWNER/REPO" in answer.json["error"]["fix"]
        assert running.ask("POST", "/api/models/downloads/none/stop").status == 404


def test_our_own_server_is_started_and_its_models_are_listed_loaded_and_unloaded(tmp_path):
    library = tmp_path / "data" / "models"
    library.mkdir(parents=True)
    chat_file(library / "tiny-Q8_0.gguf")
    with gateway(tmp_path) as running:
        try:
            answer = running.ask("POST", "/api/models/server", {}, timeout=60)
            assert answer.status == 200, answer.body
            assert running.ask("POST", "/api/models/server", {}).json["url"].startswith("http://127.0.0.1:")
            listed = running.ask("GET", "/api/models?provider=own").json
            assert listed["actions"] == ["load", "unload"]
            (row,) = [row for row in listed["models"] if row["id"] == "own:tiny-q8_0"]
            assert (row["quant"], row["loaded"]) == ("Q8_0", False)
            picked = running.ask("POST", "/api/models/select", {"provider": "own", "model_id": "tiny-q8_0"})
            assert picked.json["model"] == "own:tiny-q8_0"
        finally:
            stop(tmp_path / "data" / "server")
        assert state_of(tmp_path / "data" / "server") is None
        answer = running.ask("POST", "/api/models/load", {"model_id": "own:tiny-q8_0"})
        assert (answer.status, answer.json["error"]["fix"]) == (409, "start it")
