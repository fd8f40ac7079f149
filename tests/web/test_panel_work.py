"""A person sees what a session changed, what it has set itself to do, and who works for it."""

import json
import sys
from pathlib import Path

from gateway_kit import shared
from panel_kit import begun, command, go, region, told, until
from web_kit import session_of

from lmagent.testing.script import call, say, slow

sys.path.insert(0, str(Path(__file__).parents[1] / "agents"))
from agents_kit import by_brief, report, use

AUTO = ["--permission", "auto"]


def test_changes_stand_file_by_file_and_the_last_turn_is_undone_and_redone(screen):
    script = [
        call("write", path="a.txt", content="one\ntwo\n"),
        call("write", path="sub/b.txt", content="-- no heading\n++ nor this\n"),
        say("Both."),
        say("noted"),
    ]
    with shared(script, options=AUTO) as running:
        session = begun(running, "write both")
        page = screen(running)
        go(page, f"#/s/{session}/changes")
        changes = region(page, "Changes")
        region(page, "a.txt").get_by_text("+one").wait_for()
        assert changes.get_by_role("region", name="Changes of").count() == 2
        assert "+2" in region(page, "sub/b.txt").get_by_role("button").first.inner_text()
        assert changes.get_by_role("button", name="Redo").count() == 0  # nothing was undone
        changes.get_by_role("button", name="Undo last turn").click()
        changes.get_by_role("button", name="Cancel").click()
        assert (running.workspace / "a.txt").exists()
        changes.get_by_role("button", name="Undo last turn").click()
        changes.get_by_role("button", name="Undo", exact=True).click()
        changes.get_by_text("No changes yet").wait_for()
        assert not (running.workspace / "a.txt").exists()
        for name in ("a.txt", "sub/b.txt"):
            changes.get_by_role("button", name="Redo").click()
            changes.get_by_role("button", name="Redo", exact=True).click()
            region(page, name).wait_for()
        changes.get_by_role("button", name="Redo").wait_for(state="detached")
        assert (running.workspace / "a.txt").read_text() == "one\ntwo\n"


def test_a_session_that_changed_nothing_says_so(screen):
    with shared([say("hello")]) as running:
        session = begun(running, "hello")
        page = screen(running)
        go(page, f"#/s/{session}/changes")
        region(page, "Changes").get_by_text("No changes yet").wait_for()
        assert region(page, "Changes").get_by_role("button", name="Undo last turn").is_disabled()


def test_tasks_and_the_task_state_are_shown_while_they_change(screen):
    with shared([say("hello")]) as running:
        session = begun(running, "hello")
        page = screen(running)
        go(page, f"#/s/{session}/work")
        tasks = region(page, "Tasks")
        tasks.get_by_text("No tasks yet").wait_for()
        steps = [
            {"id": "1", "kind": "step", "title": "Read it", "status": "completed"},
            {"id": "2", "kind": "step", "title": "Write it", "verification": "it is there", "depends_on": ["1"]},
        ]
        command(running, session, type="change_tasks", items=steps)
        tasks.get_by_text("Write it").wait_for()
        assert "1 of 2" in tasks.get_by_role("heading", name="Plan").inner_text()
        tasks.get_by_text("2: details").click()
        assert tasks.get_by_text("it is there").is_visible()
        state = {"objective": "rename all files", "total_count": 4, "processed_count": 1, "next_action": "rename b.txt"}
        command(running, session, type="change_tasks", state=state)
        region(page, "Task state").get_by_text("rename b.txt").wait_for()
        assert "1 of 4" in region(page, "Task state").inner_text()
        command(running, session, type="change_tasks", items=[{**steps[1], "status": "completed"}])
        region(page, "Plan").get_by_text("2 of 2").wait_for()


def test_a_sub_agent_is_seen_told_something_stopped_and_its_session_opened(screen):
    script = {
        "": [use("delegate", objective="Find the port"), say("I asked.")],
        "Find the port": [
            call("read", path="port.txt"),
            slow(call("read", path="port.txt"), first=60.0),
            report("ok", "8080"),
        ],
    }
    with shared(by_brief(script), options=AUTO) as running:
        (running.workspace / "port.txt").write_text("8080\n")
        session = begun(running, "Ask somebody", done=False)
        page = screen(running)
        go(page, f"#/s/{session}/work")
        agents = region(page, "Sub-agents")
        agents.get_by_text("Find the port").wait_for()
        agents.get_by_role("button", name="Send a message").click()
        agents.get_by_label("Message to Find the port").fill("It is in port.txt")
        agents.get_by_role("button", name="Send", exact=True).click()
        page.get_by_text("Will be delivered after the sub-agent's current step").wait_for()
        until(lambda: any("It is in port.txt" in json.dumps(event) for event in running.logs()), "it was told nothing")
        agents.get_by_role("button", name="Stop", exact=True).click()
        agents.get_by_role("button", name="Stop now").click()
        agents.get_by_text("working").wait_for(state="detached")
        agents.get_by_role("link", name="Open the session of Find the port").click()
        until(lambda: session_of(page) not in ("", session), "its session does not open")
        page.get_by_role("region", name="Conversation").get_by_text("Find the port").first.wait_for()
        nested = region(page, "Sessions").get_by_role("button", name="1 sub-agent")
        nested.click()
        region(page, "Sessions").get_by_role("listitem").nth(1).wait_for()


def test_undo_waits_for_the_end_of_the_turn(screen):
    script = [call("write", path="a.txt", content="1\n"), say("one"), slow(say("two"), first=60.0)]
    with shared(script, options=AUTO) as running:
        session = begun(running, "write")
        told(running, session, "and now slowly", done=False)
        page = screen(running)
        go(page, f"#/s/{session}/changes")
        region(page, "Changes").get_by_text("Available when the turn ends").wait_for()
        assert region(page, "Changes").get_by_role("button", name="Undo last turn").is_disabled()
        page.get_by_role("button", name="Stop", exact=True).click()
        region(page, "Changes").get_by_text("Available when the turn ends").wait_for(state="detached")
        undo = region(page, "Changes").get_by_role("button", name="Undo last turn")
        until(undo.is_enabled, "it cannot be undone")
