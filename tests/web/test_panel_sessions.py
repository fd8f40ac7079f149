"""A person finds, opens, renames and deletes sessions in the list at the left."""

from gateway_kit import shared
from panel_kit import begun, command, go, on_phone, region, until
from web_kit import ask, finished, session_of

from lmagent.testing.script import call, say, slow


def test_the_list_says_how_each_session_stands_and_which_one_is_open(screen):
    script = [say("It is fine."), call("bash", command="echo 1"), say("later")]
    with shared(script) as running:
        fine = begun(running, "Is it fine?")
        begun(running, "Print a one", mode="manual", done=False)
        page = screen(running)
        sessions = region(page, "Sessions")
        sessions.get_by_text("Needs your approval").wait_for()
        assert sessions.get_by_role("link").first.inner_text().startswith("Print a one")
        sessions.get_by_role("link", name="Is it fine?").click()
        page.get_by_text("It is fine.").wait_for()
        assert session_of(page) == fine
        assert sessions.get_by_role("link", name="Is it fine?").get_attribute("aria-current") == "page"
        assert sessions.get_by_text("done").count() == 1


def test_what_happens_elsewhere_stands_in_the_list_at_once(screen):
    with shared([slow(say("never said"), first=60.0)]) as running:
        page = screen(running)
        sessions = region(page, "Sessions")
        sessions.get_by_text("No sessions yet").wait_for()
        session = begun(running, "From a terminal", done=False)
        sessions.get_by_text("working").wait_for()
        command(running, session, type="interrupt")
        sessions.get_by_text("Stopped").wait_for()
        assert sessions.get_by_role("link", name="From a terminal").count() == 1


def test_a_session_is_found_by_what_was_said_in_it(screen):
    with shared([say("The answer is forty-two."), say("Nothing of the kind.")]) as running:
        begun(running, "First question")
        begun(running, "Second question")
        page = screen(running)
        sessions = region(page, "Sessions")
        sessions.get_by_text("Second question").wait_for()
        search = sessions.get_by_role("searchbox", name="Search sessions")
        search.fill("forty-two")
        sessions.get_by_text("Second question").wait_for(state="detached")
        sessions.get_by_text("First question").wait_for()
        search.fill("no such words anywhere")
        sessions.get_by_text("No results for “no such words anywhere”.").wait_for()
        search.fill("")
        sessions.get_by_text("Second question").wait_for()


def test_the_keyboard_goes_through_the_list_and_opens(screen):
    with shared([say("one"), say("two")]) as running:
        first = begun(running, "First question")
        begun(running, "Second question")
        page = screen(running)
        region(page, "Sessions").get_by_role("link", name="Second question").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.get_by_text("one", exact=True).wait_for()
        assert session_of(page) == first


def test_the_keyboard_goes_from_the_search_to_what_was_found_and_back(screen):
    with shared([say("one"), say("two")]) as running:
        for words in ("Count the apples", "Count the pears"):
            begun(running, words)
        page = screen(running)
        sessions = region(page, "Sessions")
        sessions.get_by_role("link", name="pears").wait_for()
        page.keyboard.press("Escape")  # out of the message box, which has the focus from the beginning
        page.keyboard.press("s")
        page.keyboard.type("apples")
        sessions.get_by_role("link", name="pears").wait_for(state="detached")
        page.keyboard.press("ArrowDown")
        assert sessions.get_by_role("link", name="apples").evaluate("link => link === document.activeElement")
        page.keyboard.press("ArrowUp")
        assert sessions.get_by_role("searchbox").evaluate("field => field === document.activeElement")


def test_renaming_is_seen_in_every_window(screen):
    with shared([say("ok")]) as running:
        session = begun(running, "Some question")
        page, other = screen(running), screen(running)
        page.get_by_role("button", name="More about Some question").click()
        page.get_by_role("button", name="Rename", exact=True).click()
        page.get_by_label("New title").fill("A better name")
        page.keyboard.press("Enter")
        region(page, "Sessions").get_by_text("A better name").wait_for()
        region(other, "Sessions").get_by_text("A better name").wait_for()
        assert running.ask("GET", f"/api/sessions/{session}").json["title"] == "A better name"


def test_deleting_asks_first_and_leaves_a_readable_page_in_other_windows(screen):
    with shared([say("ok"), say("kept")]) as running:
        session = begun(running, "Away with this")
        begun(running, "This stays")
        page, other = screen(running), screen(running)
        for window in (page, other):
            go(window, f"#/s/{session}")
            window.get_by_text("ok", exact=True).wait_for()
        page.get_by_role("button", name="More about Away with this").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Cancel").click()
        assert running.ask("GET", f"/api/sessions/{session}").status == 200
        page.get_by_role("button", name="More about Away with this").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Delete", exact=True).click()
        region(page, "Sessions").get_by_text("Away with this").wait_for(state="detached")
        page.get_by_role("heading", name="What shall we work on?").wait_for()
        other.get_by_text("Session not found.").wait_for()
        assert running.ask("GET", f"/api/sessions/{session}").status == 404
        assert region(page, "Sessions").get_by_text("This stays").count() == 1


