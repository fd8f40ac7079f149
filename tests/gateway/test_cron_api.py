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
