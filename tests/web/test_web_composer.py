"""Where a person writes: commands, files, pictures, what was written before."""

import base64
import json

from gateway_kit import shared
from panel_kit import holds
from web_kit import ask, box, finished, session_of, shot

from lmagent.testing.script import say, slow

PIXELS = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_a_slash_lists_commands_and_runs_them_without_the_model(screen):
    with shared([]) as running:
        page = screen(running)
        box(page).press_sequentially("/he")
        page.get_by_role("option").first.wait_for()
        assert box(page).get_attribute("aria-activedescendant") == "menu-0"
        box(page).press("Enter")
        assert box(page).input_value() == "/help "
        box(page).press("Enter")
        page.locator(".answer").get_by_text("/undo").first.wait_for()
        page.get_by_role("button", name="Close the answer").click()
        assert page.locator(".answer").count() == 0
        assert [request for request in running.model.requests if request.body] == []


def test_a_misspelt_command_is_told_with_what_is_near_and_stays_in_the_box(tmp_path, screen):
    with shared([say("I see.")]) as running:
        page = screen(running)
        box(page).fill("/hlep me")
        box(page).press("Enter")
        page.get_by_text("there is no command /hlep").wait_for()
        page.get_by_role("alert").get_by_text("did you mean /help?").wait_for()
        assert box(page).input_value() == "/hlep me"
        assert box(page).evaluate("(box) => box === document.activeElement")
        shot(page, tmp_path, "misspelt")
        assert running.logs() == []
        ask(page, "/etc/hosts is wrong")
        page.get_by_text("I see.").wait_for()
        assert page.locator(".answer").count() == 0
        ask(page, " /hlep is what I typed")
        page.locator(".bubble").get_by_text("/hlep is what I typed").wait_for()


def test_an_at_sign_finds_files(screen):
    with shared([say("ok")]) as running:
        (running.workspace / "src").mkdir()
        (running.workspace / "src" / "price.py").write_text("x = 1\n")
        page = screen(running)
        box(page).press_sequentially("look at @pric")
        page.get_by_role("option", name="src/price.py").wait_for()
        box(page).press("Tab")
        assert box(page).input_value() == "look at @src/price.py "
        box(page).press("Escape")
        box(page).press_sequentially("@nothing-like-it")
        page.get_by_role("option").first.wait_for(state="detached")


def test_a_picture_is_chosen_or_pasted_shown_taken_away_and_sent(screen):
    with shared([say("A dot.")]) as running:
        page = screen(running)
        chooser = page.locator("input[type=file]")
        chooser.set_input_files({"name": "dot.png", "mimeType": "image/png", "buffer": PIXELS})
        page.get_by_role("button", name="Remove dot.png").click()
        page.locator(".box img").wait_for(state="detached")
        box(page).evaluate(
            """(box, data) => {
              const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
              const carried = new DataTransfer();
              carried.items.add(new File([bytes], "pasted.png", { type: "image/png" }));
              const given = { clipboardData: carried, bubbles: true, cancelable: true };
              box.dispatchEvent(new ClipboardEvent("paste", given));
            }""",
            base64.b64encode(PIXELS).decode(),
        )
        page.get_by_role("img", name="pasted.png").wait_for()
        ask(page, "what is it?")
        finished(page)
        picture = page.get_by_role("img", name="Image 1 of your message")
        picture.evaluate("(image) => image.complete || new Promise((done) => (image.onload = done))")
        assert picture.evaluate("(image) => image.naturalWidth") == 1
        assert page.locator(".box img").count() == 0
        sent = json.dumps(running.model.requests[-1].body)
        assert base64.b64encode(PIXELS).decode() in sent


