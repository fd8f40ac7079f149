"""A person logs in and out, and sets how the page looks and which keys it takes."""

from gateway_kit import PIN, gateway, shared
from panel_kit import enter, go, holds, region
from web_kit import box

GROUND = "getComputedStyle(document.documentElement).backgroundColor"

TYPED_BEHIND_ESCAPE = """() => {
    const dialog = document.querySelector("dialog");
    dialog.close();
    const typed = new KeyboardEvent("keydown", { key: "n", bubbles: true, cancelable: true });
    dialog.querySelector("button").dispatchEvent(typed);
}"""
"""A key that comes before the page has heard that the dialog is closed."""


def test_the_pin_is_asked_for_as_a_code_and_a_wrong_one_is_said_so(screen):
    with shared() as running:
        page = screen(running, login=False)
        field = page.get_by_label("PIN")
        assert field.get_attribute("inputmode") == "numeric"
        assert field.get_attribute("autocomplete") == "one-time-code"
        field.fill("000000")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").get_by_text("Wrong PIN.").wait_for()
        enter(page, PIN)
        assert page.context.cookies()[0]["httpOnly"] is True


def test_after_too_many_tries_the_page_says_how_long_to_wait(tmp_path, screen):
    with gateway(tmp_path) as running:
        page = screen(running, login=False)
        answers = [running.anyone.ask("POST", "/api/login", {"pin": "000000"}).status for _ in range(20)]
        assert answers[-1] == 429
        page.get_by_label("PIN").fill(PIN)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").get_by_text("try again in").wait_for()


def test_logging_out_asks_for_the_pin_again_in_every_window_of_the_browser(screen):
    with shared() as running:
        page = screen(running)
        go(page, "#/p/settings")
        region(page, "This gateway").get_by_role("button", name="Log out").click()
        page.get_by_label("PIN").wait_for()
        page.reload()
        page.get_by_label("PIN").wait_for()


def test_colours_are_chosen_and_kept(screen):
    with shared() as running:
        page = screen(running, color_scheme="light")
        go(page, "#/p/settings")
        light = page.evaluate(GROUND)
        region(page, "Appearance").get_by_role("button", name="Dark").click()
        dark = page.evaluate(GROUND)
        assert light != dark
        page.reload()
        region(page, "Appearance").get_by_role("button", name="Dark").wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_letters_go_to_places_and_can_be_switched_off(screen):
    with shared() as running:
        page = screen(running)
        go(page, "#/p/settings")
        region(page, "Keyboard").get_by_role("switch").wait_for()
        region(page, "Sessions").get_by_role("searchbox").wait_for()
        page.keyboard.press("s")
        holds(page, "document.activeElement.type === 'search'")
        page.keyboard.type("n?")
        assert region(page, "Sessions").get_by_role("searchbox").input_value() == "n?"
        region(page, "Sessions").get_by_role("searchbox").fill("")
        page.get_by_role("heading", name="Settings", exact=True).click()
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
        dialog.wait_for()
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        page.keyboard.press("n")
        holds(page, "document.activeElement.id === 'message'")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("?")
        dialog.wait_for()
        page.evaluate(TYPED_BEHIND_ESCAPE)
        holds(page, "document.activeElement.id === 'message'")
        go(page, "#/p/settings")
        region(page, "Keyboard").get_by_role("switch").click()
        page.keyboard.press("?")
        page.keyboard.press("n")
        assert page.get_by_role("dialog").count() == 0
        assert page.url.endswith("#/p/settings")


def test_notifications_are_asked_for_by_a_button_alone(screen):
    with shared() as running:
        page = screen(running, permissions=["notifications"])
        go(page, "#/p/settings")
        region(page, "Notifications").get_by_role("status").wait_for()
        words = region(page, "Notifications").inner_text()
        assert "in the background" in words or "Allow notifications" in words or "are blocked" in words


def test_f_opens_and_closes_the_files_beside_the_conversation(screen):
    with shared() as running:
        page = screen(running)
        box(page).wait_for()
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("f")
        region(page, "Files").wait_for()
        page.keyboard.press("Escape")
        region(page, "Files").wait_for(state="detached")
