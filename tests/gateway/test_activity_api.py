"""Activity over HTTP: what happened last, in one session or in all."""

from __future__ import annotations

import pytest
from gateway_kit import Running, gateway, shared

from lmagent.testing.script import call, say


def test_what_happened_is_told_the_newest_first() -> None:
    script = [call("ls"), say("It is empty."), call("read", path="nothing"), say("It is not there.")]
    with shared(script) as running:
        assert running.ask("GET", "/api/activity").json == {"activity": []}
        running.ask("POST", "/api/chat/one", {"message": "list them"})
        running.ask("POST", "/api/chat/two", {"message": "read it"})
        rows = running.ask("GET", "/api/activity?limit=50").json["activity"]
        kinds = ["done", "tool_result", "tool_call", "message"]
        assert [(row["session"], row["type"]) for row in rows] == [
            *(("two", kind) for kind in kinds),
            *(("one", kind) for kind in kinds),
        ]
        done, failed, called, asked = rows[:4]
        assert (done["summary"], done["status"], done["title"]) == ("It is not there.", "done", "read it")
        assert (failed["tool"], failed["status"]) == ("read", "error")
        assert (called["tool"], called["duration_ms"]) == ("read", 0)
        assert (asked["summary"], asked["session_id"]) == ("read it", "two")
        assert [row["ts"] for row in rows] == sorted((row["ts"] for row in rows), reverse=True)
        one = running.ask("GET", "/api/activity?session=one&limit=2").json["activity"]
        assert [(row["session"], row["type"]) for row in one] == [("one", "done"), ("one", "tool_result")]


def test_approvals_are_part_of_it() -> None:
    with shared([call("shell", command="touch x"), say("Not done.")]) as running:
        running.ask("POST", "/api/chat/s", {"message": "touch x", "approval_timeout": 0.2})
        rows = running.ask("GET", "/api/activity").json["activity"]
        told = {row["type"]: row for row in rows}
        assert (told["approval_request"]["tool"], told["approval_resolved"]["status"]) == ("shell", "denied")


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "session=" + "x" * 65, "before=1"])
def test_a_question_that_is_none_is_refused(running: Running, query: str) -> None:
    answer = running.ask("GET", f"/api/activity?{query}")
    assert (answer.status, answer.code) == (400, "invalid")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    with gateway(tmp_path_factory.mktemp("activity")) as started:
        yield started
