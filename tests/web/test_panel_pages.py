"""A person looks at activity, jobs, usage, models and tools."""

import json
import re

from gateway_kit import Running, gateway, shared
from panel_kit import begun, go, region, told, until

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

MARK = "<img src=x onerror=alert(1)>"


def heading(page, name):
    return page.get_by_role("heading", name=name, exact=True)


# --- activity -------------------------------------------------------------------------------------------------------


def test_activity_shows_all_sessions_live_and_is_filtered_by_kind_and_session(screen):
    script = [call("read", path="a.txt"), say("It says hello."), say("Second.")]
    with shared(script) as running:
        (running.workspace / "a.txt").write_text("hello")
        first = begun(running, f"What does a.txt say? {MARK}")
        page = screen(running)
        go(page, "#/p/activity")
        lines = page.locator(".activity > li")
        page.locator(".activity").get_by_text("read a.txt").wait_for()
        assert lines.first.inner_text().startswith("Finished It says hello.")
        begun(running, "Something else")
        page.locator(".activity").get_by_text("Finished Second.").wait_for()
        page.get_by_role("button", name="Tools").click()
        until(lambda: lines.count() == 2, "other kinds are still shown")
        page.get_by_role("button", name="Everything").click()
        page.get_by_role("combobox", name="Session").select_option(first)
        page.locator(".activity").get_by_text("Second.").wait_for(state="detached")
        assert page.url.endswith(f"/activity/{first}")
        assert page.locator("main img").count() == 0
        assert page.locator(".activity").get_by_text(MARK).count() == 1


def test_activity_without_any_says_what_will_stand_there(screen):
    with shared() as running:
        page = screen(running)
        go(page, "#/p/activity")
        page.get_by_text("Nothing yet").wait_for()


# --- schedule -------------------------------------------------------------------------------------------------------


def test_a_job_links_to_its_session_only_once_it_has_run(screen):
    with shared([say("Swept.")]) as running:
        job = {"id": "sweep", "schedule": "0 7 * * 1", "prompt": "Sweep the floor.", "session_id": "sweeping"}
        (running.workspace / "cron.json").write_text(json.dumps([job]))
        page = screen(running)
        go(page, "#/p/schedule")
        page.get_by_text("sweeping").wait_for()
        assert page.get_by_role("main").get_by_role("link", name="sweeping").count() == 0
        page.get_by_role("button", name="Run now").click()
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_role("main").get_by_role("link", name="sweeping").click()
        page.get_by_text("Swept.").wait_for()


def test_jobs_are_switched_run_and_read_again_and_problems_of_the_file_are_told(screen):
    with shared([say("All swept.")], options=["--permission", "auto"]) as running:
        file = running.workspace / "cron.json"
        jobs = [{"id": "sweep", "name": "Sweep up", "schedule": "0 7 * * 1", "prompt": "Sweep the floor."}]
        file.write_text(json.dumps(jobs))
        page = screen(running)
        go(page, "#/p/schedule")
        job = page.get_by_role("listitem", name="Sweep up")
        switch = job.get_by_role("switch", name="Sweep up: enabled")
        assert switch.is_checked()
        switch.click()
        job.get_by_text("None: the job is off").wait_for()
        assert json.loads(file.read_text())[0]["enabled"] is False
        job.get_by_role("button", name="Run now").click()
        job.get_by_role("button", name="Run", exact=True).click()
        job.get_by_text("done").wait_for()
        region(page, "Sessions").get_by_text("Sweep the floor.").wait_for()
        file.write_text(json.dumps([*jobs, {"id": "odd", "schedule": "whenever", "prompt": "x"}]))
        page.get_by_role("button", name="Reload file").click()
        page.get_by_text("'whenever' is not a valid schedule").wait_for()


def test_without_jobs_the_page_says_how_to_make_one(screen):
    with shared() as running:
        page = screen(running)
        go(page, "#/p/schedule")
        page.get_by_text("Create one here").wait_for()
        page.get_by_role("button", name="New job").wait_for()


def test_a_session_that_waits_for_a_time_stands_with_when_it_goes_on(screen):
    with shared([say("WAIT: +3600s: the build")]) as running:
        begun(running, "Look again in an hour")
        page = screen(running)
        go(page, "#/p/schedule")
        waiting = region(page, "Sessions that continue by themselves")
        waiting.get_by_text("Look again in an hour").wait_for()
        waiting.get_by_text(re.compile("in (59|60) min|in 1 h")).wait_for()


# --- usage ----------------------------------------------------------------------------------------------------------


