"""Messages that are sent while the agent works: in view until the model gets them, and then where it got them."""

import threading

import pytest
from gateway_kit import held, shared, until
from test_web_composer import PIXELS
from web_kit import PHONE, ask, box, finished, shot

from lmagent.testing.script import say, slow


def said_on(page):
    """Messages and answers of the conversation, in their order."""
    return page.locator(".transcript .bubble, .transcript .said").all_inner_texts()


def test_messages_are_where_the_model_got_them_and_in_view_until_then(screen):
    go = threading.Event()
    script = [held(say("Answer one."), go), say("Answer two."), say("Answer three.")]
    with shared(script) as running:
        page = screen(running)
        ask(page, "Question one")
        page.get_by_role("button", name="Stop").wait_for()
        for text in ("Question two", "Question three"):
            box(page).fill(text)
            page.get_by_role("button", name="Queue").click()
            page.get_by_role("list", name="Waiting messages").get_by_text(text).wait_for()
        assert said_on(page) == ["Question one"]
        go.set()
        page.get_by_text("Answer three.").wait_for()
        finished(page)
        order = [f"{what} {which}" for which in ("one", "two", "three") for what in ("Question", "Answer")]
        assert [text.rstrip(".") for text in said_on(page)] == order
        page.reload()
        page.get_by_text("Answer three.").wait_for()
        assert [text.rstrip(".") for text in said_on(page)] == order


@pytest.mark.parametrize("window", [{}, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("colour", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_what_waits_is_in_view_and_can_be_taken_back_into_the_box(tmp_path, screen, window, colour):
    with shared([slow(say("a long answer\n\n" * 400), each=0.02)]) as running:
        page = screen(running, color_scheme=colour, **window)
        ask(page, "begin")
        page.get_by_text("a long answer").nth(40).wait_for()
        box(page).fill("second question")
        page.get_by_role("button", name="Queue").click()
        waiting = page.get_by_role("list", name="Waiting messages")
        waiting.wait_for()
        assert waiting.bounding_box()["y"] + waiting.bounding_box()["height"] < box(page).bounding_box()["y"]
        shot(page, tmp_path, f"queued-{colour}-{'phone' if window else 'desktop'}")
        waiting.get_by_role("button", name="Cancel").click()
        waiting.wait_for(state="detached")
        until(lambda: box(page).input_value() == "second question")


def test_stop_stops_what_waits_too_and_gives_it_back_to_the_box(screen):
    with shared([slow(say("never to be heard in full"), first=60.0), say("Together.")]) as running:
        page = screen(running)
        ask(page, "begin")
        page.get_by_role("button", name="Stop").wait_for()
        page.locator("input[type=file]").set_input_files(
            files=[{"name": "dot.png", "mimeType": "image/png", "buffer": PIXELS}]
        )
        page.locator(".box .pictures img").wait_for()
        box(page).fill("steer me")
        box(page).press("Enter")
        page.get_by_text("Will be delivered after the current step").wait_for()
        box(page).fill("queue me")
        page.get_by_role("button", name="Queue").click()
        page.get_by_text("Queued – sent when this turn ends").wait_for()
        box(page).fill("half a")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Stop").wait_for(state="detached")
        until(lambda: box(page).input_value() == "half a\n\nsteer me\n\nqueue me")
        page.locator(".box .pictures img").wait_for()
        assert [event["outcome"] for event in running.recorded("turn.finished")] == ["interrupted"]
        page.get_by_role("button", name="Send").click()
        page.get_by_text("Together.").wait_for()
        [_, two] = [event["message"] for event in running.recorded("message.added") if event["origin"] == "input"]
        assert [part["type"] for part in two["parts"]] == ["image", "text"]


def test_enter_while_an_image_is_uploaded_sends_the_message_when_it_has_arrived(screen):
    with shared([say("Seen.")]) as running:
        page = screen(running)
        held = []
        page.route("**/api/uploads", lambda route: held.append(route))
        page.locator("input[type=file]").set_input_files(
            files=[{"name": "dot.png", "mimeType": "image/png", "buffer": PIXELS}]
        )
        page.locator(".box .pictures img").wait_for()
        box(page).fill("look at it")
        box(page).press("Enter")
        until(lambda: held)
        assert box(page).input_value() == "look at it"
        held[0].continue_()
        page.get_by_text("Seen.").wait_for()
        [message] = [event["message"] for event in running.recorded("message.added") if event["origin"] == "input"]
        assert [part["type"] for part in message["parts"]] == ["image", "text"]


def test_what_one_sends_is_in_view_though_one_has_scrolled_up(screen):
    with shared([say("a long answer\n\n" * 200), slow(say("ok"), first=60.0)]) as running:
        page = screen(running)
        ask(page, "begin")
        finished(page)
        page.get_by_role("region", name="Conversation").evaluate("(it) => it.scrollTo(0, 0)")
        page.get_by_role("button", name="Jump to latest").wait_for()
        ask(page, "and now?")
        page.get_by_text("and now?").wait_for()
        until(lambda: page.get_by_text("and now?").evaluate("(it) => it.getBoundingClientRect().bottom < innerHeight"))
