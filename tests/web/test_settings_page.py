"""The settings of lmagent and of a session are seen and changed on the page."""

from __future__ import annotations

from gateway_kit import gateway, shared
from panel_kit import begun, go, region, until
from web_kit import ask, box, finished, shot

from lmagent.testing.script import say


def test_a_setting_is_found_changed_and_reset(tmp_path, screen):
    with gateway(tmp_path) as running:
        page = screen(running)
        go(page, "#/p/settings")
        everything = region(page, "All settings")
        everything.get_by_role("searchbox", name="Search settings").fill("temperature")
        row = everything.get_by_role("listitem", name="llm_temperature")
        row.get_by_text("0.65", exact=True).wait_for()
        row.get_by_role("button", name="Change llm_temperature").click()
        field = row.get_by_role("textbox", name="llm_temperature")
        field.fill("warm")
        row.get_by_role("button", name="Save").click()
        row.get_by_text("must be a number from 0 to 5").wait_for()
        assert field.input_value() == "warm"
        field.fill("0.3")
        row.get_by_role("button", name="Save").click()
        row.get_by_text("Your configuration").wait_for()
        row.get_by_text("Default: 0.65").wait_for()
        shot(page, tmp_path, "settings-changed")
        row.get_by_role("button", name="Change llm_temperature").click()
        row.get_by_role("button", name="Reset").click()
        row.get_by_role("button", name="Reset").click()
        row.get_by_text("0.65", exact=True).wait_for()


def test_a_setting_that_guards_something_offers_no_change(screen):
    with shared() as running:
        page = screen(running)
        go(page, "#/p/settings")
        everything = region(page, "All settings")
        everything.get_by_role("searchbox").fill("sandbox_hosts")
        row = everything.get_by_role("listitem", name="sandbox_hosts")
        row.get_by_text("Cannot be changed here").wait_for()
        assert row.get_by_role("button").count() == 0
        everything.get_by_role("searchbox").fill("zzz")
        everything.get_by_text("No results for “zzz”").wait_for()


def test_a_session_gets_its_own_sampling_and_instructions_on_the_page(tmp_path, screen):
    with shared([say("one"), say("two")]) as running:
        page = screen(running)
        session = begun(running, "hello")
        go(page, f"#/s/{session}/options")
        panel = region(page, "Session settings")
        panel.get_by_text("Setting: 0.65").wait_for()
        panel.get_by_label("Temperature").fill("cold")
        panel.get_by_role("button", name="Save").click()
        panel.get_by_text("Temperature must be a number.").wait_for()
        panel.get_by_label("Temperature").fill("0.1")
        panel.get_by_label("Instructions").fill("Answer in rhymes.")
        shot(page, tmp_path, "session-settings")
        panel.get_by_role("button", name="Save").click()
        panel.get_by_role("button", name="Use the settings").wait_for()
        page.reload()
        until(lambda: panel.get_by_label("Instructions").input_value() == "Answer in rhymes.", "they are not kept")
        ask(page, "and now?")
        page.get_by_text("two", exact=True).wait_for()
        request = running.model.chats[-1].fields
        assert request["temperature"] == 0.1
        assert "Answer in rhymes." in str(request["messages"])


def test_the_next_session_begins_with_what_was_chosen_before_its_first_message(screen):
    with shared([say("one"), say("two")]) as running:
        page = screen(running)
        box(page).wait_for()
        page.get_by_role("button", name="Session settings").click()
        panel = region(page, "Session settings")
        panel.get_by_label("Seed").fill("42")
        panel.get_by_role("button", name="Save").click()
        page.get_by_text("Saved for the next session").wait_for()
        ask(page, "hello")
        finished(page)
        assert running.model.chats[-1].fields["seed"] == 42
