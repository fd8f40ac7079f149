"""Pictures that the agent drew, and pages that it read, are shown in the conversation."""

from __future__ import annotations

import pytest
from gateway_kit import gateway, shared
from panel_kit import holds
from testkit.trapsite import TrapSite, html
from web_kit import PHONE, ask, finished

from lmagent.testing.script import call, say


def test_a_plot_is_shown_in_the_conversation_also_when_the_page_is_loaded_again(screen):
    pytest.importorskip("vl_convert")
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


def test_a_page_that_was_read_is_a_card_and_the_question_names_its_host(tmp_path, screen):
    page = "<title>A page</title><main><p>The text of the page.</p></main>"
    with TrapSite() as site:
        site.pages["/titled"] = html(page)
        site.pages["/plain"] = html("Only text.", "text/plain")
        calls = [
            call("use_tool", name="web_fetch", arguments={"url": site.url(path)}) for path in ("/titled", "/plain")
        ]
        with gateway(tmp_path, [*calls, say("Read.")], LMAGENT_SANDBOX_HOSTS=site.address) as running:
            shown = screen(running, **PHONE)
            ask(shown, "read it")
            card = shown.get_by_role("region", name="Approval")
            card.get_by_text(f"Fetch a page from {site.address}:").wait_for()
            assert shown.locator(".tool .cut").first.inner_text() == "web_fetch"
            shown.get_by_role("button", name="Always allow").click()
            finished(shown)
            titled, plain = shown.locator(".fetched").all()
            assert titled.inner_text().split("\n") == ["A page", site.url("/titled")]
            assert plain.inner_text() == site.url("/plain")
            assert titled.get_attribute("href") == site.url("/titled")
            holds(shown, "document.documentElement.scrollWidth <= innerWidth")
