"""Whatever the words, the names, the window and the hand: nothing is covered, cut, turned round or lost."""

import json

import pytest
from gateway_kit import gateway, until
from panel_kit import begun, holds, on_phone, region
from web_kit import PHONE, ask, box, finished, shot

from lmagent.testing.script import calls, say, status, tool

pytestmark = pytest.mark.long

PLAN = {"title": "Report", "goal": "a.txt says hello", "steps": [{"id": "one", "description": "write a.txt"}]}
LONG = "n" * 200 + ".txt"


def outside(page, selector):
    """How far, in pixels, the first one stands out of the window."""
    there = page.locator(selector).first.bounding_box()
    width = page.evaluate("innerWidth")
    return max(0, -there["x"], there["x"] + there["width"] - width)


def has_focus(page, name):
    """Wait until what has this name, or else this class, has the focus."""
    holds(page, f"(document.activeElement.ariaLabel || document.activeElement.className) === {name!r}")


def test_a_turn_that_fails_says_what_to_do(tmp_path, screen):
    with gateway(tmp_path, [status(401)]) as running:
        page = screen(running)
        ask(page, "hello")
        page.locator("[data-state=failed]").wait_for()
        [ended] = [event for event in running.logs() if event["type"] == "turn.finished"]
        assert ended["fix"] in page.locator(".notice.error").inner_text()
        shot(page, tmp_path, "failed")


def test_words_of_right_to_left_languages_begin_at_the_right(tmp_path, screen):
    with gateway(tmp_path, [say("שלום עולם")]) as running:
        page = screen(running)
        ask(page, "مرحبا بالعالم، كيف حالك؟ " * 8)
        finished(page)
        rest = """(selector) => {
            const shown = document.querySelector(selector), range = document.createRange();
            range.selectNodeContents(shown);
            return shown.getBoundingClientRect().right - range.getBoundingClientRect().right;
        }"""
        assert page.evaluate(rest, ".markdown p") < 2
        assert page.evaluate("getComputedStyle(document.querySelector('.bubble')).unicodeBidi") == "plaintext"


def test_what_is_told_in_passing_covers_nothing_that_one_presses(tmp_path, screen):
    with gateway(tmp_path, [say("ok"), say("ok")]) as running:
        for options in ({}, PHONE):
            page = screen(running, **options)
            text = {"name": "z.txt", "mimeType": "text/plain", "buffer": b"text"}
            (running.workspace / "uploads").touch()  # no folder, so nothing can be put into it
            page.locator("input[type=file]").set_input_files([text])
            page.locator(".toast.error").wait_for()
            ask(page, "all the same")  # fails where something lies over the button
            finished(page)


def test_what_opens_on_a_phone_stays_in_the_window(tmp_path, screen):
    with gateway(tmp_path, [say("ok")]) as running:
        session = begun(running, "begin")
        page = on_phone(screen, running, path=f"#/s/{session}")
        page.get_by_role("button", name="More", exact=True).click()
        for name in ("Permissions: auto", "Model: scripted", "Context: "):
            page.get_by_role("button", name=name).click()
            page.get_by_role("button", name="Back").wait_for()
            assert outside(page, ".popup") == 0
            page.get_by_role("button", name="Back").click()
        page.keyboard.press("Escape")
        page.locator(".popup").wait_for(state="detached")


def test_a_long_name_of_a_file_leaves_the_panel_as_wide_as_it_is(tmp_path, screen):
    with gateway(tmp_path, []) as running:
        (running.workspace / LONG).write_text("x\n")
        page = screen(running, path="#/s/-/files")
        page.get_by_role("treeitem", name=LONG).wait_for()
        assert outside(page, ".tree") == outside(page, "[aria-label='Refresh files']") == 0


def test_the_suggestion_that_the_keys_have_come_to_is_in_view(tmp_path, screen):
    with gateway(tmp_path, []) as running:
        page = screen(running)
        box(page).press_sequentially("/")
        page.get_by_role("option").first.wait_for()
        for _ in range(15):
            box(page).press("ArrowDown")
        chosen, around = (
            page.locator(s).bounding_box() for s in ("[role=option][aria-selected=true]", "[role=listbox]")
        )
        assert around["y"] <= chosen["y"]
        assert chosen["y"] + chosen["height"] <= around["y"] + around["height"] + 1


