"""Usage over HTTP: tokens by day, model and session, for a range of local days."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from gateway_kit import Running, gateway, shared

from lmagent.gateway.api.usage import first_day
from lmagent.store.spent import day_of
from lmagent.testing.script import call, say


def chat(running: Running, session: str, text: str) -> dict:
    answer = running.ask("POST", f"/api/chat/{session}", {"message": text})
    assert answer.status == 200, answer.body
    return answer.json["usage"]


def test_what_turns_took_is_told_by_day_model_and_session() -> None:
    with shared([call("ls"), say("One."), say("Two.")]) as running:
        empty = running.ask("GET", "/api/usage").json
        assert (empty["range"], empty["totals"]["steps"], empty["by_day"]) == ("7d", 0, [])
        first, second = chat(running, "one", "first question"), chat(running, "two", "second question")
        usage = running.ask("GET", "/api/usage?range=today").json
        counted = {name: first[name] + second[name] for name in ("prompt_tokens", "completion_tokens", "cached_tokens")}
        assert usage["totals"] == {"steps": 3, "sessions": 2, **counted}
        assert [row["steps"] for row in usage["by_day"]] == [3]
        assert [row["model"] for row in usage["by_model"]] == ["scripted"]
        assert {(row["session"], row["session_id"], row["title"], row["steps"]) for row in usage["by_session"]} == {
            ("one", "one", "first question", 2),
            ("two", "two", "second question", 1),
        }


def test_a_range_takes_in_the_last_days_and_no_more(tmp_path: Path) -> None:
    with gateway(tmp_path, [say("Now.")]) as running:
        chat(running, "old", "long ago")
        running.stop()
        log = running.workspace / ".lmagent" / "sessions" / "old" / "events.jsonl"
        events = [json.loads(line) for line in log.read_text().splitlines()]
        for event in events:
            event["ts"] -= 10 * 86_400
        log.write_text("".join(json.dumps(event) + "\n" for event in events))
        running.start()
        steps = {
            name: running.ask("GET", f"/api/usage?range={name}").json["totals"]["steps"]
            for name in ("today", "7d", "30d", "all")
        }
        assert steps == {"today": 0, "7d": 0, "30d": 1, "all": 1}


def test_a_range_ends_today_and_counts_today() -> None:
    now = datetime.datetime(2026, 3, 8, 12).timestamp()
    assert day_of(now) == "2026-03-08"
    assert first_day("today", now) == "2026-03-08"
    assert first_day("7d", now) == "2026-03-02"
    assert first_day("30d", now) == "2026-02-07"
    assert first_day("all", now) == ""


@pytest.mark.parametrize("query", ["range=1d", "range=", "from=x", "range=7d&range=all"])
def test_a_range_that_is_none_is_refused(running: Running, query: str) -> None:
    answer = running.ask("GET", f"/api/usage?{query}")
    assert (answer.status, answer.code) == (400, "invalid")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    with gateway(tmp_path_factory.mktemp("usage")) as started:
        yield started
