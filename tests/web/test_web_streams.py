"""What is seen is what is on record: after a refresh, a restart of the gateway, in two windows, on two devices."""

import json

import pytest
from gateway_kit import gateway
from panel_kit import go, holds, until
from web_kit import PHONE, ask, box, finished, session_of, shot, talk

from lmagent.testing.script import call, calls, say, slow, tool

pytestmark = pytest.mark.long

LONG = "\n\n".join(f"Paragraph number {number} of a long answer." for number in range(120)) + "\n\nThe end."


def numbers(page):
    """The paragraphs shown, by number."""
    words = talk(page).split()
    return [int(words[at + 1]) for at, word in enumerate(words) if word == "number"]


def test_nothing_is_lost_or_twice_when_the_page_is_reloaded_while_it_streams(tmp_path, screen):
    with gateway(tmp_path, [slow(say(LONG, chunk=12), each=0.01)]) as running:
        page = screen(running)
        ask(page, "a long answer")
        page.get_by_text("Paragraph number 20 ").wait_for()
        page.reload()
        page.get_by_text("Paragraph number 0 ").wait_for()
        page.get_by_text("The end.").wait_for()
        finished(page)
        assert numbers(page) == list(range(120))


def test_a_restart_of_the_gateway_is_told_and_got_over(tmp_path, screen):
    script = [call("write", path="a.txt", content="x\n"), slow(say(LONG, chunk=12), each=0.02), say(LONG)]
    with gateway(tmp_path, script, options=["--permission", "auto"]) as running:
        page = screen(running)
        ask(page, "write, and tell much")
        page.get_by_text("Paragraph number 10 ").wait_for()
        running.kill()
        page.get_by_text("The connection to the gateway is lost").wait_for()
        shot(page, tmp_path, "lost")
        running.start()
        page.get_by_text("The connection to the gateway is lost").wait_for(state="detached")
        page.get_by_text("The end.").wait_for()
        finished(page)
        assert numbers(page) == list(range(120))
        writes = [e for e in running.logs() if e["type"] == "tool.started"]
        assert len(writes) == page.get_by_role("button", name="write a.txt").count() == 1


