"""What somebody does in the moment between two drawings, or while the page draws anew, is neither lost nor undone."""

import pytest
from gateway_kit import gateway
from panel_kit import begun, command, go, region, told
from web_kit import ask, box, finished

from lmagent.testing.script import say

pytestmark = pytest.mark.long

NO_FRAMES = "() => { window.requestAnimationFrame = () => 0; }"
"""As on a busy machine: what waits for a frame waits for long."""


def test_who_begins_a_new_session_writes_at_once(tmp_path, screen):
    with gateway(tmp_path, [say("ok")]) as running:
        page = screen(running, path=f"#/s/{begun(running, 'begin')}")
        page.get_by_text("ok", exact=True).wait_for()
        page.evaluate(NO_FRAMES)
        page.get_by_role("button", name="New session").click()
        page.keyboard.type("next")
        assert box(page).input_value() == "next"


def test_what_is_typed_right_behind_a_letter_that_goes_somewhere_is_written_there(tmp_path, screen):
    with gateway(tmp_path) as running:
        page = screen(running)
        go(page, "#/p/settings")
        page.get_by_role("heading", name="Settings", exact=True).click()
        region(page, "Sessions").get_by_role("searchbox").wait_for()
        page.evaluate(NO_FRAMES)
        page.keyboard.type("sfind me")
        assert region(page, "Sessions").get_by_role("searchbox").input_value() == "find me"
        page.get_by_role("heading", name="Settings", exact=True).click()
        page.keyboard.type("nnew")
        assert box(page).input_value() == "new"


def test_in_a_narrow_window_the_search_keeps_the_focus_while_its_drawer_opens(tmp_path, screen):
    with gateway(tmp_path) as running:
        page = screen(running, viewport={"width": 700, "height": 800}, reduced_motion="no-preference")
        page.locator(".sessions input[type=search]").wait_for(state="attached")
        page.keyboard.press("Escape")  # out of the message box
        page.keyboard.type("sfind ")
        region(page, "Sessions").get_by_role("searchbox").wait_for()
        page.evaluate("() => new Promise((done) => setTimeout(done, 300))")  # the drawer has moved
        page.keyboard.type("me")
        assert region(page, "Sessions").get_by_role("searchbox").input_value() == "find me"


WATCHED = """() => {
  const real = fetch;
  window.fetch = async (...given) => {
    const answer = await real(...given);
    if (`${given[0]}`.endsWith("/commands")) await new Promise((done) => setTimeout(done, 100));
    return answer;
  };
  let before = false;
  window.away = 0;
  new MutationObserver(() => {
    const there = [...document.querySelectorAll(".bubble")].some((bubble) => bubble.textContent.includes("two"));
    if (before && !there) window.away++;
    before = there;
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""
"""The answer to what is sent comes behind the news of it; counts how often a message goes from the screen."""


def test_a_message_stays_on_the_screen_from_its_sending_on(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second")]) as running:
        page = screen(running)
        ask(page, "one")
        finished(page)
        page.evaluate(NO_FRAMES)
        page.evaluate(WATCHED)
        ask(page, "two")
        page.get_by_text("second", exact=True).wait_for()
        page.get_by_text("sending …").wait_for(state="detached")
        assert page.evaluate("window.away") == 0


def test_letters_behind_a_suggestion_that_was_taken_stand_behind_it(tmp_path, screen):
    with gateway(tmp_path) as running:
        (running.workspace / "a $& price.py").write_text("x = 1\n")
        page = screen(running)
        page.evaluate(NO_FRAMES)
        box(page).fill("@pric please")
        box(page).evaluate("(box) => box.setSelectionRange(5, 5)")
        page.keyboard.type("e")
        page.get_by_role("option", name="price.py").wait_for()
        page.keyboard.press("Tab")
        page.keyboard.type("xyz")
        assert box(page).input_value() == "@a $& price.py xyz please"


def test_enter_takes_no_suggestion_that_the_last_letters_have_ruled_out(tmp_path, screen):
    with gateway(tmp_path) as running:
        for name in ("pr.txt", "price.py"):
            (running.workspace / name).write_text("x\n")
        page = screen(running)
        box(page).press_sequentially("look at @pr")
        page.get_by_role("option", name="pr.txt").wait_for()
        page.route("**/api/find?*", lambda route: None)  # no answer to the letters that follow
        box(page).press_sequentially("ic")
        assert page.get_by_role("option").all_inner_texts() == ["price.py"]
        box(page).press("Enter")
        assert box(page).input_value() == "look at @price.py "


def test_the_focus_is_back_at_once_where_a_title_was_left_or_a_file_mentioned(tmp_path, screen):
    with gateway(tmp_path, [say("ok")]) as running:
        (running.workspace / "a.txt").write_text("x\n")
        session = begun(running, "begin")
        page = screen(running, path=f"#/s/{session}/files/a.txt")
        page.get_by_text("ok", exact=True).wait_for()
        page.evaluate(NO_FRAMES)
        page.locator("h1 button").press("Enter")
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.className") == "title"
        region(page, "Files").get_by_role("button", name="Mention in message").click()
        page.keyboard.type("and on")
        assert box(page).input_value() == "@a.txt and on"


def test_a_title_that_is_being_written_is_left_alone_by_what_happens_meanwhile(tmp_path, screen):
    with gateway(tmp_path, [say("ok")]) as running:
        session = begun(running, "begin")
        page = screen(running, path=f"#/s/{session}")
        page.get_by_text("ok", exact=True).wait_for()
        page.get_by_title("Rename").click()
        title = page.get_by_role("textbox", name="Title")
        title.fill("My own na")
        command(running, session, type="set_mode", mode="manual")
        page.get_by_role("button", name="Permissions: manual").wait_for()
        assert title.input_value() == "My own na"
        box(page).press_sequentially("mean")
        command(running, session, type="set_mode", mode="auto")
        page.get_by_role("button", name="Permissions: auto").wait_for()
        page.keyboard.type("while")
        assert (title.input_value(), box(page).input_value()) == ("My own na", "meanwhile")


def test_a_name_that_is_being_written_in_the_list_is_left_alone_by_what_happens_meanwhile(tmp_path, screen):
    with gateway(tmp_path, [say("ok"), say("again"), say("elsewhere")]) as running:
        session = begun(running, "Some question")
        page = screen(running)
        page.get_by_role("button", name="More about Some question").click()
        page.get_by_role("button", name="Rename", exact=True).click()
        page.get_by_label("New title").fill("A better na")
        told(running, session, "and on")
        begun(running, "Another one")
        region(page, "Sessions").get_by_text("Another one").wait_for()
        page.keyboard.type("me")
        page.keyboard.press("Enter")
        region(page, "Sessions").get_by_text("A better name").wait_for()
        assert running.ask("GET", f"/api/sessions/{session}").json["title"] == "A better name"
