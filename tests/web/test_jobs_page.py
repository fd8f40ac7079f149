"""Jobs are made, edited and deleted on the page."""

from __future__ import annotations

import json
from typing import Any

from gateway_kit import Running, gateway
from panel_kit import go, until
from web_kit import shot


def jobs(running: Running) -> list[dict[str, Any]]:
    files = [running.workspace / name for name in ("cron.json", ".lmagent/cron.json")]
    return [job for file in files if file.exists() for job in json.loads(file.read_text())]


def test_a_job_is_made_with_a_preview_of_its_next_three_runs(tmp_path, screen):
    with gateway(tmp_path) as running:
        page = screen(running)
        go(page, "#/p/schedule")
        page.get_by_role("button", name="New job").click()
        form = page.get_by_role("form", name="New job")
        form.get_by_label("Name").fill("Nightly report")
        form.get_by_label("Task").fill("Write the report.")
        form.get_by_label("Schedule").fill("daily 02:30")
        form.get_by_label("Time zone").fill("Europe/Berlin")
        form.get_by_text("Next runs (Europe/Berlin):").wait_for()
        assert form.locator(".next-runs li").count() == 3
        form.get_by_label("Permissions").select_option("manual")
        shot(page, tmp_path, "job-form")
        form.get_by_role("button", name="Create").click()
        page.get_by_role("listitem", name="Nightly report").get_by_text("daily 02:30").wait_for()
        (job,) = jobs(running)
        assert (job["id"], job["timezone"], job["permission"]) == ("nightly-report", "Europe/Berlin", "manual")
        shot(page, tmp_path, "jobs")


def test_an_error_is_at_its_field_and_nothing_that_was_typed_is_lost(tmp_path, screen):
    with gateway(tmp_path) as running:
        page = screen(running)
        go(page, "#/p/schedule")
        page.get_by_role("button", name="New job").click()
        form = page.get_by_role("form", name="New job")
        form.get_by_label("Name").fill("Sweep")
        form.get_by_role("button", name="Create").click()
        form.get_by_role("alert").get_by_text("This field is required.").wait_for()
        form.get_by_label("Task").fill("Sweep the floor.")
        form.get_by_label("Schedule").fill("whenever")
        form.get_by_role("button", name="Create").click()
        form.get_by_role("alert").get_by_text("'whenever' is not a valid schedule").wait_for()
        assert form.get_by_label("Schedule").get_attribute("aria-invalid") == "true"
        page.reload()
        page.get_by_role("button", name="New job").click()
        form.get_by_text("Your unsaved changes are restored.").wait_for()
        assert form.get_by_label("Task").input_value() == "Sweep the floor."
        form.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="New job").click()
        assert form.get_by_label("Task").input_value() == ""
        assert jobs(running) == []


def test_a_job_is_edited_and_deleted_and_its_other_fields_stay(tmp_path, screen):
    with gateway(tmp_path) as running:
        sweep = {"id": "sweep", "name": "Sweep", "schedule": "0 7 * * 1", "prompt": "Sweep.", "command": "true"}
        (running.workspace / "cron.json").write_text(json.dumps([sweep]))
        page = screen(running)
        go(page, "#/p/schedule")
        page.get_by_role("button", name="Edit Sweep").click()
        form = page.get_by_role("form", name="Edit Sweep")
        form.get_by_text("also runs a command").wait_for()
        form.get_by_label("Schedule").fill("every 2h")
        form.get_by_role("button", name="Save").click()
        page.get_by_role("listitem", name="Sweep").get_by_text("every 2h").wait_for()
        (job,) = jobs(running)
        assert (job["schedule"], job["command"], job["id"]) == ("every 2h", "true", "sweep")
        page.get_by_role("button", name="Edit Sweep").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_text("Delete this job?").wait_for()
        page.get_by_role("button", name="Delete", exact=True).click()
        until(lambda: jobs(running) == [], "the job is still there")
        page.get_by_text("No jobs").wait_for()