def test_the_list_of_suggestions_can_be_focused_and_answers_the_same_keys_then(tmp_path, screen):
    with gateway(tmp_path, []) as running:
        page = screen(running)
        box(page).press_sequentially("/")
        listed = page.get_by_role("listbox", name="Suggestions")
        listed.focus()
        page.keyboard.press("ArrowDown")
        chosen = page.get_by_role("option", selected=True)
        assert chosen.get_attribute("id") == listed.get_attribute("aria-activedescendant") == "menu-1"
        name = chosen.locator("span").first.inner_text()
        page.keyboard.press("Enter")
        has_focus(page, "Message")
        assert box(page).input_value() == f"{name} "
        box(page).fill("/")
        listed.focus()
        page.keyboard.press("Escape")
        has_focus(page, "Message")
        assert listed.count() == 0
        box(page).fill("/s")
        listed.focus()
        page.get_by_role("button", name="New session").focus()
        listed.wait_for(state="detached")


def test_what_a_command_answers_keeps_its_lines_and_closes_the_suggestions(tmp_path, screen):
    with gateway(tmp_path, []) as running:
        page = screen(running)
        page.route("**/api/slash", lambda route: (page.wait_for_timeout(300), route.continue_()))
        box(page).press_sequentially("/help")
        box(page).press("Enter")
        page.get_by_text("list the commands").first.wait_for()
        assert page.get_by_role("option").count() == 0
        lines = page.locator(".answer").inner_text().splitlines()
        assert len([line for line in lines if line.startswith("/")]) > 10


def test_the_focus_goes_on_where_something_was_closed_or_answered(tmp_path, screen):
    two = calls(tool("write", path="a.txt", content="x\n"), tool("write", path="b.txt", content="x\n"))
    with gateway(tmp_path, [two, say("Written."), say(json.dumps(PLAN))]) as running:
        page = screen(running)
        ask(page, "write them")
        for count in (1, 2):
            page.locator("button:enabled", has_text="Approve").first.focus()
            page.keyboard.press("Enter")
            until(lambda count=count: len(running.recorded("approval.resolved")) == count)
        finished(page)
        has_focus(page, "Conversation")
        page.locator("h1 button").press("Enter")
        page.get_by_role("textbox", name="Title").press("Escape")
        has_focus(page, "title")
        page.get_by_role("button", name="Files").press("Enter")
        region(page, "Files").wait_for()
        page.get_by_role("button", name="Close Files").press("Enter")
        has_focus(page, "Files")
        box(page).fill("/plan a report")
        box(page).press("Escape")
        box(page).press("Enter")
        page.get_by_role("button", name="Reject").press("Enter")
        page.get_by_role("region", name="Plan").wait_for(state="detached")
        has_focus(page, "Conversation")


def test_the_focus_goes_back_to_the_button_of_the_drawer(tmp_path, screen):
    with gateway(tmp_path, []) as running:
        page = on_phone(screen, running)
        page.get_by_role("button", name="Sessions and pages").press("Enter")
        page.get_by_role("button", name="New session").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Close sessions and pages").first.wait_for(state="hidden")
        has_focus(page, "Sessions and pages")


def test_a_conversation_that_still_scrolls_when_it_is_left_is_no_fault(tmp_path, screen):
    with gateway(tmp_path, [say("ok")]) as running:
        session = begun(running, "begin")
        page = screen(running, path=f"#/s/{session}")
        page.get_by_text("ok", exact=True).wait_for()
        page.evaluate("() => { window.left = document.querySelector('.transcript'); location.hash = '#/'; }")
        page.get_by_role("heading", name="What shall we work on?").wait_for()
        page.evaluate("window.left.dispatchEvent(new Event('scroll'))")  # the browser tells of it a frame later
        box(page).wait_for()