def test_escape_leaves_the_menu_of_a_session_without_doing_anything(screen):
    with shared([say("ok")]) as running:
        begun(running, "Stay as you are")
        page = screen(running)
        more = page.get_by_role("button", name="More about Stay as you are")
        more.click()
        page.get_by_role("button", name="Rename", exact=True).click()
        page.keyboard.press("Escape")
        page.get_by_label("New title").wait_for(state="detached")
        assert more.evaluate("element => element === document.activeElement")


def look(page, *, away: bool) -> None:
    """Turn to another window, or back."""
    page.evaluate(
        """away => {
            Object.defineProperty(document, "hidden", { value: away, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        away,
    )


def test_a_window_that_nobody_looks_at_gives_its_stream_back_and_catches_up_later(screen):
    with shared([say("ok"), say("meanwhile")]) as running:
        begun(running, "Before")
        page = screen(running)
        with page.expect_websocket() as opened:
            page.reload()
        region(page, "Sessions").get_by_text("Before").wait_for()
        with opened.value.expect_event("framesent", lambda frame: "unwatch" in frame):
            look(page, away=True)
        begun(running, "While nobody looked")
        assert region(page, "Sessions").get_by_text("While nobody looked").count() == 0
        look(page, away=False)
        region(page, "Sessions").get_by_text("While nobody looked").wait_for()


def test_on_a_phone_the_list_is_a_drawer_that_closes_when_something_is_opened(screen):
    with shared([say("Hello from the list."), say("again")]) as running:
        session = begun(running, "Found on a phone")
        page = on_phone(screen, running)
        page.get_by_role("button", name="Sessions and pages").click()
        region(page, "Sessions").get_by_role("link", name="Found on a phone").click()
        page.get_by_text("Hello from the list.").wait_for()
        until(lambda: "open" not in (page.locator(".side").get_attribute("class") or ""), "the drawer stays open")
        assert session_of(page) == session
        ask(page, "once more")
        finished(page)


def test_the_search_box_stays_in_view_however_far_the_list_is_scrolled(screen):
    with shared([say("ok")] * 12) as running:
        for number in range(12):
            begun(running, f"Question {number}")
        page = screen(running, viewport={"width": 1000, "height": 500})
        page.get_by_role("link", name="Question 0").scroll_into_view_if_needed()
        search = page.get_by_role("searchbox", name="Search sessions")
        inside = page.locator(".side .panels")
        assert inside.evaluate("(it) => it.scrollTop") > 0
        assert search.bounding_box()["y"] >= inside.bounding_box()["y"] - 1


def act(page, title: str, action: str) -> None:
    page.get_by_role("button", name=f"More about {title}", exact=True).click()
    page.get_by_role("button", name=action, exact=True).click()


def titles(page) -> list[str]:
    return region(page, "Sessions").locator(".title").all_inner_texts()


def test_a_pinned_session_is_listed_first_and_an_archived_one_only_under_archived(screen):
    with shared([say("one"), say("two"), say("three")]) as running:
        for words in ("First question", "Second question", "Third question"):
            begun(running, words)
        page, other = screen(running), screen(running)
        act(page, "First question", "Pin")
        for window in (page, other):
            until(lambda window=window: titles(window)[:1] == ["First question"], "it is not listed first")
        act(page, "Third question", "Archive")
        until(lambda: titles(other) == ["First question", "Second question"], "the archived one is still listed")
        page.get_by_role("button", name="Archived", exact=True).click()
        until(lambda: titles(page) == ["Third question"], "the archived one cannot be found")
        act(page, "Third question", "Unarchive")
        region(page, "Sessions").get_by_text("No archived sessions.").wait_for()
        page.get_by_role("button", name="All sessions", exact=True).click()
        act(page, "First question", "Unpin")
        expected = ["Third question", "Second question", "First question"]
        until(lambda: titles(page) == expected, "the list is not as before")


def test_a_session_is_exported_and_a_fork_is_listed_below_its_origin(screen):
    with shared([say("The answer."), say("two")]) as running:
        origin = begun(running, "Origin question")
        begun(running, "Another question")
        command(running, origin, type="fork")
        page = screen(running)
        forks = page.get_by_role("list", name="Forks of Origin question")
        forks.get_by_text("Fork", exact=False).first.wait_for()
        assert titles(page) == ["Origin question", "Origin question", "Another question"]
        page.get_by_role("button", name="More about Origin question").first.click()
        page.get_by_role("button", name="Export", exact=True).click()
        with page.expect_download() as saved:
            page.get_by_role("link", name="Markdown").click()
        assert saved.value.suggested_filename == f"{origin}.md"
        assert "The answer." in saved.value.path().read_text()
