"""Models over HTTP: what the server lists, and which one new sessions begin with, now and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gateway_kit import Running, gateway

from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import say

LISTED = ("scripted", "tiny-4b", "vision-7b")


@contextmanager
def serving(folder: Path, *options: str, **env: str) -> Iterator[Running]:
    """A gateway with a server of several models."""
    server = ScriptedServer([say("Hi.")] * 5, models=LISTED)
    with gateway(folder, server=server, options=options, **env) as running:
        yield running


def asked(running: Running) -> str:
    """The model of the last request."""
    requests: list[Received] = [one for one in running.model.requests if one.method == "POST"]
    return requests[-1].body["model"]


def test_the_models_of_the_server_are_listed_and_searched(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        models = running.ask("GET", "/api/models").json
        assert [row["id"] for row in models["models"]] == list(LISTED)
        assert (models["current"], models["vanished"]) == ("scripted", False)
        assert models["provider"]
        assert models["endpoint"].startswith("http://127.0.0.1:")
        found = running.ask("GET", "/api/models/search?q=VISION").json
        assert ([row["id"] for row in found["models"]], found["query"]) == (["vision-7b"], "VISION")


def test_a_model_that_is_picked_answers_in_new_sessions_and_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        running.ask("POST", "/api/chat/before", {"message": "hi"})
        assert asked(running) == "scripted"
        picked = running.ask("POST", "/api/models/select", {"provider": "lmstudio", "model_id": "tiny-4b"})
        assert picked.json["ok"] is True
        assert picked.json["model"] == "tiny-4b"
        running.ask("POST", "/api/chat/after", {"message": "hi"})
        assert asked(running) == "tiny-4b"
        running.kill()
        running.start()
        assert running.ask("GET", "/api/models").json["current"] == "tiny-4b"
        running.ask("POST", "/api/chat/later", {"message": "hi"})
        assert asked(running) == "tiny-4b"
        running.ask("POST", "/api/chat/before", {"message": "hi"})
        assert asked(running) == "tiny-4b"  # a client with one session has no other way to change its model
        (kept,) = (tmp_path / "data").glob("chosen.json")
        assert kept.stat().st_mode & 0o777 == 0o600


def test_a_choice_for_new_sessions_leaves_the_others_their_model(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        running.ask("POST", "/api/chat/before", {"message": "hi"})
        running.ask("POST", "/api/models/select", {"model_id": "tiny-4b", "sessions": "new"})
        running.ask("POST", "/api/chat/before", {"message": "hi"})
        assert asked(running) == "scripted"
        running.ask("POST", "/api/chat/after", {"message": "hi"})
        assert asked(running) == "tiny-4b"


def test_a_model_that_is_chosen_in_a_session_later_is_kept_there(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        running.ask("POST", "/api/chat/own", {"message": "hi"})
        running.ask("POST", "/api/models/select", {"model_id": "tiny-4b"})
        command = {"type": "set_model", "model": "vision-7b"}
        assert running.ask("POST", "/api/sessions/own/commands", command).status == 202
        running.kill()
        running.start()
        running.ask("POST", "/api/chat/own", {"message": "hi"})
        assert asked(running) == "vision-7b"


def test_the_other_server_answers_in_a_session_that_has_begun_and_after_a_restart(tmp_path: Path) -> None:
    with ScriptedServer([say("From Ollama.")] * 5, models=("qwen3:8b",)) as ollama:
        with serving(tmp_path, OLLAMA_HOST=ollama.base_url, LLM_API_KEY="sk-of-the-usual-server") as running:
            running.ask("POST", "/api/chat/mine", {"message": "hi"})
            picked = running.ask("POST", "/api/models/select", {"provider": "ollama", "model_id": "qwen3:8b"})
            assert (picked.status, picked.json["model"]) == (200, "ollama:qwen3:8b"), picked.body
            answer = running.ask("POST", "/api/chat/mine", {"message": "again"}).json
            assert answer["response"] == "From Ollama."
            (request,) = [one for one in ollama.requests if one.method == "POST" and one.body.get("messages")]
            assert request.body["model"] == "qwen3:8b"
            assert [message["content"] for message in request.body["messages"] if message["role"] == "assistant"]
            assert "sk-of-the-usual-server" not in str([one.headers for one in ollama.requests])
            blocks = running.ask("GET", "/api/sessions/mine/view").json["view"]["blocks"]
            (notice,) = [block["text"] for block in blocks if block["kind"] == "notice"]
            assert notice.startswith("Model changed to ollama:qwen3:8b. It reads the conversation once: about ")
            running.kill()
            running.start()
            assert running.ask("POST", "/api/chat/mine", {"message": "hi"}).json["response"] == "From Ollama."
            assert running.ask("POST", "/api/chat/new", {"message": "hi"}).json["response"] == "From Ollama."
            models = running.ask("GET", "/api/models").json
            assert ([row["id"] for row in models["models"]], models["listed"]) == (["ollama:qwen3:8b"], "ollama")
            usual = running.ask("GET", "/api/models?provider=usual").json
            assert [row["id"] for row in usual["models"]] == list(LISTED)
            line = {"line": "/model ollama:"}
            assert "ollama:qwen3:8b" in running.ask("POST", "/api/sessions/mine/slash", line).json["text"]
            back = running.ask("POST", "/api/models/select", {"provider": "lmstudio", "model_id": "tiny-4b"})
            assert back.json["model"] == "tiny-4b"
            assert running.ask("POST", "/api/chat/mine", {"message": "hi"}).json["response"] == "Hi."
            line = {"line": "/model ollama:qwen3:8b"}
            text = running.ask("POST", "/api/sessions/mine/slash", line).json["text"]
            assert text.startswith("model ollama:qwen3:8b; with your next message it re-reads the conversation")
            assert running.ask("POST", "/api/chat/mine", {"message": "hi"}).json["response"] == "From Ollama."
            line = {"line": "/model openrouter:a/b"}
            refused = running.ask("POST", "/api/sessions/mine/slash", line)
            assert (refused.status >= 400, b"OPENROUTER_API_KEY" in refused.body) == (True, True)


def test_a_new_setting_beats_what_was_picked_before_it(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        running.ask("POST", "/api/models/select", {"model_id": "tiny-4b"})
        running.stop()
        running._options = ("-m", "vision-7b")
        running.start()
        assert running.ask("GET", "/api/models").json["current"] == "vision-7b"


def test_a_damaged_record_of_what_was_picked_is_no_choice(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        running.stop()
        (tmp_path / "data" / "chosen.json").write_text("{")
        running.start()
        assert running.ask("GET", "/api/models").json["current"] == "scripted"
        assert running.ask("POST", "/api/models/select", {"model_id": "tiny-4b"}).status == 200


def test_a_model_that_vanished_is_said_to_be_gone(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:  # this server lists another one
        models = running.ask("GET", "/api/models").json
        assert (models["current"], models["vanished"]) == ("scripted", True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model_id": "nobody"}, 404),
        ({"model_id": "tiny-4b", "provider": "openrouter"}, 409),
        ({"model_id": "openrouter:a/b"}, 409),
        ({"model_id": "tiny-4b", "provider": "http://evil.example/v1"}, 404),
        ({"model_id": "tiny-4b", "sessions": "some"}, 400),
        ({"model_id": ""}, 400),
        ({"model_id": 5}, 400),
        ({}, 400),
        (b"{", 400),
    ],
)
def test_a_choice_that_is_none_changes_nothing(running: Running, body: object, status: int) -> None:
    answer = running.ask("POST", "/api/models/select", body)
    assert answer.status == status, answer.body
    assert answer.json["error"]["message"]
    assert running.ask("GET", "/api/models").json["current"] == "scripted"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("models")) as started:
        yield started


def test_a_server_that_is_down_is_a_readable_error(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        running.stop()
        with ScriptedServer([]) as gone:
            running.model = gone
        running.start()
        for path in ("/api/models", "/api/models/search?q=x"):
            answer = running.ask("GET", path)
            assert (answer.status, answer.code) == (502, "model_server")
            assert answer.json["error"]["message"]
        assert running.ask("POST", "/api/models/select", {"model_id": "x"}).status == 502
        assert running.ask("GET", "/api/status").json["status"] == "running"
        assert [row["id"] for row in running.ask("GET", "/v1/models").json["data"]] == ["agent/lmagent"]


def test_lm_studio_by_name_is_not_the_usual_server_that_earlier_clients_call_so(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        line = {"line": "/model lmstudio:tiny-4b"}
        running.ask("POST", "/api/chat/mine", {"message": "hi"})
        text = running.ask("POST", "/api/sessions/mine/slash", line).json["text"]
        assert text.startswith("model lmstudio:tiny-4b; ")
