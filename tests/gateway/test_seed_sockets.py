"""The socket of earlier clients: a conversation, its approvals and plans, whoever joins, goes or dies."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from gateway_kit import NO_MESSAGES, Running, gateway, held, shared, until
from seed_client import PLAN, chatting

from lmagent.testing.loopback import Received
from lmagent.testing.script import call, hang, say, slow


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    with gateway(tmp_path_factory.mktemp("seed"), [say("never asked")]) as started:
        yield started


def test_a_conversation_over_the_socket() -> None:
    with shared([call("ls"), say("Here are your files.")]) as running, chatting(running, "ws-1") as client:
        client.say("ping")
        assert client.hear() == {"type": "pong"}
        done = client.ask("List them")
        assert client.types()[1:] == ["thinking", "tool_call", "tool_result", "thinking", "text", "done"]
        heard = {message["type"]: message for message in client.heard}
        assert heard["tool_call"].keys() >= {"tool", "input", "tool_call_id"}
        assert heard["tool_result"].keys() >= {"tool", "result_preview", "duration_ms", "success"}
        assert heard["text"]["text"] == done["text"] == "Here are your files."
        assert (done["iterations"], done["mode"]) == (2, "bounded")
        assert done.keys() >= {"model", "usage"}
        assert running.ask("GET", "/api/sessions/ws-1/history").status == 200


@pytest.mark.parametrize(
    "sent",
    [
        *(*NO_MESSAGES, "{", b'{"type": "dance"}'),
        *('{"type": "message"}', '{"type": "message", "content": " "}', '{"type": "message", "content": 5}'),
        *('{"type": "set_mode", "mode": "wild"}', '{"type": "stop"}', '{"type": "approve_plan"}'),
        *('{"type": "approval_response"}', '{"type": "approval_response", "tool_call_id": "x", "approved": true}'),
    ],
)
def test_what_is_no_message_is_answered_and_the_socket_stays(running: Running, sent: str | bytes) -> None:
    with chatting(running, "never-begun") as client:
        client.socket.send(sent)
        error = client.hear()
        assert error["type"] == "error"
        assert error["message"]
        client.say("ping")
        assert client.hear() == {"type": "pong"}
    assert running.logs() == []


def test_messages_are_read_while_a_turn_runs() -> None:
    with shared([hang(say("never ending"), chunks=1), say("Next.")]) as running:
        with chatting(running, "s") as client:
            client.say("message", content="go")
            client.until("thinking")
            running.until_asked(left=1)
            client.say("ping")
            client.until("pong")
            client.say("stop")
            assert client.until("done")["outcome"] == "interrupted"
            assert client.ask("and now?")["text"] == "Next."


def test_a_call_that_is_denied_is_not_run() -> None:
    with shared([call("shell", command="touch x"), say("As you wish.")]) as running:
        with chatting(running, "s") as client:
            client.say("message", content="touch x")
            asked = client.until("approval_request")
            assert asked["tool"] == "shell"
            assert asked["input"]["command"] == "touch x"
            assert asked["reason"]
            client.say("approval_response", tool_call_id=asked["tool_call_id"], approved=False)
            resolved = client.until("approval_resolved")
            assert (resolved["tool_call_id"], resolved["approved"]) == (asked["tool_call_id"], False)
            assert client.until("done")["text"] == "As you wish."
        assert not (running.workspace / "x").exists()


def test_who_joins_late_is_told_what_waits_and_both_hear_the_rest() -> None:
    with shared([call("shell", command="touch x"), say("Done.")]) as running:
        with chatting(running, "s") as first:
            first.say("message", content="touch x")
            asked = first.until("approval_request")
            with chatting(running, "s") as second:
                assert second.hear() == asked
                second.say("approval_response", tool_call_id=asked["tool_call_id"], approved=True)
                for client in (first, second):
                    assert client.until("approval_resolved")["approved"] is True
                    assert client.until("done")["text"] == "Done."
                assert first.heard[-1] == second.heard[-1]  # with what the whole turn took
                second.say("approval_response", tool_call_id=asked["tool_call_id"], approved=True)
                assert second.hear()["type"] == "error"  # it is answered already


def delegating(received: Received):
    """The session delegates; its sub-agent writes a file and reports."""
    messages = received.body["messages"]
    told = max((at for at, item in enumerate(messages) if "Objective: " in str(item["content"])), default=-1)
    done = sum(item["role"] == "assistant" for item in messages[told + 1 :])
    if told < 0:
        return call("use_tool", name="delegate", arguments={"objective": "write it"}) if done == 0 else say("All done.")
    report = call("use_tool", name="report_result", arguments={"status": "ok", "summary": "Written."})
    return call("write", path="b.txt", content="beta") if done == 0 else report


def test_what_a_sub_agent_asks_is_asked_and_answered_here() -> None:
    with shared(delegating) as running, chatting(running, "s") as first:
        first.say("message", content="have it written")
        asked = first.until("approval_request")
        assert asked["tool"] == "write"
        assert "b.txt" in asked["summary"]
        with chatting(running, "s") as second:
            assert second.until("approval_request")["tool_call_id"] == asked["tool_call_id"]
            second.say("approval_response", tool_call_id=asked["tool_call_id"], approved=True)
            for client in (first, second):
                assert client.until("approval_resolved")["approved"] is True
                assert client.until("done")["text"] == "All done."
        assert (running.workspace / "b.txt").read_text() == "beta"


def test_closing_the_page_ends_no_run() -> None:
    gate = threading.Event()
    with shared([held(say("Finished."), gate)]) as running:
        with chatting(running, "s") as client:
            client.say("message", content="go")
            client.until("thinking")
        with chatting(running, "s") as client:
            gate.set()
            assert client.until("done")["text"] == "Finished."


def test_a_mode_is_set_and_told_to_all() -> None:
    with shared([say(PLAN), say(PLAN)]) as running:
        with chatting(running, "s") as client:
            client.say("set_mode", mode="deep_work")
            assert client.hear() == {"type": "mode_changed", "mode": "deep_work"}
            client.say("message", content="plan it")
            thinking = client.until("thinking")
            assert thinking.keys() >= {"iteration", "max_iterations", "tokens_used", "token_budget", "task_summary"}
            assert thinking["max_iterations"] == 200  # the budget of deep work holds from the planning on
            assert client.until("plan_ready")["plan"]["goal"] == "a.txt says hello"
            client.say("revise_plan", feedback="shorter")
            client.until("plan_ready")
            client.say("set_mode", mode="bounded")
            assert client.until("mode_changed")["mode"] == "bounded"


def test_what_is_left_open_is_told_without_words_of_a_terminal() -> None:
    script = [say(PLAN), *[say("It is done.")] * 4]
    with shared(script, options=("--permission", "auto")) as running, chatting(running, "s") as client:
        client.say("set_mode", mode="deep_work")
        client.say("message", content="write the report")
        assert client.until("error")["message"] == "incomplete: 1 task is open: one"
        (end,) = [event for event in running.recorded("turn.finished") if event["outcome"] == "error"]
        assert "--continue" in end["terminal"]


def test_tasks_are_told_as_they_change() -> None:
    script = [say(PLAN), say("I stop here.")]
    with shared(script, options=("--permission", "auto")) as running:
        with chatting(running, "s") as client:
            client.say("set_mode", mode="deep_work")
            client.say("message", content="plan it")
            client.until("plan_ready")
            client.say("approve_plan", feedback="go")
            update = client.until("task_update")
            assert [task["title"] for task in update["tasks"]] == ["write a.txt"]
            assert update["summary"]


def test_a_second_client_of_a_session_that_is_only_begun_hears_it_from_its_first_word() -> None:
    with shared([say("Hello.")]) as running:
        with chatting(running, "both") as client, chatting(running, "both") as other:
            client.ask("hi")
            other.until("done")
            assert other.types() == client.types()


def test_clear_begins_anew_and_keeps_the_old_conversation_under_another_id() -> None:
    with shared([say("Blue."), say("I do not know.")]) as running:
        with chatting(running, "s") as client, chatting(running, "s") as other:
            client.ask("My colour is blue. Which is it?")
            other.until("done")
            assert len(running.ask("GET", "/api/sessions/s/view").json["view"]["blocks"]) == 2
            client.say("clear")
            for one in (client, other):
                one.until("cleared")
            assert running.ask("GET", "/api/sessions/s/history").json["messages"] == []
            assert running.ask("GET", "/api/sessions/s/view").json["view"]["blocks"] == []
            assert client.ask("Which is it?")["text"] == "I do not know."
            assert other.until("done")["text"] == "I do not know."
            assert "blue" not in json.dumps(running.model.requests[-1].body["messages"]).lower()
        folders = [path.name for path in (running.workspace / ".lmagent" / "sessions").iterdir()]
        (aside,) = [name for name in folders if name != "s"]
        assert aside.startswith("s.")
        kept = running.ask("GET", f"/api/sessions/{aside}/history").json["messages"]
        assert [message["content"] for message in kept] == ["My colour is blue. Which is it?", "Blue."]
        assert running.ask("GET", "/api/usage?range=all").json["totals"]["steps"] == 2


@pytest.mark.crash
@pytest.mark.long
def test_a_kill_while_it_is_cleared_loses_no_conversation(tmp_path: Path) -> None:
    with gateway(tmp_path, lambda _: say("Noted.")) as running:
        for number, delay in enumerate((0.0, 0.001, 0.002, 0.004, 0.008, 0.03)):
            session, words = f"s{number}", f"my colour is number {number}"
            with chatting(running, session) as client:
                client.ask(words)
                client.say("clear")
                time.sleep(delay)
                running.kill()
            running.start()
            held = [
                row["id"]
                for row in running.ask("GET", "/api/sessions?limit=500").json["sessions"]
                if words in running.ask("GET", f"/api/sessions/{row['id']}/history").body.decode()
            ]
            assert held, f"lost after {delay} s"
            again = running.ask("POST", f"/api/chat/{session}", {"message": "hello again"})
            assert again.json["response"] == "Noted."


def test_a_message_that_comes_with_a_clear_is_answered_in_the_new_conversation() -> None:
    with shared(lambda _: slow(say("Answered."), first=0.1)) as running, chatting(running, "s") as client:
        with chatting(running, "s") as other:
            client.ask("hello")
            for number in range(4):
                other.say("message", content=f"before {number}")
                client.say("clear")
                for text in ("behind", "last"):
                    other.say("message", content=f"{text} {number}")
                client.until("cleared")
            while [one["text"] for one in client.heard if one["type"] == "text"].count("Answered.") < 3:
                client.hear()

            def is_answered() -> bool:
                said = running.ask("GET", "/api/sessions/s/history").json["messages"]
                roles = [message["role"] for message in said]
                is_there = "last 3" in [message["content"] for message in said]
                return is_there and roles.count("user") == roles.count("assistant")

            until(is_answered)
        assert "error" not in client.types()


def test_clear_leaves_nothing_behind_where_nothing_was_said() -> None:
    with shared([say("Hi.")]) as running, chatting(running, "s") as client:
        client.ask("hello")
        for _ in range(3):
            client.say("clear")
            client.until("cleared")
        assert len(running.ask("GET", "/api/sessions").json["sessions"]) == 2


def test_clear_interrupts_what_runs() -> None:
    with shared([hang(say("never ending"), chunks=1), say("Fresh.")]) as running:
        with chatting(running, "s") as client:
            client.say("clear")
            assert client.hear() == {"type": "cleared"}  # there was nothing yet
            client.say("message", content="go")
            running.until_asked(left=1)
            client.say("clear")
            client.until("cleared")
            assert client.ask("hello")["text"] == "Fresh."


def test_a_session_that_is_deleted_is_told_and_begun_anew_by_a_message() -> None:
    with shared([say("One."), say("Two.")]) as running:
        with chatting(running, "s") as client:
            client.ask("hi")
            assert running.ask("DELETE", "/api/sessions/s").status == 200
            assert "deleted" in client.until("error")["message"]
            assert client.ask("hi again")["text"] == "Two."


def test_a_message_that_was_taken_survives_the_process(tmp_path: Path) -> None:
    gate = threading.Event()
    with gateway(tmp_path, [hang(say("cut off"), chunks=1), held(say("Finished after all."), gate)]) as running:
        with chatting(running, "s") as client:
            client.say("message", content="go")
            running.until_asked(left=1)
        running.kill()
        running.start()
        with chatting(running, "s") as client:
            gate.set()
            assert client.until("done", 40)["text"] == "Finished after all."
        said = [event for event in running.logs() if event["type"] == "input.received"]
        assert len(said) == 1
