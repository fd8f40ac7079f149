"""Where long work stands is answered over HTTP."""

from gateway_kit import shared
from seed_client import PLAN

from lmagent.testing.script import say


def test_the_task_state_and_the_approved_plan_are_told():
    with shared() as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        path = f"/api/sessions/{session}"
        assert running.ask("GET", f"{path}/work").json == {"state": None, "plan": None}
        state = {"objective": "rename all", "total_count": 3, "processed_count": 1, "next_action": "rename b"}
        running.ask("POST", f"{path}/commands", {"type": "change_tasks", "state": state})
        assert running.ask("GET", f"{path}/work").json["state"] == {**state, "rename_map": {}}
        running.ask("POST", f"{path}/commands", {"type": "change_tasks", "state": {}})
        assert running.ask("GET", f"{path}/work").json["state"] is None


def test_a_session_that_is_not_there_is_said_to_be_missing():
    with shared() as running:
        answer = running.ask("GET", "/api/sessions/20200101_000000_abcdef/work")
        assert (answer.status, answer.code) == (404, "not_found")


def test_what_the_page_shows_names_no_command_of_a_terminal():
    with shared([say(PLAN)]) as running:
        answer = running.ask("POST", "/api/chat/s", {"message": "the report", "mode": "deep_work"}, timeout=60).json
        assert answer["plan"]["title"] == "Report"
        shown = running.ask("GET", "/api/sessions/s/view")
        assert shown.json["view"]["plan"]["plan"]["title"] == "Report"
        assert b"lmagent plan" not in shown.body
        missing = running.ask("GET", "/api/sessions/cron-daily-check/view")
        assert (missing.status, b"lmagent" in missing.body) == (404, False)