def test_what_is_no_picture_is_refused_with_the_reason_and_another_file_is_named(screen):
    with shared([]) as running:
        page = screen(running)
        chooser = page.locator("input[type=file]")
        chooser.set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": b"<svg onload=alert(1)>"})
        page.locator(".box .failed").wait_for()
        assert page.get_by_role("button", name="Send").is_disabled()
        chooser.set_input_files({"name": "a.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4"})
        holds(page, "document.getElementById('message').value === '@uploads/a.pdf '")
        assert page.get_by_role("button", name="Send").is_enabled()


def test_what_is_being_written_survives_a_reload_and_belongs_to_its_session(screen):
    with shared([say("ok")]) as running:
        page = screen(running)
        ask(page, "first")
        finished(page)
        box(page).fill("half a thou")
        page.reload()
        page.get_by_text("ok", exact=True).wait_for()
        assert box(page).input_value() == "half a thou"
        page.get_by_role("button", name="New session").click()
        page.get_by_role("heading", name="What shall we work on?").wait_for()
        assert box(page).input_value() == ""


def test_up_brings_back_what_was_said_and_shift_enter_makes_a_line(screen):
    with shared([say("one"), say("two")]) as running:
        page = screen(running)
        for text in ("the first", "the second"):
            ask(page, text)
            page.locator(".bubble").get_by_text(text).wait_for()
            finished(page)
        box(page).press("ArrowUp")
        assert box(page).input_value() == "the second"
        box(page).press("ArrowUp")
        assert box(page).input_value() == "the first"
        box(page).press("ArrowDown")
        box(page).press("ArrowDown")
        assert box(page).input_value() == ""
        box(page).press_sequentially("a")
        box(page).press("Shift+Enter")
        box(page).press_sequentially("b")
        assert box(page).input_value() == "a\nb"


def test_what_is_typed_while_a_session_begins_is_kept(screen):
    with shared([slow(say("ok"), first=1.0)]) as running:
        page = screen(running)
        box(page).fill("begin")
        box(page).press("Enter")
        box(page).press_sequentially("and then")
        page.wait_for_url("**/#/s/*")
        finished(page)
        assert box(page).input_value() == "and then"
        [said] = [event for event in running.logs() if event["type"] == "input.received"]
        assert said["message"]["parts"] == [{"type": "text", "text": "begin"}]
        assert session_of(page)


TYPES_WHEN_IT_MOVES = """() => {
  const push = history.pushState.bind(history);
  history.pushState = (...given) => {
    push(...given);
    setTimeout(() => {
      const box = document.getElementById("message");
      box.value += "!";
      box.dispatchEvent(new Event("input", { bubbles: true }));
    });
  };
}"""
"""The first thing that happens behind the move to the new session is a key."""


def test_a_letter_typed_in_the_moment_in_which_a_session_has_begun_is_kept(screen):
    with shared([say("ok")]) as running:
        page = screen(running)
        page.evaluate(TYPES_WHEN_IT_MOVES)
        box(page).fill("begin")
        box(page).press("Enter")
        page.wait_for_url("**/#/s/*")
        finished(page)
        assert box(page).input_value() == "!"


def test_who_writes_goes_on_writing_when_a_session_begins(screen):
    with shared([say("one"), say("two")]) as running:
        page = screen(running)
        page.keyboard.press("m")
        page.keyboard.type("begin")
        page.keyboard.press("Enter")
        finished(page)
        page.keyboard.type("go on")
        page.keyboard.press("Enter")
        page.get_by_text("two", exact=True).wait_for()
        finished(page)


def test_the_examples_of_the_first_screen_fill_the_box_and_a_session_begins_as_it_was_set(screen):
    with shared([say("ok")]) as running:
        page = screen(running)
        page.get_by_role("button", name="Look around this folder").click()
        holds(page, "document.getElementById('message').value.startsWith('Look around this folder')")
        page.get_by_role("button", name="Permissions: normal").click()
        page.get_by_role("button", name="manual").click()
        box(page).press("Enter")
        finished(page)
        page.get_by_role("button", name="Permissions: manual").wait_for()