def test_usage_stands_by_model_and_session_and_grows_while_one_looks(screen):
    with shared([say("one"), say("two")]) as running:
        session = begun(running, "Count this")
        page = screen(running)
        go(page, "#/p/usage")
        table = region(page, "By session, table")
        table.get_by_role("link", name="Count this").wait_for()
        told_tokens = running.ask("GET", "/api/usage?range=7d").json["totals"]["prompt_tokens"]
        assert f"{told_tokens:,}" in page.locator(".totals").inner_text()
        told(running, session, "and again")
        calls = page.locator(".totals .card").nth(3)
        until(lambda: calls.inner_text().startswith("Model calls\n2"), "the second call is not counted")
        page.get_by_role("button", name="Today").click()
        until(lambda: page.url.endswith("/usage/today"), "the range is not in the address")
        table.get_by_role("link", name="Count this").click()
        page.get_by_text("one", exact=True).wait_for()


def test_several_days_are_drawn_as_bars_and_told_to_who_cannot_see_them(screen):
    day = {"steps": 1, "prompt_tokens": 900, "completion_tokens": 100, "cached_tokens": 400}
    more = {"steps": 2, "prompt_tokens": 3000, "completion_tokens": 500, "cached_tokens": 0}
    totals = {"steps": 3, "prompt_tokens": 3900, "completion_tokens": 600, "cached_tokens": 400, "sessions": 1}
    days = [{"day": "2026-01-05", **day}, {"day": "2026-01-08", **more}]
    answer = {"range": "7d", "totals": totals, "by_day": days, "by_model": [], "by_session": []}
    with shared() as running:
        page = screen(running)
        page.route("**/api/usage?*", lambda route: route.fulfill(json=answer))
        go(page, "#/p/usage")
        chart = page.get_by_role("img", name="Tokens by day")
        chart.wait_for()
        assert "The highest is 3,500 on 2026-01-08" in chart.get_attribute("aria-label")
        heights = page.locator("rect.fresh").evaluate_all("bars => bars.map((bar) => bar.height.baseVal.value)")
        assert len(heights) == 4  # days between count as well
        assert heights[1:3] == [0, 0]
        assert heights[0] < heights[3]


def test_nothing_spent_is_said_so(screen):
    with shared() as running:
        page = screen(running)
        go(page, "#/p/usage/today")
        page.get_by_text("No usage yet").wait_for()


# --- models ---------------------------------------------------------------------------------------------------------


def test_a_model_is_chosen_after_its_cost_is_told_and_kept(tmp_path, screen):
    with gateway(tmp_path) as running:
        [name] = [row["id"] for row in running.ask("GET", "/api/models").json["models"]]
        page = screen(running)
        go(page, "#/p/models")
        page.get_by_text("no longer lists scripted").wait_for()
        card = page.get_by_role("listitem", name=name)
        card.get_by_role("button", name="Set as default").click()
        card.get_by_text("The first prompt is read in full").wait_for()
        card.get_by_role("button", name="Set as default").click()
        card.get_by_text("Default", exact=True).wait_for()
        assert running.ask("GET", "/api/models").json["current"] == name


def test_a_model_server_that_is_gone_is_a_readable_state_and_comes_back(tmp_path, screen):
    with ScriptedServer([]) as gone:
        running = Running(tmp_path, gone, [], {})
    running.start()
    try:
        page = screen(running)
        go(page, "#/p/models")
        page.get_by_text("The model server does not answer.").wait_for()
        with ScriptedServer([], port=gone.port):
            page.get_by_role("button", name="Refresh").click()
            page.get_by_role("listitem", name="test-model").wait_for()
    finally:
        running.stop()


# --- tools ----------------------------------------------------------------------------------------------------------


def test_tools_are_found_and_told_with_effect_and_parameters(screen):
    with shared() as running:
        page = screen(running)
        go(page, "#/p/tools")
        page.get_by_role("searchbox", name="Search tools").fill("write_file")
        tool = page.get_by_role("button", name="write")
        tool.click()
        assert "Changes files" in tool.inner_text()
        table = region(page, "Parameters")
        assert table.get_by_role("rowheader", name="path Required").count() == 1
        page.get_by_role("searchbox", name="Search tools").fill("no such tool at all")
        page.get_by_text("No results for").wait_for()


def test_what_the_gateway_cannot_answer_is_said_and_asked_again(screen):
    with shared() as running:
        page = screen(running)
        fault = {"error": {"code": "fault", "message": "the disk is full", "fix": "make room"}}
        page.route("**/api/tools", lambda route: route.fulfill(status=409, json=fault))
        go(page, "#/p/tools")
        page.get_by_text("Cannot show the tools: the disk is full").wait_for()
        page.unroute("**/api/tools")
        page.get_by_role("button", name="Try again").click()
        page.get_by_role("button", name="read").first.wait_for()


def test_an_address_without_a_page_is_a_readable_state(screen):
    with shared() as running:
        page = screen(running)
        go(page, "#/p/no-such-page")
        page.get_by_role("link", name="Back to the first screen").click()
        page.get_by_role("heading", name="What shall we work on?").wait_for()
