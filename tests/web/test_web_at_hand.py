"""What a person expects without looking for it: where the focus is, what Escape does, where a file can be dropped."""

import base64

from gateway_kit import shared
from panel_kit import holds
from test_web_composer import PIXELS
from web_kit import PHONE, ask, box, finished, talk

from lmagent.testing.script import call, say, slow

DROP = """([place, bytes]) => {
    const held = new DataTransfer();
    const data = Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0));
    held.items.add(new File([data], "dropped.png", { type: "image/png" }));
    const given = { dataTransfer: held, bubbles: true, cancelable: true };
    const there = document.querySelector(place);
    const taken = !there.dispatchEvent(new DragEvent("dragover", given));
    const shown = taken && there.dispatchEvent(new DragEvent("drop", given));
    return [taken, !shown];
}"""


def test_a_picture_dropped_anywhere_on_the_page_is_attached(screen):
    with shared([say("I see it.")]) as running:
        page = screen(running)
        for place in (".side", ".place", ".head"):
            assert page.evaluate(DROP, [place, base64.b64encode(PIXELS).decode()]) == [True, True]
            page.get_by_role("img", name="dropped.png").wait_for()
            page.get_by_role("button", name="Remove dropped.png").click()
        page.evaluate(DROP, [".side", base64.b64encode(PIXELS).decode()])
        page.get_by_role("img", name="dropped.png").wait_for()
        ask(page, "what is it?")
        page.get_by_role("img", name="Image 1 of your message").wait_for()


def test_a_page_on_a_desktop_is_ready_to_be_written_in_and_a_phone_keeps_its_keyboard_shut(screen):
    with shared([say("ok")]) as running:
        page = screen(running)
        ask(page, "hello")
        finished(page)
        page.reload()
        page.get_by_text("ok", exact=True).wait_for()
        holds(page, "document.activeElement.id === 'message'")
        phone = screen(running, **PHONE)
        phone.get_by_role("heading", name="What shall we work on?").wait_for()
        assert phone.evaluate("document.activeElement.id") != "message"


def test_escape_stops_the_turn_and_keeps_what_is_being_written(screen):
    with shared([slow(say("word " * 4000), each=0.02)]) as running:
        page = screen(running)
        ask(page, "talk")
        page.get_by_text("word word").first.wait_for()
        assert page.get_by_role("button", name="Stop").get_attribute("title") == "Stop (Esc)"
        box(page).fill("half a thought")
        box(page).press("Escape")
        page.locator(".notice").get_by_text("Stopped", exact=True).wait_for()
        assert box(page).input_value() == "half a thought"


def test_escape_closes_what_is_open_before_it_stops_anything(screen):
    script = [call("bash", command="until [ -e go ]; do sleep 0.05; done"), say("All of it.")]
    with shared(script, options=["--permission", "auto"]) as running:
        page = screen(running)
        ask(page, "wait")
        page.locator("[data-state=busy]").get_by_text("Working").wait_for()
        page.get_by_role("button", name="Files").click()
        page.get_by_role("region", name="Files").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("region", name="Files").wait_for(state="detached")
        page.get_by_role("button", name="Permissions").click()
        page.locator(".popup").wait_for()
        page.keyboard.press("Escape")
        page.locator(".popup").wait_for(state="detached")
        box(page).press_sequentially("/he")
        page.get_by_role("option").first.wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("option").first.wait_for(state="detached")
        box(page).fill("")
        (running.workspace / "go").touch()
        page.get_by_text("All of it.", exact=True).wait_for()
        finished(page)
        assert "Stopped" not in talk(page)
