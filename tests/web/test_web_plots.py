"""A picture that the agent drew is shown in the conversation, also when the page is loaded again."""

from __future__ import annotations

import pytest
from gateway_kit import shared
from panel_kit import holds
from web_kit import ask, finished

from lmagent.testing.script import call, say

pytest.importorskip("vl_convert")


def test_a_plot_is_shown_in_the_conversation(screen):
    plot = call("use_tool", name="data_plot", arguments={"path": "sales.csv", "output": "plots/Ä b&c.png"})
    with shared([plot, say("Drawn.")]) as running:
        (running.workspace / "sales.csv").write_text("day,sales\n2024-01-01,1\n2024-01-02,5\n")
        page = screen(running)
        ask(page, "draw the sales")
        page.get_by_role("button", name="Approve").click()
        finished(page)
        drawn = "(document.querySelector('.tool > img') || {}).naturalWidth > 500"
        holds(page, drawn)
        assert page.locator(".tool > img").get_attribute("alt") == "data_plot sales.csv → plots/Ä b&c.png"
        page.reload()
        holds(page, drawn)
