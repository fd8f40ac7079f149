"""Cron over HTTP: the jobs of the workspace, run, switched and read again."""

from __future__ import annotations

import json
import time
from pathlib import Path

from gateway_kit import Running, gateway

from lmagent.testing.script import say

JOB = {
    "id": "daily-check",
    "name": "Daily status check",
    "schedule": "daily 09:00",
    "prompt": "Check.",
    "enabled": True,
}


def write(running: Running, *jobs: dict) -> Path:
    file = running.workspace / "cron.json"
    file.write_text(json.dumps(list(jobs)))
    return file


def test_the_jobs_are_listed_with_what_is_wrong_in_their_file(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        assert running.ask("GET", "/api/cron").json == {"jobs": [], "problems": []}
        write(running, JOB, {"id": "broken", "schedule": "whenever", "prompt": "x"})
        listed = running.ask("GET", "/api/cron").json
        (job,) = listed["jobs"]
        assert (job["id"], job["enabled"], job["outcome"], job["runs"]) == ("daily-check", True, "", 0)
        assert job["next"] > time.time()
        assert "broken" in listed["problems"][0] or "whenever" in listed["problems"][0]
        assert running.ask("POST", "/api/cron/reload").json["jobs"] == listed["jobs"]


def test_reading_a_broken_file_again_is_not_ok(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        file = write(running, JOB)
        assert running.ask("POST", "/api/cron/reload").json["ok"] is True
        file.write_text("[{")
        answer = running.ask("POST", "/api/cron/reload").json
        assert answer["ok"] is False
        assert answer["problems"]


def test_a_job_is_run_at_once_and_its_run_is_told(tmp_path: Path) -> None:
    with gateway(tmp_path, [say("All is well.")]) as running:
        write(running, {**JOB, "session_id": "cron-daily-check"})
        begun = running.ask("POST", "/api/cron/daily-check/run")
        assert begun.status == 202, begun.body
        assert begun.json["job"].startswith("cron:daily-check:")
        deadline = time.monotonic() + 30
        while not running.ask("GET", "/api/cron").json["jobs"][0]["outcome"]:
            assert time.monotonic() < deadline, running.said
            time.sleep(0.1)
        (job,) = running.ask("GET", "/api/cron").json["jobs"]
        assert (job["outcome"], job["runs"]) == ("done", 1)
        history = running.ask("GET", "/api/sessions/cron-daily-check/history").json["messages"]
        assert [message["content"] for message in history] == ["Check.", "All is well."]


def test_a_job_that_is_switched_off_stays_so_and_can_be_switched_on(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        file = write(running, JOB)
        off = running.ask("POST", "/api/cron/daily-check/toggle").json
        assert (off["id"], off["enabled"]) == ("daily-check", False)
        assert json.loads(file.read_text())[0]["enabled"] is False
        running.kill()
        running.start()
        assert running.ask("GET", "/api/cron").json["jobs"][0]["enabled"] is False
        assert running.ask("POST", "/api/cron/daily-check/toggle").json["enabled"] is True


def test_a_job_that_is_not_there_is_told(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        write(running, JOB)
        for what in ("run", "toggle"):
            for id in ("nobody", "a%20b", "%2e%2e", "x" * 300):
                answer = running.ask("POST", f"/api/cron/{id}/{what}")
                assert (answer.status, answer.code) == (404, "not_found")
        assert running.anyone.ask("POST", "/api/cron/daily-check/run").status == 401


def test_a_job_is_made_changed_and_removed_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        other = {"id": "other", "schedule": "startup", "prompt": "x", "command": "true", "description": "mine"}
        file = write(running, other)
        job = {"id": "nightly", "schedule": "daily 02:30", "prompt": "Report.", "timezone": "Europe/Berlin"}
        made = running.ask("POST", "/api/jobs", job)
        assert (made.status, made.json["file"]) == (201, "cron.json"), made.body
        assert json.loads(file.read_text()) == [other, {**job, "enabled": True}]
        change = {"schedule": "every 2h", "prompt": "Report briefly.", "permission": "manual", "enabled": False}
        assert running.ask("POST", "/api/jobs/nightly", change).status == 200
        assert json.loads(file.read_text())[1] == {"id": "nightly", **change}
        (_, row) = running.ask("GET", "/api/cron").json["jobs"]
        assert (row["prompt"], row["permission"], row["enabled"]) == ("Report briefly.", "manual", False)
        running.ask("POST", "/api/jobs/other", {"schedule": "hourly :15", "prompt": "y"})
        assert json.loads(file.read_text())[0] == {**other, "schedule": "hourly :15", "prompt": "y", "enabled": True}
        assert running.ask("DELETE", "/api/jobs/nightly").status == 200
        assert [row["id"] for row in json.loads(file.read_text())] == ["other"]
        assert running.ask("DELETE", "/api/jobs/nightly").status == 404


def test_what_is_wrong_with_a_job_is_told_with_its_field_and_nothing_is_written(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        file = write(running, JOB)
        before = file.read_text()
        for field, value in (
            ("schedule", "whenever"),
            ("timezone", "Mars/Base"),
            ("id", "daily-check"),
            ("id", "a b"),
            ("prompt", ""),
            ("session_id", "../x"),
        ):
            job = {"id": "new", "schedule": "daily 09:00", "prompt": "x", field: value}
            answer = running.ask("POST", "/api/jobs", job)
            assert (answer.status, answer.code) == (400, f"invalid_{field}"), answer.body
        answer = running.ask("POST", "/api/jobs/daily-check", {"schedule": "never", "prompt": "x"})
        assert (answer.status, answer.code) == (400, "invalid_schedule")
        answer = running.ask("POST", "/api/jobs", {**JOB, "id": "new", "command": "rm -rf ."})
        assert answer.status == 400
        assert file.read_text() == before


def test_a_damaged_file_is_not_written_over(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        file = write(running, JOB)
        file.write_text("[{")
        answer = running.ask("POST", "/api/jobs", {"id": "new", "schedule": "daily 09:00", "prompt": "x"})
        assert (answer.status, answer.code) == (409, "not_written")
        assert "no JSON" in answer.json["error"]["message"]
        assert file.read_text() == "[{"


def test_a_schedule_is_previewed_with_its_next_three_times(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        asked = {"schedule": "daily 09:00", "timezone": "Europe/Berlin"}
        due = running.ask("POST", "/api/cron/preview", asked).json
        assert due["timezone"] == "Europe/Berlin"
        first, second, third = due["times"]
        assert first > time.time()
        assert second - first in (82_800, 86_400, 90_000)
        assert third > second
        assert running.ask("POST", "/api/cron/preview", {"schedule": "startup"}).json["times"] == []
        assert running.ask("POST", "/api/cron/preview", {"schedule": "soon"}).code == "invalid_schedule"
        assert running.ask("POST", "/api/cron/preview", {**asked, "timezone": "X"}).code == "invalid_timezone"
