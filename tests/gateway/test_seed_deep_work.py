"""Deep work of earlier clients: every task is planned, whatever became of the plan before, and nothing gets stuck."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import Running, gateway, shared, until
from seed_client import PLAN, chatting

from lmagent.testing.loopback import Received
from lmagent.testing.script import call, hang, say

AUTO = ("--permission", "auto")
"""Nobody has to decide about anything: the plan of deep work begins unread."""

WRITES = {"LMAGENT_PERMISSION_ALLOW": "write"}
"""Plans wait for a decision, calls that write do not."""


def chat(running: Running, message: str, mode: str | None = "deep_work", **fields: Any) -> dict[str, Any]:
    body = {"message": message, **({"mode": mode} if mode else {}), **fields}
    answer = running.ask("POST", "/api/chat/s", body, timeout=60)
    assert answer.status == 200, answer.body
    return answer.json


def decide(running: Running, decision: str) -> None:
    command = {"type": "decide_plan", "decision": decision}
    assert running.ask("POST", "/api/sessions/s/commands", command).status == 202


def worker(received: Received):
    """Plans where it is told to, and carries out what was approved."""
    messages = [str(message.get("content")) for message in received.body["messages"]]
    modes = [text for text in messages if "<work>" in text]
    if modes and "Plan mode" in modes[-1]:
        return say(PLAN)
    since = next((at for at, text in reversed(list(enumerate(messages))) if "The plan is approved" in text), 0)
    done = sum(message["role"] == "tool" for message in received.body["messages"][since:])
    if done == 0:
        return call("write", path="a.txt", content="hello")
    if done == 1:
        step = {"step_id": "one", "verification_notes": "read it"}
        return call("use_tool", name="plan_complete_step", arguments=step)
    return say("All done.")


def test_each_task_of_deep_work_is_planned_over_http() -> None:
    with shared(worker, **WRITES) as running:
        for number in (1, 2):
            answer = chat(running, f"task {number}")
            assert (answer["outcome"], answer["mode"]) == ("question", "deep_work"), answer
            assert answer["plan"]["title"] == "Report"
            decide(running, "approved")
            until(
                lambda number=number: (
                    len([e for e in running.recorded("turn.finished") if e["outcome"] == "done"]) == number
                )
            )
        assert len(running.recorded("plan.proposed")) == 2


def test_each_task_of_deep_work_is_planned_on_the_socket() -> None:
    with shared(worker, **WRITES) as running, chatting(running, "s") as client:
        client.say("set_mode", mode="deep_work")
        client.until("mode_changed")
        for _ in range(2):
            client.say("message", content="write the report")
            client.until("plan_ready")
            client.say("approve_plan")
            assert client.until("done")["mode"] == "deep_work"
        assert client.types().count("mode_changed") == 1  # it is deep work all the time


def test_a_task_that_comes_during_the_work_is_planned_when_that_is_done() -> None:
    with shared(worker, options=("--permission", "normal")) as running, chatting(running, "s") as client:
        client.say("set_mode", mode="deep_work")
        client.say("message", content="write the report")
        client.until("plan_ready")
        client.say("approve_plan")
        asked = client.until("approval_request")
        client.say("message", content="and another one")
        client.say("ping")
        client.until("pong")
        client.say("approval_response", tool_call_id=asked["tool_call_id"], approved=True)
        assert client.until("done")["text"] == "All done."  # what ran was not stopped from writing
        client.until("plan_ready")
    assert (running.workspace / "a.txt").read_text() == "hello"


def test_what_answers_the_agent_is_no_new_task() -> None:
    script = [say(PLAN), say("Which colour should it have?"), say("BLOCKED: no paint."), say("No paint here, either.")]
    with shared(script, **WRITES) as running, chatting(running, "s") as client:
        chat(running, "paint it")
        client.until("plan_ready")
        client.say("approve_plan")
        assert client.until("done")["outcome"] == "question"
        assert client.ask("blue")["outcome"] == "blocked"
        assert len(running.recorded("plan.proposed")) == 1


def test_a_plan_that_was_refused_is_followed_by_another_one() -> None:
    with shared(lambda _: say(PLAN)) as running:
        chat(running, "task 1")
        decide(running, "rejected")
        assert chat(running, "task 2")["plan"]["title"] == "Report"


def test_what_is_said_while_a_plan_waits_is_about_it_and_names_it() -> None:
    with shared([say(PLAN), say("Because it was asked for."), say("Yes.")], **WRITES) as running:
        chat(running, "task 1")
        answer = chat(running, "why this step?", mode=None)
        assert (answer["response"], answer["plan"]["title"]) == ("Because it was asked for.", "Report")
        decide(running, "approved")


def test_planning_that_was_stopped_begins_again_with_the_next_message() -> None:
    with (
        shared([hang(say("never ending"), chunks=1), say(PLAN)]) as running,
        chatting(running, "s") as client,
    ):
        client.say("set_mode", mode="deep_work")
        client.say("message", content="plan it")
        running.until_asked(left=1)
        client.say("stop")
        assert client.until("done")["outcome"] == "interrupted"
        client.say("message", content="plan it after all")
        client.until("plan_ready")


def test_work_that_was_stopped_is_planned_anew() -> None:
    with shared([say(PLAN), hang(say("never ending"), chunks=1), say(PLAN)]) as running:
        with chatting(running, "s") as client:
            chat(running, "task 1")
            client.until("plan_ready")
            client.say("approve_plan")
            running.until_asked(left=1)
            client.say("stop")
            assert client.until("done")["outcome"] == "interrupted"
            assert chat(running, "something else")["plan"]["title"] == "Report"


def test_a_budget_that_is_used_up_ends_no_session() -> None:
    with shared(worker, **WRITES, LMAGENT_DEEP_STEPS="2") as running:
        chat(running, "task 1")
        decide(running, "approved")
        until(lambda: any(event["outcome"] == "limit" for event in running.recorded("turn.finished")))
        assert chat(running, "task 2")["plan"]["title"] == "Report"


def test_a_mode_for_a_message_leaves_alone_what_runs() -> None:
    script = [call("shell", command="touch x"), say("Touched."), say(PLAN)]
    with shared(script) as running, chatting(running, "s") as client:
        client.say("message", content="touch x")
        asked = client.until("approval_request")
        message = {"message": "write the report", "mode": "deep_work"}
        running.leave("/api/chat/s", message, once=lambda: len(running.recorded("input.received")) == 2)
        client.say("approval_response", tool_call_id=asked["tool_call_id"], approved=True)
        assert client.until("done")["text"] == "Touched."
        client.until("plan_ready")
        assert [one["mode"] for one in client.heard if one["type"] == "mode_changed"] == ["deep_work"]


def test_a_mode_that_is_set_while_a_turn_runs_does_not_have_it_plan() -> None:
    script = [call("shell", command="touch x"), say("Touched."), say(PLAN)]
    with shared(script) as running, chatting(running, "s") as client:
        client.say("message", content="touch x")
        asked = client.until("approval_request")
        client.say("set_mode", mode="deep_work")
        assert client.until("mode_changed")["mode"] == "deep_work"
        client.say("approval_response", tool_call_id=asked["tool_call_id"], approved=True)
        assert client.until("done")["text"] == "Touched."
        client.say("message", content="now the report")
        client.until("plan_ready")


def test_a_plan_that_the_settings_approve_is_answered_with_what_came_of_it() -> None:
    with shared(worker, LMAGENT_APPROVE_PLANS="true", **WRITES) as running:
        answer = chat(running, "task 1")
        assert (answer["outcome"], answer["response"]) == ("done", "All done.")
        assert answer["plan"]["title"] == "Report"
        assert (running.workspace / "a.txt").read_text() == "hello"
        assert answer["iterations"] == 4  # the plan, two calls, the answer
        assert chat(running, "task 2")["response"] == "All done."


def test_deep_work_over_http_in_permission_mode_auto_returns_when_the_work_is_done() -> None:
    with shared(worker, options=AUTO) as running:
        answer = chat(running, "task 1")
        assert (answer["outcome"], answer["response"]) == ("done", "All done.")
        assert answer["plan"]["title"] == "Report"
        assert answer["iterations"] == 4  # the plan, two calls, the answer
        (decided,) = running.recorded("plan.decided")
        assert (decided["decision"], decided["by"]) == ("approved", "settings")


@pytest.mark.crash
@pytest.mark.long
def test_a_plan_that_waits_survives_the_gateway(tmp_path: Path) -> None:
    with gateway(tmp_path, worker, **WRITES) as running:
        chat(running, "task 1")
        running.kill()
        running.start()
        with chatting(running, "s") as client:
            client.until("plan_ready")
            client.say("approve_plan")
            client.until("thinking")
            running.kill()
        running.start()
        with chatting(running, "s") as client:
            until(lambda: any(event["outcome"] == "done" for event in running.recorded("turn.finished")))
            client.say("message", content="task 2")
            client.until("plan_ready")


@pytest.mark.crash
@pytest.mark.long
def test_a_task_that_waits_for_its_turn_is_planned_by_the_next_gateway(tmp_path: Path) -> None:
    script = [hang(say("never ending"), chunks=1), say("Hello."), say(PLAN)]
    with gateway(tmp_path, script) as running:
        with chatting(running, "s") as client:
            client.say("message", content="hello")
            client.until("thinking")
            message = {"message": "the report", "mode": "deep_work"}
            running.leave("/api/chat/s", message, once=lambda: len(running.recorded("input.received")) == 2)
            running.until_asked(left=2)
            assert [event["mode"] for event in running.recorded("work.changed")] == []
            running.kill()
        running.start()
        until(lambda: bool(running.recorded("plan.proposed")))
        said = [event["message"]["parts"][0]["text"] for event in running.recorded("input.received")]
        assert said == ["hello", "the report"]


def test_clear_leaves_the_mode_as_it_is() -> None:
    with shared([say(PLAN), say(PLAN)]) as running:
        with chatting(running, "s") as client, chatting(running, "s") as other:
            client.say("set_mode", mode="deep_work")
            for one in (client, other):
                one.until("mode_changed")
            client.say("message", content="plan it")
            client.until("plan_ready")
            client.say("clear")
            for one in (client, other):
                one.until("cleared")
            assert running.ask("GET", "/api/sessions/s/tasks").json["mode"] == "deep_work"
            client.say("message", content="plan something else")
            for one in (client, other):
                one.until("plan_ready")
                assert one.types().count("mode_changed") == 1
            assert "plan it" not in json.dumps(running.model.requests[-1].body["messages"])


def test_a_session_that_nobody_chose_a_mode_for_has_none_after_a_clear() -> None:
    with shared([say("Hi."), say("Hi again.")]) as running, chatting(running, "s") as client:
        client.ask("hello")
        client.say("clear")
        client.until("cleared")
        client.ask("hello")
        assert running.recorded("work.changed") == []


def test_who_is_in_a_session_that_was_deleted_is_told_its_new_mode() -> None:
    with shared([say(PLAN), say("One.")]) as running, chatting(running, "s") as client:
        client.say("set_mode", mode="deep_work")
        client.until("mode_changed")
        assert running.ask("DELETE", "/api/sessions/s").status == 200
        client.until("error")
        client.say("message", content="hi")
        assert client.until("mode_changed")["mode"] == "bounded"


@pytest.mark.crash
def test_work_on_a_plan_that_the_settings_approved_is_gone_on_with_after_a_kill(tmp_path: Path) -> None:
    done = call("use_tool", name="plan_complete_step", arguments={"step_id": "one", "verification_notes": "read it"})
    script = [say(PLAN), hang(say("never ending"), chunks=1), done, say("All done.")]
    with gateway(tmp_path, script, options=AUTO, LMAGENT_APPROVE_PLANS="true") as running:
        message = {"message": "task", "mode": "deep_work", "id": "m-1"}
        running.leave("/api/chat/s", message, once=lambda: running.model.left == 2)
        running.kill()
        running.start()
        until(lambda: any(event["answer"] == "All done." for event in running.recorded("turn.finished")))
        assert chat(running, "task", id="m-1")["response"] == "All done."
