"""The line above a conversation: what it is at, how full its window is, and what a small screen makes of it."""

import json

from gateway_kit import shared
from web_kit import PHONE, ask, box, finished, long_of, session_of, talk

from lmagent.testing.script import call, say


def test_a_meter_shows_how_full_the_window_is_and_opens_to_what_fills_it(screen):
    with shared([call("ls"), say("Seen.")], options=["--permission", "auto"]) as running:
        page = screen(running)
        ask(page, "look around")
        finished(page)
        context = running.ask("GET", f"/api/sessions/{session_of(page)}/context").json
        assert [part["name"] for part in context["parts"]] == ["System", "Tools", "Notes", "User", "Agent", "Results"]
        assert context["used"] < context["trigger"] < context["window"]
        meter = page.get_by_role("button", name=f"% of {context['window']:,} tokens")
        meter.locator("svg").wait_for()
        meter.click()
        table = page.get_by_role("table")
        [tools] = [part["tokens"] for part in context["parts"] if part["name"] == "Tools"]
        table.get_by_role("row").filter(has_text="Tools").get_by_text(f"{tools:,}", exact=True).wait_for()
        page.get_by_text(f"Shortened automatically at {context['trigger']:,} tokens").wait_for()
        page.keyboard.press("Escape")
        table.wait_for(state="detached")


def test_the_map_has_the_conversation_shortened(screen):
    script = [
        say(long_of("A long answer. ", 1500)),
        say(long_of("Another one. ", 1500)),
        say("A summary."),
        say("And on."),
    ]
    with shared(script, options=["--permission", "auto"]) as running:
        page = screen(running)
        for text in ("first", "second"):
            ask(page, text)
            page.locator(".bubble").get_by_text(text).wait_for()
            finished(page)
        page.get_by_role("button", name="Context: ").click()
        page.get_by_role("button", name="Shorten now").click()
        page.get_by_text("Conversation shortened: ").wait_for()


def test_another_model_is_told_in_the_conversation_with_what_it_reads_once(screen):
    with shared([say("Hello."), say("Hello again.")]) as running:
        page = screen(running)
        ask(page, "hi")
        finished(page)
        body = {"type": "set_model", "model": "another"}
        running.ask("POST", f"/api/sessions/{session_of(page)}/commands", body)
        page.get_by_text("Model changed to another. It reads the conversation once: about ").wait_for()
        page.get_by_role("button", name="Model: another").click()
        page.get_by_role("button", name="test-model").click()
        page.get_by_text("Model changed to test-model. It reads the conversation once: about ").wait_for()


def test_a_phone_has_one_line_with_one_menu_that_names_what_it_offers(screen):
    with shared([call("ls"), say("Seen.")], options=["--permission", "auto"]) as running:
        page = screen(running, **PHONE)
        ask(page, "Look around in this folder and tell me what you find there, please")
        finished(page)
        head = page.locator(".head")
        assert head.bounding_box()["height"] <= 64
        assert head.get_by_role("button").count() == 3  # sessions, the title, the menu
        more = page.get_by_role("button", name="More", exact=True)
        more.click()
        for name in ("Files", "Changes", "Tasks", "Permissions: auto", "Model: scripted", "Context: "):
            assert page.locator(".popup").get_by_role("button", name=name).bounding_box()["height"] >= 44
        page.locator(".popup").get_by_role("button", name="Permissions: auto").click()
        page.get_by_role("button", name="manual").click()
        more.click()
        page.get_by_role("button", name="Permissions: manual").wait_for()
        page.get_by_role("button", name="Files").click()
        page.get_by_role("region", name="Files").wait_for()


def test_beside_a_panel_the_title_keeps_its_place(screen):
    title = "Please write a summary of what is here"
    with shared([say("Done.")]) as running:
        page = screen(running)
        ask(page, title)
        finished(page)
        page.get_by_role("button", name="Files").click()
        page.get_by_role("region", name="Files").wait_for()
        shown = page.get_by_role("heading", level=1).get_by_role("button", name=title)
        assert shown.bounding_box()["width"] > 240
        page.get_by_role("button", name="Permissions: normal").click()
        page.get_by_role("group", name="Permissions: normal").wait_for()


def test_an_approval_shows_the_command_once_and_a_denied_call_keeps_it_in_its_line(screen):
    script = [
        call("bash", command="echo once > once.txt"),
        call("write", path="notes.txt", content="x\n"),
        say("Neither."),
    ]
    with shared(script) as running:
        page = screen(running)
        ask(page, "do both")
        card = page.get_by_role("region", name="Approval")
        card.get_by_role("heading", name="Allow this?").wait_for()
        assert card.inner_text().count("echo once > once.txt") == 1
        card.get_by_role("button", name="Deny").click()
        card.get_by_text("write notes.txt").wait_for()
        card.get_by_role("button", name="Deny").click()
        finished(page)
        assert "echo once > once.txt" in page.locator(".tool.fault").first.inner_text()
        assert "notes.txt" in page.locator(".tool.fault").last.inner_text()
        page.reload()
        box(page).wait_for()
        page.get_by_text("Neither.", exact=True).wait_for()
        assert "notes.txt" in page.locator(".tool.fault").last.inner_text()
        assert "Denied" in talk(page)
        assert "summary" not in json.dumps(running.model.chats[-1].body["messages"])