def test_a_message_sent_while_the_gateway_is_away_is_taken_once_when_it_is_back(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second")]) as running:
        page = screen(running)
        ask(page, "one")
        finished(page)
        running.kill()
        ask(page, "two, while you were away")
        page.get_by_text("sending …").wait_for()
        running.start()
        page.get_by_text("second", exact=True).wait_for()
        page.get_by_text("sending …").wait_for(state="detached")
        said = [e for e in running.logs() if e["type"] == "input.received"]
        assert len(said) == page.locator(".bubble").count() == 2


def test_two_windows_show_the_same_and_either_may_answer(tmp_path, screen):
    script = [
        slow(calls(tool("write", path="a.txt", content="x\n"), text="I write. " * 30), each=0.01),
        say("Written."),
    ]
    with gateway(tmp_path, script) as running:
        desk = screen(running)
        ask(desk, "write it")
        desk.get_by_role("button", name="Stop").wait_for()
        phone = screen(running, path=f"#/s/{session_of(desk)}", **PHONE)
        phone.get_by_role("button", name="Approve").wait_for()
        desk.get_by_role("button", name="Approve").wait_for()
        phone.get_by_role("button", name="Approve").click()
        finished(desk)
        finished(phone)
        assert desk.get_by_role("button", name="Approve").count() == 0
        assert talk(desk) == talk(phone)


def test_a_session_deleted_elsewhere_is_said_and_another_can_be_begun(tmp_path, screen):
    with gateway(tmp_path, [say("ok")]) as running:
        page = screen(running)
        ask(page, "hello")
        finished(page)
        running.ask("DELETE", f"/api/sessions/{session_of(page)}")
        page.get_by_text("Session not found.").wait_for()
        assert page.get_by_role("heading", name="Session not found").count() == 1
        holds(page, "document.title === 'Session not found · lmagent'")
        assert page.get_by_role("main").get_by_role("button", name="Permissions").count() == 0
        shot(page, tmp_path, "gone")
        page.get_by_role("link", name="New session").click()
        box(page).wait_for()


def test_an_address_of_no_session_and_of_no_page_is_readable(tmp_path, screen):
    with gateway(tmp_path, []) as running:
        page = screen(running)
        page.goto(f"{running.url}/#/s/not-there")
        page.get_by_text("Session not found.").wait_for()
        page.goto(f"{running.url}/#/p/not-there")
        page.get_by_text("There is no page").wait_for()


def test_a_login_that_has_ended_leads_to_the_pin_and_back(tmp_path, screen):
    with gateway(tmp_path, [say("ok")]) as running:
        page = screen(running)
        ask(page, "hello")
        finished(page)
        page.route("**/api/sessions?*", lambda asked: None)  # the list would lead to the PIN before anything is sent
        box(page).fill("again")  # written before the login ends: whatever the page asks for next may lead to the PIN
        page.context.clear_cookies()
        page.get_by_role("button", name="Send").click()
        page.get_by_label("PIN").wait_for()
        page.unroute("**/api/sessions?*")
        page.get_by_label("PIN").fill("000000")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").get_by_text("PIN").wait_for()
        page.get_by_label("PIN").fill("314159")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("region", name="Conversation").wait_for()
        assert box(page).input_value() == "" or "again" in box(page).input_value()


def test_the_end_stays_in_view_only_while_somebody_is_there(tmp_path, screen):
    with gateway(tmp_path, [slow(say(LONG, chunk=12), each=0.02)]) as running:
        page = screen(running)
        ask(page, "much")
        page.get_by_text("Paragraph number 30 ").wait_for()
        place = page.locator(".transcript")
        left = "(place) => place.scrollHeight - place.scrollTop - place.clientHeight"
        until(lambda: place.evaluate(left) < 60, "the end is not in view")
        place.evaluate("(place) => { place.scrollTop = 40; }")
        page.get_by_role("button", name="Jump to latest").wait_for()
        page.get_by_text("Paragraph number 60 ").wait_for(state="attached")
        assert place.evaluate("(place) => place.scrollTop") == 40
        page.get_by_role("button", name="Jump to latest").click()
        finished(page)
        until(lambda: place.evaluate(left) < 60, "the end is not in view")


def test_a_long_conversation_begins_at_its_end_and_is_scrolled_back(tmp_path, screen):
    with gateway(tmp_path, [say(f"answer {number}") for number in range(70)]) as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        with running.stream(f"/api/sessions/{session}/events?after=0") as events:
            for number in range(70):
                message = {"role": "user", "parts": [{"type": "text", "text": f"question {number}"}]}
                running.ask("POST", f"/api/sessions/{session}/commands", {"type": "submit", "message": message})
                for event in events:
                    if json.loads(event.data)["type"] == "turn.finished":
                        break
        page = screen(running, path=f"#/s/{session}")
        page.get_by_text("answer 69", exact=True).wait_for()
        assert page.get_by_text("question 0", exact=True).and_(page.locator(".bubble")).count() == 0

        def is_at_the_beginning() -> bool:
            page.locator(".transcript").evaluate("(place) => { place.scrollTop = 0; }")
            return page.locator(".older").count() == 0

        until(is_at_the_beginning, "older ones do not come")
        assert page.locator(".bubble").all_text_contents() == [f"question {number}" for number in range(70)]


def test_a_page_that_is_not_looked_at_notifies_once_it_was_allowed_to(tmp_path, screen):
    script = [call("write", path="a.txt", content="x\n"), say("Written.")]
    with gateway(tmp_path, script) as running:
        page = screen(running, alone=True)
        page.add_init_script(
            """
            window.shown = [];
            window.Notification = class {
              static permission = "granted";
              constructor(title, options) { window.shown.push([title, options.body]); window.last = this; }
              close() {}
            };
            """
        )
        page.reload()
        ask(page, "write it")
        page.get_by_role("button", name="Approve").wait_for()
        assert page.evaluate("window.shown") == []  # somebody looks
        page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true })")
        page.get_by_role("button", name="Approve").click()
        finished(page)
        assert page.evaluate("window.shown") == [["write it: Done", "Written."]]
        session = session_of(page)
        go(page, "#/p/usage")
        page.evaluate("window.last.onclick()")
        holds(page, f"location.hash === '#/s/{session}'")
