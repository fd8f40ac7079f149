"""Earlier clients: what was written for an older agent's gateway works with this one."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from gateway_kit import Answer, Running, gateway, held, shared, until
from seed_client import PLAN, chatting
from websockets.exceptions import InvalidStatus

from lmagent.config.settings import Settings
from lmagent.gateway.turns import approval_patience
from lmagent.testing.script import call, calls, hang, say, slow, status, tool


def in_background(running: Running, path: str, body: dict, answers: list[Answer]) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(running.ask("POST", path, body, timeout=60)))
    thread.start()
    return thread


# --- HTTP -------------------------------------------------------------------------------------------------------------


def test_a_chat_answers_when_its_turn_has_ended() -> None:
    with shared([call("ls"), say("One file."), say("Again.")]) as running:
        answer = running.ask("POST", "/api/chat/my-session", {"message": "List the files in my workspace"})
        assert answer.status == 200
        told = answer.json
        assert (told["response"], told["session_id"], told["mode"]) == ("One file.", "my-session", "bounded")
        assert told["iterations"] == 2
        assert told["usage"]["total_tokens"] == told["usage"]["prompt_tokens"] + told["usage"]["completion_tokens"] > 0
        assert running.ask("POST", "/api/chat/my-session", {"message": "Again?"}).json["response"] == "Again."
        assert len([log for log in running.logs() if log["type"] == "session.created"]) == 1


def test_history_and_tasks_of_a_session_are_told() -> None:
    todo = call("use_tool", name="todo_add", arguments={"items": ["look", "write"]})
    with shared([call("ls"), todo, say("Done.")]) as running:
        running.ask("POST", "/api/chat/s1", {"message": "go"})
        history = running.ask("GET", "/api/sessions/s1/history").json
        assert history["session_id"] == "s1"
        assert [message["role"] for message in history["messages"]][:4] == ["user", "assistant", "tool", "assistant"]
        assert history["messages"][0]["content"] == "go"
        assert history["messages"][1]["tool_calls"][0]["tool"] == "ls"
        assert history["messages"][2]["success"] is True
        last = running.ask("GET", "/api/sessions/s1/history?limit=1").json
        assert last["more"] is True
        assert last["messages"] == history["messages"][-1:]
        rest = running.ask("GET", f"/api/sessions/s1/history?before={last['first']}").json
        assert rest["messages"] == history["messages"][:-1]
        assert (rest["more"], rest["first"]) == (False, 0)
        tasks = running.ask("GET", "/api/sessions/s1/tasks").json
        assert {"tasks", "summary", "session_id", "mode"} <= tasks.keys()
        for route in ("history", "tasks"):
            assert running.ask("GET", f"/api/sessions/nobody/{route}").status == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat/ok", {}),
        ("/api/chat/ok", {"message": ""}),
        ("/api/chat/ok", {"message": "  \n"}),
        ("/api/chat/ok", {"message": 5}),
        ("/api/chat/ok", {"message": "x", "mode": "wild"}),
        ("/api/chat/ok", {"message": "x", "approval_timeout": 0}),
        ("/api/chat/ok", b"{"),
        ("/api/chat/ok", b"[]"),
        ("/api/chat/activity", {"message": "x"}),
        ("/api/chat/..", {"message": "x"}),
        ("/api/chat/%2e%2e", {"message": "x"}),
        ("/api/chat/" + "x" * 65, {"message": "x"}),
        ("/api/chat/a%20b", {"message": "x"}),
    ],
)
def test_a_chat_that_is_none_is_refused_and_begins_nothing(running: Running, path: str, body: object) -> None:
    answer = running.ask("POST", path, body)
    assert 400 <= answer.status < 500, answer.body
    assert answer.json["error"]["message"]
    assert running.logs() == []


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    with gateway(tmp_path_factory.mktemp("seed"), [say("never asked")]) as started:
        yield started


def test_a_model_that_fails_is_told_as_an_error() -> None:
    with shared([status(401)]) as running:
        answer = running.ask("POST", "/api/chat/s", {"message": "hi"}, timeout=60)
        assert answer.status == 502
        assert answer.json["error"]["message"]


def test_a_turn_that_comes_to_nothing_is_an_answer() -> None:
    with shared(lambda _: say("No plan from me.")) as running:
        told = running.ask("POST", "/api/chat/s", {"message": "hi", "mode": "deep_work"}).json
        assert (told["outcome"], told["mode"], told["plan"]) == ("error", "deep_work", None)
        assert told["response"]


def test_who_goes_away_ends_only_the_waiting() -> None:
    with shared([slow(say("Finished."), first=1.0)]) as running:
        running.leave("/api/chat/s", {"message": "long"}, once=lambda: running.recorded("step.started"))
        until(lambda: running.recorded("turn.finished"))
        assert running.logs()[-1]["answer"] == "Finished."


def test_deep_work_comes_back_with_its_plan_and_goes_on_when_it_is_approved() -> None:
    script = [say(PLAN), call("write", path="a.txt", content="hello"), say("All done.")]
    with shared(script, LMAGENT_PERMISSION_ALLOW="write") as running:
        answer = running.ask("POST", "/api/chat/deep", {"message": "Write the report", "mode": "deep_work"}).json
        assert (answer["mode"], answer["outcome"]) == ("deep_work", "question")
        assert answer["plan"]["steps"][0]["id"] == "one"
        assert not (running.workspace / "a.txt").exists()
        with chatting(running, "deep") as client:
            assert client.until("plan_ready")["plan"]["title"] == "Report"  # for who joins late
            client.say("approve_plan")
            client.until("tool_result")
        assert (running.workspace / "a.txt").read_text() == "hello"


def test_an_approval_that_nobody_gives_in_time_counts_as_denied() -> None:
    with shared([call("shell", command="touch x"), say("I was not allowed to.")]) as running:
        body = {"message": "touch x", "approval_timeout": 0.3}
        answer = running.ask("POST", "/api/chat/s", body).json
        assert answer["response"] == "I was not allowed to."
        (resolved,) = [event for event in running.logs() if event["type"] == "approval.resolved"]
        assert (resolved["approved"], resolved["by"]) == (False, "web:timeout")
        assert not (running.workspace / "x").exists()


def test_a_chat_waits_for_an_approval_for_five_minutes_at_most_unless_it_says_so() -> None:
    def patience(settings: Settings) -> float:
        return approval_patience(SimpleNamespace(host=SimpleNamespace(settings=settings)))

    assert patience(Settings()) == 300
    assert patience(Settings(approval_timeout=20)) == 20


def test_an_approval_of_a_waiting_chat_is_given_on_the_socket() -> None:
    with shared([call("shell", command="touch x"), say("Done.")]) as running:
        answers: list[Answer] = []
        with chatting(running, "s") as client:
            thread = in_background(running, "/api/chat/s", {"message": "touch x"}, answers)
            asked = client.until("approval_request")
            client.say("approval_response", tool_call_id=asked["tool_call_id"], approved=True)
            client.until("done")
            thread.join(20)
        assert answers[0].json["response"] == "Done."
        assert (running.workspace / "x").exists()


def test_the_same_message_sent_twice_is_answered_once() -> None:
    with shared([say("First.")]) as running:
        body = {"message": "hi", "id": "mine-1"}
        first, second = (running.ask("POST", "/api/chat/s", body).json for _ in range(2))
        assert first["response"] == second["response"] == "First."
        assert [request.method for request in running.model.requests].count("POST") == 1


# --- activity ---------------------------------------------------------------------------------------------------------


def test_the_history_says_what_a_person_said() -> None:
    gate = threading.Event()
    script = [call("ls", path="."), held(say("One."), gate), say("Two."), say("Three.")]
    with shared(script) as running:
        running.leave("/api/chat/s", {"message": "go"}, once=lambda: running.model.left == 2)
        message = {"role": "user", "parts": [{"type": "text", "text": "and quickly"}]}
        running.ask("POST", "/api/sessions/s/commands", {"type": "steer", "message": message})
        gate.set()
        running.ask("POST", "/api/chat/s", {"message": "more"})
        told = running.ask("GET", "/api/sessions/s/history").json["messages"]
        assert [row["content"] for row in told if row["role"] == "user"] == ["go", "and quickly", "more"]


def test_what_a_turn_took_before_the_process_died_counts(tmp_path: Path) -> None:
    gate = threading.Event()
    script = [call("ls", path="."), hang(), held(say("One file."), gate)]
    with gateway(tmp_path, script) as running:
        body = {"message": "What is here?", "id": "m-1"}
        running.leave("/api/chat/s", body, once=lambda: running.model.left == 1)
        running.kill()
        running.start()
        with chatting(running, "s") as client:
            gate.set()
            answer = running.ask("POST", "/api/chat/s", body).json
            assert (answer["response"], answer["iterations"]) == ("One file.", 3)
            assert client.until("done")["iterations"] == 3


def test_activity_is_told_live_over_all_sessions() -> None:
    script = [calls(tool("ls")), say("a"), calls(tool("ls")), say("b")]
    with shared(script) as running, chatting(running, "activity") as feed:
        for session in ("one", "two"):
            running.ask("POST", f"/api/chat/{session}", {"message": "ls"})
        heard = [feed.hear() for _ in range(4)]
        assert [message["type"] for message in heard] == ["tool_call", "tool_result"] * 2
        assert [message["session_id"] for message in heard] == ["one", "one", "two", "two"]
        assert heard[1]["success"] is True
        feed.say("ping")
        assert feed.hear() == {"type": "pong"}
        feed.socket.send("nonsense")
        assert feed.hear()["type"] == "error"


@pytest.mark.parametrize("session", ["", "..", "x" * 65, "a%20b", "a/b"])
def test_a_socket_for_no_session_is_refused(running: Running, session: str) -> None:
    with pytest.raises(InvalidStatus) as refused, chatting(running, session):
        pass
    assert 400 <= refused.value.response.status_code < 500
