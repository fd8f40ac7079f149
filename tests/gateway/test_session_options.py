"""A session's own sampling and instructions: set, honoured, kept, and free of a second reading of the conversation."""

from __future__ import annotations

from typing import Any

from gateway_kit import Running, gateway, shared, until

from lmagent.testing.script import call, say

MANY = [say(f"Answer {number}.") for number in range(9)]


def asked(running: Running, session: str, text: str = "hi") -> dict[str, Any]:
    """The request that a message of a session brings about."""
    before = len(running.model.chats)
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    turns = len(running.recorded("turn.finished"))
    command(running, session, type="submit", message=message)
    until(lambda: len(running.recorded("turn.finished")) > turns)
    return running.model.chats[before].fields


def command(running: Running, session: str, **wish: Any) -> None:
    answer = running.ask("POST", f"/api/sessions/{session}/commands", wish)
    assert answer.status == 202, answer.body


def slash(running: Running, session: str, line: str) -> str:
    return running.ask("POST", f"/api/sessions/{session}/slash", {"line": line}).json["text"]


def test_a_session_begins_with_its_own_sampling_and_others_keep_the_settings():
    with shared(MANY) as running:
        options = {"temperature": 0.1, "top_p": 0.5, "max_tokens": 700, "seed": 7, "presence_penalty": 0.25}
        own = running.ask("POST", "/api/sessions", {"options": options}).json["session"]
        other = running.ask("POST", "/api/sessions", {}).json["session"]
        request = asked(running, own)
        assert {name: request.get(name) for name in options} == options
        request = asked(running, other)
        assert (request["temperature"], request.get("top_p"), request.get("seed")) == (0.65, None, None)
        view = running.ask("GET", f"/api/sessions/{own}/view").json["view"]
        assert view["options"] == options


def test_options_of_a_session_that_runs_hold_from_the_next_call_and_after_a_crash(tmp_path):
    with gateway(tmp_path, MANY) as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        asked(running, session)
        command(running, session, type="set_options", options={"temperature": 0.0, "seed": 3})
        assert asked(running, session)["temperature"] == 0.0
        running.kill()
        running.start()
        request = asked(running, session)
        assert (request["temperature"], request["seed"]) == (0.0, 3)
        command(running, session, type="set_options", options={})
        request = asked(running, session)
        assert (request["temperature"], request.get("seed")) == (0.65, None)


def test_instructions_are_appended_so_that_nothing_sent_before_changes():
    with shared(MANY) as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        first = asked(running, session)["messages"]
        command(running, session, type="set_options", options={"instructions": "Answer in German."})
        second = asked(running, session, "and now?")["messages"]
        assert second[: len(first)] == first
        assert "Answer in German." in second[-1]["content"]
        third = asked(running, session, "again")["messages"]
        assert third[: len(second)] == second
        assert "Answer in German." not in third[-1]["content"]
        command(running, session, type="set_options", options={})
        assert "withdrawn the instructions" in asked(running, session, "last")["messages"][-1]["content"]


def test_a_sub_agent_samples_as_its_session_and_has_its_instructions():
    delegated = call("delegate", objective="count the files", task="count them")
    with shared([delegated, call("report_result", status="completed", summary="none"), *MANY]) as running:
        options = {"temperature": 0.3, "instructions": "Count hidden files too."}
        body = {"mode": "auto", "options": options}
        session = running.ask("POST", "/api/sessions", body).json["session"]
        asked(running, session, "delegate it")
        child = running.model.chats[1].fields
        assert child["temperature"] == 0.3
        assert "Count hidden files too." in str(child["messages"])


def test_values_that_are_not_allowed_are_refused_with_the_reason():
    with shared() as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        for options in (
            {"temperature": 9},
            {"top_p": -1},
            {"max_tokens": 0},
            {"instructions": "x" * 8001},
            {"seed": "a"},
        ):
            wish = {"type": "set_options", "options": options}
            answer = running.ask("POST", f"/api/sessions/{session}/commands", wish)
            assert answer.status == 400, options
            assert next(iter(options)) in answer.json["error"]["message"]
        assert running.recorded("options.changed") == []


def test_set_shows_and_changes_the_options_of_a_session():
    with shared(MANY) as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        assert "temperature        0.65     setting llm_temperature" in slash(running, session, "/set")
        assert "The conversation is not re-read" in slash(running, session, "/set temperature 0.2")
        assert "temperature        0.2      this session" in slash(running, session, "/set")
        slash(running, session, "/set instructions Answer briefly, and in French.")
        request = asked(running, session)
        assert request["temperature"] == 0.2
        assert "Answer briefly, and in French." in str(request["messages"])
        slash(running, session, "/set temperature default")
        assert "setting llm_temperature" in slash(running, session, "/set")
        slash(running, session, "/set default")
        assert "instructions       (none)" in slash(running, session, "/set")


def test_set_says_what_a_value_may_be():
    with shared() as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        for line, said in (
            ("/set temperature hot", "temperature must be a number from 0 to 5, not 'hot'"),
            ("/set max_tokens 0", "max_tokens must be a whole number of at least 1"),
            ("/set warmth 3", "/set does not know 'warmth 3'"),
        ):
            answer = running.ask("POST", f"/api/sessions/{session}/slash", {"line": line})
            assert said in answer.json["error"]["message"], answer.body
