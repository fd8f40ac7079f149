"""What a person said, and what they look at, outlives an absence of the gateway, of the page, and of a conversation."""

import pytest
from gateway_kit import gateway
from panel_kit import begun, go, region
from seed_client import chatting
from web_kit import ask, box, finished, session_of, talk

from lmagent.testing.script import call, say

pytestmark = pytest.mark.long

AWAY = "The connection to the gateway is lost"


def said(running):
    """What was recorded as said, in the order of its recording."""
    return [e["message"]["parts"][0]["text"] for e in running.logs() if e["type"] == "input.received"]


def test_what_is_being_sent_outlives_the_page(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second")]) as running:
        page = screen(running)
        ask(page, "one")
        finished(page)
        session = session_of(page)
        running.kill()
        ask(page, "two, while you were away")
        page.get_by_text("sending …").wait_for()
        go(page, "#/")
        page.get_by_role("heading", name="What shall we work on?").wait_for()
        go(page, f"#/s/{session}")
        page.get_by_text(AWAY).wait_for()
        running.start()
        page.get_by_text("second", exact=True).wait_for()
        assert page.locator(".bubble").all_inner_texts() == ["one", "two, while you were away"]
        assert said(running) == ["one", "two, while you were away"]
        assert page.evaluate("Object.keys(localStorage).filter((key) => key.includes('outbox'))") == []


def test_a_message_that_could_not_be_sent_is_still_there_after_a_reload(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second")]) as running:
        page = screen(running)
        ask(page, "one")
        finished(page)
        page.route("**/commands", lambda route: route.fulfill(status=409, json={"error": {"message": "not now"}}))
        ask(page, "two")
        page.get_by_text("Not sent: not now").wait_for()
        page.unroute("**/commands")
        page.reload()
        page.get_by_text("Not sent: not now").wait_for()
        page.get_by_role("button", name="Try again").click()
        page.get_by_text("second", exact=True).wait_for()
        assert said(running) == ["one", "two"]


def test_a_first_message_that_gets_no_answer_begins_one_session_alone(tmp_path, screen):
    with gateway(tmp_path, [say("Here.")]) as running:
        page = screen(running)
        page.route("**/commands", lambda route: route.fulfill(status=409, json={"error": {"message": "not now"}}))
        ask(page, "one")
        page.get_by_text("Not sent: not now").wait_for()
        page.unroute("**/commands")
        page.get_by_role("button", name="Try again").click()
        page.get_by_text("Here.", exact=True).wait_for()
        assert said(running) == ["one"]
        assert len(running.ask("GET", "/api/sessions").json["sessions"]) == 1


def test_what_was_being_written_in_a_session_that_is_deleted_elsewhere_goes_along_to_a_new_one(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second")]) as running:
        page = screen(running)
        ask(page, "one")
        finished(page)
        box(page).fill("half a thought")
        running.ask("DELETE", f"/api/sessions/{session_of(page)}")
        page.get_by_text("Session not found.").wait_for()
        page.get_by_text("half a thought").wait_for()
        page.get_by_role("link", name="New session").click()
        page.get_by_role("heading", name="What shall we work on?").wait_for()
        assert box(page).input_value() == "half a thought"
        assert page.evaluate("Object.keys(localStorage).filter((key) => key.includes('draft'))") == [
            "lmagent.draft.new"
        ]


def test_a_session_that_is_opened_while_the_gateway_is_away_is_shown_when_it_is_back(tmp_path, screen):
    with gateway(tmp_path, [say("An answer.")]) as running:
        session = begun(running, "A question")
        page = screen(running)
        running.kill()
        go(page, f"#/s/{session}")
        page.get_by_text(AWAY).wait_for()
        running.start()
        page.get_by_text("An answer.", exact=True).wait_for()
        page.get_by_text(AWAY).wait_for(state="detached")


def test_a_conversation_that_is_begun_anew_elsewhere_is_begun_anew_on_the_page(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second"), say("third")]) as running:
        page = screen(running)
        ask(page, "one")
        finished(page)
        ask(page, "two")
        page.get_by_text("second", exact=True).wait_for()
        finished(page)
        with chatting(running, session_of(page)) as client:
            client.say("clear")
            client.until("cleared")
            page.get_by_text("second", exact=True).wait_for(state="detached")
            client.ask("three")
        page.get_by_text("third", exact=True).wait_for()
        assert talk(page).split() == ["three", "third"]
        assert box(page).is_enabled()


def test_a_part_of_the_page_that_did_not_come_is_got_when_the_gateway_is_back(tmp_path, screen):
    with gateway(tmp_path, [call("ls"), say("Nothing there.")]) as running:
        page = screen(running)
        ask(page, "look")
        finished(page)
        running.kill()
        page.locator(".tool-line").click()
        page.get_by_text("This part of the page could not be loaded from the gateway").wait_for()
        page.locator(".tool-line").click()
        notice = page.locator(".toast", has_text="This part of the page could not be loaded")
        notice.get_by_role("button", name="Dismiss").click()
        page.keyboard.press("?")
        page.get_by_text("This part of the page could not be loaded from the gateway").wait_for()
        page.get_by_role("button", name="Files").click()
        page.get_by_text("Cannot show Files: This part of the page could not").wait_for()
        running.start()
        page.get_by_text(AWAY).wait_for(state="detached")
        region(page, "Files").get_by_role("button", name="Try again").click()
        page.get_by_label("Find files by name").wait_for()
        page.locator(".tool-line").click()
        page.locator(".tool-details").wait_for()


def test_code_is_coloured_again_once_the_highlighter_can_be_had(tmp_path, screen):
    code = say("```python\ndef f():\n    return 'x'\n```")
    with gateway(tmp_path, [code, code]) as running:
        page = screen(running)
        page.route("**/highlight.js*", lambda route: route.abort())
        with page.expect_event("requestfailed"):
            ask(page, "one")
        finished(page)
        assert page.locator(".code-keyword").count() == 0
        page.unroute("**/highlight.js*")
        ask(page, "two")
        page.locator(".code-keyword").first.wait_for()
