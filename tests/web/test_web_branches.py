"""What can be done with a message: copied, edited, answered once more, continued from; the old branch stays."""

from gateway_kit import shared
from panel_kit import until
from test_web_composer import PIXELS
from web_kit import PHONE, ask, finished, session_of, talk

from lmagent.testing.script import say


def message(page, number):
    return page.locator(".user").nth(number)


def talked(page, *texts):
    for text, answer in texts:
        ask(page, text)
        page.get_by_text(answer, exact=True).wait_for()
        finished(page)


def test_an_edited_message_goes_on_in_a_branch_and_both_branches_can_be_read(screen):
    with shared([say("One."), say("Two."), say("Two again.")]) as running:
        page = screen(running)
        talked(page, ("first", "One."), ("second", "Two."))
        origin = session_of(page)
        message(page, 1).hover()
        message(page, 1).get_by_role("button", name="Edit message").click()
        edited = page.get_by_label("Edited message")
        assert edited.input_value() == "second"
        edited.fill("second, but better")
        page.get_by_role("group", name="Edit message").get_by_role("button", name="Send").click()
        page.get_by_text("Two again.", exact=True).wait_for()
        finished(page)
        assert session_of(page) != origin
        assert "Two." not in talk(page).splitlines()
        assert running.model.chats[-1].body["messages"][-1]["content"] == "second, but better"
        page.get_by_role("group", name="Branches").get_by_text("2 / 2").wait_for()
        page.get_by_role("button", name="Previous branch").click()
        page.get_by_text("Two.", exact=True).wait_for()
        assert session_of(page) == origin
        page.get_by_role("group", name="Branches").get_by_text("1 / 2").wait_for()
        page.get_by_role("button", name="Next branch").click()
        page.get_by_text("Two again.", exact=True).wait_for()
        page.get_by_role("main").get_by_role("link", name="first").click()
        page.get_by_text("Two.", exact=True).wait_for()


def test_an_answer_is_given_once_more_with_the_pictures_of_its_question(screen):
    with shared([say("A dot."), say("A small dot.")]) as running:
        page = screen(running)
        page.locator("input[type=file]").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": PIXELS})
        talked(page, ("what is it?", "A dot."))
        origin = session_of(page)
        page.get_by_role("button", name="Regenerate").click()
        page.get_by_text("A small dot.", exact=True).wait_for()
        finished(page)
        assert session_of(page) != origin
        parts = running.model.chats[-1].body["messages"][-1]["content"]
        assert [part["type"] for part in parts if part["type"] == "image_url"] == ["image_url"]
        assert "what is it?" in str(parts)
        page.get_by_role("img", name="Image 1 of your message").wait_for()


def test_a_branch_from_an_answer_has_what_was_said_up_to_there_and_leaves_the_files_alone(screen):
    with shared([say("One."), say("Two."), say("Other two.")]) as running:
        (running.workspace / "kept.txt").write_text("kept")
        page = screen(running)
        talked(page, ("first", "One."), ("second", "Two."))
        origin = session_of(page)
        page.locator(".said").first.hover()
        page.get_by_role("button", name="Branch from here").first.click()
        page.get_by_text("Files in the workspace do not change.").wait_for()
        assert session_of(page) != origin
        assert "second" not in talk(page)
        assert (running.workspace / "kept.txt").read_text() == "kept"
        talked(page, ("something else", "Other two."))
        page.get_by_role("button", name="Previous branch").click()
        page.get_by_text("Two.", exact=True).wait_for()


def test_branches_are_below_their_origin_in_the_list_of_sessions(screen):
    with shared([say("One."), say("One again.")]) as running:
        page = screen(running)
        talked(page, ("first", "One."))
        origin = session_of(page)
        page.get_by_role("button", name="Regenerate").click()
        page.get_by_text("One again.", exact=True).wait_for()
        finished(page)
        sessions = page.get_by_role("region", name="Sessions")
        below = sessions.get_by_role("list", name="Forks of first").get_by_role("link")
        below.wait_for()
        assert below.get_attribute("aria-current") == "page"
        sessions.locator("a").first.click()
        page.get_by_text("One.", exact=True).wait_for()
        assert session_of(page) == origin


def test_what_is_typed_into_an_edit_stays_until_it_is_cancelled(screen):
    with shared([say("One.")]) as running:
        page = screen(running)
        talked(page, ("first", "One."))
        message(page, 0).hover()
        page.get_by_role("button", name="Edit message").click()
        page.get_by_label("Edited message").fill("half a thought")
        page.get_by_label("Edited message").press("Escape")
        page.get_by_label("Edited message").wait_for(state="detached")
        page.reload()
        page.get_by_text("One.", exact=True).wait_for()
        page.get_by_role("button", name="Edit message").click()
        assert page.get_by_label("Edited message").input_value() == "half a thought"
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Edit message").click()
        assert page.get_by_label("Edited message").input_value() == "first"


def test_a_message_and_an_answer_are_copied_as_they_were_written(screen):
    with shared([say("It is **done**.")]) as running:
        page = screen(running, permissions=["clipboard-read", "clipboard-write"])
        ask(page, "say *it*")
        finished(page)
        page.get_by_role("button", name="Copy").last.click()
        page.get_by_text("Copied", exact=True).wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == "It is **done**."
        message(page, 0).hover()
        page.get_by_role("button", name="Copy").first.click()
        until(lambda: page.evaluate("navigator.clipboard.readText()") == "say *it*", "the message is copied")


def test_on_a_phone_the_actions_are_there_without_pointing_and_big_enough(screen):
    with shared([say("One.")]) as running:
        page = screen(running, **PHONE)
        ask(page, "first")
        page.get_by_text("One.", exact=True).wait_for()
        for name in ("Copy", "Regenerate", "Branch from here", "Edit message"):
            button = page.get_by_role("button", name=name).first
            button.wait_for()
            assert button.evaluate("(element) => getComputedStyle(element).opacity") == "1"
            size = button.bounding_box()
            assert min(size["width"], size["height"]) >= 44


def test_text_that_came_with_a_message_is_a_chip_and_goes_along_when_it_is_edited(screen):
    attached = "look\n\n[Attached by the user: notes.txt, 2 lines]\nalpha\nbeta"
    with shared([say("One."), say("Two.")]) as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        body = {"role": "user", "parts": [{"type": "text", "text": attached}]}
        running.ask("POST", f"/api/sessions/{session}/commands", {"type": "submit", "message": body})
        page = screen(running)
        page.goto(f"{running.url}/#/s/{session}")
        page.get_by_text("One.", exact=True).wait_for()
        chip = page.get_by_role("button", name="Attached: notes.txt, 2 lines")
        assert "alpha" not in talk(page)
        chip.click()
        assert page.get_by_role("region", name="notes.txt, 2 lines").inner_text() == "alpha\nbeta"
        message(page, 0).hover()
        page.get_by_role("button", name="Edit message").click()
        assert page.get_by_label("Edited message").input_value() == "look"
        page.get_by_label("Edited message").fill("look again")
        page.get_by_label("Edited message").press("Control+Enter")
        page.get_by_text("Two.", exact=True).wait_for()
        assert "look again\\n\\n[Attached by the user: notes.txt, 2 lines]\\nalpha\\nbeta" in str(
            running.model.chats[-1].body["messages"]
        )
