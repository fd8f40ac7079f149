"""What opens over a conversation is readable for everybody (axe); keyboard, thumbs, colours, screen readers."""

import json
from pathlib import Path

import pytest
from gateway_kit import gateway
from panel_kit import until
from web_kit import PHONE, ask, box, finished, shot

from lmagent.testing.script import call, say

pytestmark = pytest.mark.long

AXE = Path(__file__).parent / "vendor/axe.min.js"
STEPS = [
    {"id": id, "description": text, "verification": "it is there", "risk": "it takes long", "dependencies": []}
    for id, text in (("1", "Read the file."), ("2", "Write the report."))
]
PLAN = json.dumps({"title": "The report", "goal": "A report.", "risk_areas": ["time"], "steps": STEPS})


def readable(page, name, tmp_path):
    """No serious finding of axe, nothing wider than the window; a picture is kept."""
    shot(page, tmp_path, name)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    assert [rule["id"] for rule in found if rule["impact"] in ("serious", "critical")] == [], name


@pytest.mark.parametrize(
    "window",
    [
        pytest.param({"color_scheme": "light"}, id="desk-light"),
        pytest.param({**PHONE, "color_scheme": "dark"}, id="phone-dark"),
    ],
)
def test_what_opens_over_a_conversation_is_readable(tmp_path, screen, request, window):
    place = request.node.callspec.id
    with gateway(tmp_path, [say(PLAN)]) as running:
        page = screen(running, **window)
        box(page).press_sequentially("/pl")
        page.get_by_role("option").first.wait_for()
        readable(page, f"{place}-commands", tmp_path)
        box(page).fill("/help")
        page.get_by_role("button", name="Send").click()
        page.locator(".answer pre").get_by_text("list the commands").wait_for()  # in columns, as it is laid out
        readable(page, f"{place}-help", tmp_path)
        page.get_by_role("button", name="Close the answer").click()
        if "phone" in place:
            page.get_by_role("button", name="More", exact=True).click()
        page.get_by_role("button", name="Permissions: normal").click()
        page.get_by_role("button", name="manual").wait_for()
        readable(page, f"{place}-menu", tmp_path)
        page.keyboard.press("Escape")
        ask(page, "/plan write a report")
        card = page.get_by_role("region", name="Plan")
        card.get_by_text("Write the report.").wait_for()
        readable(page, f"{place}-plan", tmp_path)
        card.get_by_role("button", name="Edit").click()
        readable(page, f"{place}-editor", tmp_path)
        running.kill()
        page.get_by_text("The connection to the gateway is lost").wait_for()
        readable(page, f"{place}-lost", tmp_path)


def test_a_first_screen_with_long_titles_fits_a_phone(tmp_path, screen):
    with gateway(tmp_path, [say("ok")]) as running:
        page = screen(running, **PHONE)
        ask(page, "a-name-that-has-no-place-to-break-" * 8)
        finished(page)
        page.goto(f"{running.url}/#/")
        page.get_by_text("Recent sessions").wait_for()
        page.locator(".recent .entry").wait_for()
        shot(page, tmp_path, "phone-first-screen")
        wide = "[...document.querySelectorAll('.welcome *')].map((one) => one.getBoundingClientRect().right)"
        assert max(page.evaluate(wide)) <= page.evaluate("innerWidth")


def test_what_is_asked_begins_in_view_on_a_phone_and_one_may_scroll_on(tmp_path, screen):
    long = "touch " + " ".join(f"a-file-with-a-long-name-{number}.txt" for number in range(60))
    with gateway(tmp_path, [call("shell", command=long), say("Done.")]) as running:
        page = screen(running, **PHONE)
        ask(page, "make many files")
        card = page.get_by_role("region", name="Approval")
        card.get_by_role("button", name="Approve").wait_for()
        place = page.get_by_role("region", name="Conversation")
        offset = "([card, place]) => card.getBoundingClientRect().top - place.getBoundingClientRect().top"
        handles = [card.element_handle(), place.element_handle()]
        until(lambda: -1 <= page.evaluate(offset, handles) < 40, "the question does not begin in view")
        place.evaluate("(place) => { place.scrollTop = place.scrollHeight; }")
        page.set_viewport_size({"width": 390, "height": 700})  # as when the keyboard opens
        until(lambda: page.evaluate("innerHeight") == 700, "the window stays as it was")
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate(offset, handles) < -40
        card.get_by_role("button", name="Approve").click()
        finished(page)


def test_a_thumb_hits_every_button_of_a_phone(tmp_path, screen):
    with gateway(tmp_path, [call("write", path="a.txt", content="new\n"), say("ok")]) as running:
        page = screen(running, **PHONE)
        ask(page, "write it")
        page.get_by_role("button", name="Approve").wait_for()
        sizes = page.locator("main button:visible").evaluate_all(
            "(all) => all.map((one) => [one.innerText || one.ariaLabel, one.getBoundingClientRect().height])"
        )
        small = [(name, height) for name, height in sizes if height < 44]
        assert [name for name, _ in small if name != "write it"] == [], small


def test_the_whole_of_a_first_task_works_by_keyboard(tmp_path, screen):
    with gateway(tmp_path, [call("write", path="a.txt", content="new\n"), say("Written.")]) as running:
        page = screen(running)
        page.locator(".skip").focus()
        page.keyboard.press("Enter")  # the link that skips to the message
        page.keyboard.type("write it")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Approve").wait_for()
        for _ in range(40):
            page.keyboard.press("Shift+Tab")
            if page.evaluate("document.activeElement.innerText") == "Approve":
                break
        page.keyboard.press("Enter")
        finished(page)
        assert (running.workspace / "a.txt").exists()


def test_light_and_dark_can_be_chosen_and_are_kept(tmp_path, screen):
    with gateway(tmp_path, []) as running:
        page = screen(running, color_scheme="light")
        ground = "getComputedStyle(document.body.parentElement).backgroundColor"
        light = page.evaluate(ground)
        page.get_by_role("button", name="Colours: as the system").click()
        page.get_by_role("button", name="Colours: light").click()
        assert page.evaluate(ground) != light
        page.reload()
        page.get_by_role("button", name="Colours: dark").wait_for()
        assert page.evaluate(ground) != light


def test_what_changes_is_told_to_a_screen_reader_and_not_every_word(tmp_path, screen):
    with gateway(tmp_path, [call("write", path="a.txt", content="new\n"), say("Many words. " * 50)]) as running:
        page = screen(running)
        page.evaluate(
            """() => {
              window.told = [];
              const region = document.querySelector("[aria-live=polite]");
              const all = { childList: true, characterData: true, subtree: true };
              new MutationObserver(() => window.told.push(region.textContent)).observe(region, all);
            }"""
        )
        ask(page, "write it")
        page.get_by_role("button", name="Approve").click()
        finished(page)
        told = page.evaluate("window.told")
        assert any(text.startswith("Needs your approval") for text in told)
        assert told[-1] == "Done"
        assert len(told) <= 8, told
