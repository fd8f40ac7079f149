"""What a page could not hear, or could not say, while it was cut off from the gateway."""

import sys
from pathlib import Path

import pytest
from gateway_kit import gateway
from panel_kit import holds, until
from web_kit import ask, box, finished, session_of

from lmagent.testing.script import call, say

sys.path.insert(0, str(Path(__file__).parents[1] / "agents"))
from agents_kit import by_brief, report, use

pytestmark = pytest.mark.long

DELEGATED = {
    "": [use("delegate", objective="Write b.txt"), say("All done.")],
    "Write b.txt": [call("write", path="b.txt", content="beta\n"), report("ok", "Written.")],
}

LINES = """(() => {
  const Real = WebSocket;
  window.lines = [];
  window.cut = false;
  window.WebSocket = function (url) {
    const line = window.cut ? { readyState: 0, close() {} } : new Real(url);
    window.lines.push(line);
    return line;
  };
  window.WebSocket.OPEN = 1;
})()"""
"""Remembers the page's sockets; none opens while it is `cut`."""


def with_lines(screen, running):
    """A page whose sockets can be cut."""
    page = screen(running, alone=True)
    page.context.add_init_script(LINES)
    page.reload()
    box(page).wait_for()
    return page


def test_what_a_sub_agent_asked_and_somebody_answered_meanwhile_is_not_asked_any_more(tmp_path, screen):
    with gateway(tmp_path, by_brief(DELEGATED)) as running:
        desk = with_lines(screen, running)
        ask(desk, "have it written")
        desk.get_by_role("button", name="Approve").wait_for()
        phone = screen(running, login=True, path=f"#/s/{session_of(desk)}")
        phone.get_by_role("button", name="Approve").wait_for()
        desk.evaluate("() => { window.cut = true; window.lines.at(-1).close(); }")
        phone.get_by_role("button", name="Approve").click()
        finished(phone)
        assert desk.get_by_role("button", name="Approve").count() == 1  # it has heard of nothing
        desk.evaluate("() => { window.cut = false; window.lines.at(-1).onclose(); }")
        finished(desk)
        assert desk.get_by_role("button", name="Approve").count() == 0


def test_what_a_sub_agent_asks_stays_as_it_is_where_a_line_broke_and_is_back(tmp_path, screen):
    with gateway(tmp_path, by_brief(DELEGATED)) as running:
        page = with_lines(screen, running)
        ask(page, "have it written")
        page.get_by_role("button", name="Approve").wait_for()
        page.get_by_label("Message to the model").fill("go ahead")
        page.evaluate("window.lines.at(-1).close()")
        holds(page, "window.lines.length === 2 && window.lines[1].readyState === 1")
        page.wait_for_timeout(2000)  # longer than it takes the page to drop what nobody asks any more
        assert page.get_by_label("Message to the model").input_value() == "go ahead"
        page.get_by_role("button", name="Approve").click()
        finished(page)


def test_a_message_waits_for_the_gateway_however_long_it_is_away(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second")]) as running:
        page = screen(running)
        ask(page, "one")
        finished(page)
        page.evaluate("() => { const real = setTimeout; window.setTimeout = (act, pause) => real(act, pause / 20); }")
        running.kill()
        ask(page, "two")
        page.wait_for_timeout(3000)  # as a minute
        assert page.get_by_text("sending …").count() == 1
        running.start()
        page.get_by_text("second", exact=True).wait_for()
        assert page.locator(".bubble").all_inner_texts() == ["one", "two"]


def test_what_two_tabs_were_sending_outlives_them_both(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second"), say("third")]) as running:
        page = screen(running)
        ask(page, "one")
        finished(page)
        other = page.context.new_page()
        other.goto(page.url)
        other.get_by_text("first", exact=True).wait_for()
        running.kill()
        for tab, words in ((page, "two"), (other, "three")):
            ask(tab, words)
            tab.get_by_text("sending …").wait_for()
        later = page.context.new_page()
        address = page.url
        page.close()
        other.close()
        running.start()
        later.goto(address)
        for words in ("two", "three"):
            later.get_by_text(words, exact=True).wait_for()
        until(lambda: later.get_by_text("sending …").count() == 0, "it is still being sent")
        said = [e["message"]["parts"][0]["text"] for e in running.logs() if e["type"] == "input.received"]
        assert sorted(said) == ["one", "three", "two"]
