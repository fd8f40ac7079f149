"""What a turn that failed or was stopped offers, and what it comes to."""

import pytest
from gateway_kit import gateway
from web_kit import PHONE, ask, finished

from lmagent.testing.script import say, slow, status

pytestmark = pytest.mark.long


@pytest.mark.parametrize("window", [{}, PHONE], ids=["desktop", "phone"])
def test_a_failed_turn_is_tried_again_with_one_press(tmp_path, screen, window):
    with gateway(tmp_path, [status(400, {"error": {"message": "no such thing"}}), say("Now it works.")]) as running:
        page = screen(running, **window)
        ask(page, "do it")
        page.get_by_role("button", name="Try again").click()
        page.get_by_text("Now it works.").wait_for()
        finished(page)
        assert page.get_by_role("button", name="Try again").count() == 0


def test_a_stopped_turn_continues_with_one_press_also_after_loading(tmp_path, screen):
    with gateway(tmp_path, [slow(say("never heard"), first=60.0), say("Here is the rest.")]) as running:
        page = screen(running)
        ask(page, "do it")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Continue").wait_for()
        page.reload()
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("Here is the rest.").wait_for()
        finished(page)
        assert page.get_by_role("button", name="Continue").count() == 0
