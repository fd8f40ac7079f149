"""Many tabs of one browser: browsers keep six connections to one address, and a page must not take one for good."""

import pytest
from gateway_kit import gateway
from panel_kit import holds
from web_kit import ask, box, finished, session_of, talk

from lmagent.testing.script import say, slow

pytestmark = pytest.mark.long

TABS = 8


def answering(received):
    """Half a minute of an answer to the first message of a session, and at once to what follows."""
    said = [item for item in received.body["messages"] if item["role"] == "user"]
    if "more, please" in str(said[-1]["content"]):
        return say("That is more.")
    return slow(say("word " * 60, chunk=5), each=0.1)


def test_eight_tabs_of_one_browser_are_live_and_take_a_message_each(tmp_path, screen):
    with gateway(tmp_path, answering) as running:
        first = screen(running)
        tabs = [first, *(first.context.new_page() for _ in range(TABS - 1))]
        for number, tab in enumerate(tabs):
            tab.goto(f"{running.url}/?{number}")  # another address is another page, whatever the browser remembers
            box(tab).wait_for()
            ask(tab, f"question {number}")
        for tab in tabs:
            tab.get_by_text("word word word word").first.wait_for()  # live, while all the others are
        for tab in tabs:
            ask(tab, "more, please")
        for tab in tabs:
            tab.get_by_text("more, please").wait_for()
            tab.get_by_text("sending …").wait_for(state="detached")
        for number, tab in enumerate(tabs):
            tab.get_by_text("That is more.").wait_for()
            finished(tab)
            assert f"question {number}" in talk(tab)
        assert len({session_of(tab) for tab in tabs}) == TABS
        said = [event for event in running.logs() if event["type"] == "input.received"]
        assert len(said) == 2 * TABS


def test_a_tab_has_one_connection_for_all_that_it_follows_and_tells_when_it_is_lost_and_back(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second")]) as running:
        page = screen(running)
        sockets, streams = [], []
        page.on("websocket", lambda opened: sockets.append(opened))
        page.once("framenavigated", lambda _: sockets.clear())  # the page before may open its own just now
        page.on("request", lambda asked: streams.append(asked.url) if "/events" in asked.url else None)
        page.reload()
        ask(page, "one")
        finished(page)
        page.get_by_role("link", name="Activity").click()
        page.get_by_role("heading", name="Activity").wait_for()
        page.go_back()
        page.get_by_text("first", exact=True).wait_for()
        assert len(sockets) == 1
        assert streams == []
        running.kill()
        page.get_by_text("The connection to the gateway is lost").wait_for()
        running.start()
        page.get_by_text("The connection to the gateway is lost").wait_for(state="detached")
        ask(page, "two")
        page.get_by_text("second", exact=True).wait_for()


def test_a_socket_that_has_gone_silent_is_noticed_when_somebody_comes_back(tmp_path, screen):
    """As after a laptop's sleep: nothing says that the connection is gone, and nothing comes over it."""
    with gateway(tmp_path, [say("first"), say("second")]) as running:
        page = screen(running)
        page.evaluate(
            """() => {
              window.Real = WebSocket;
              window.opened = [];
              window.WebSocket = class extends Real {
                constructor(url) { super(url); window.opened.push(this); }
                static OPEN = 1;
              };
            }"""
        )
        ask(page, "one")
        finished(page)
        running.process.send_signal(19)  # SIGSTOP: it neither answers nor hangs up
        page.evaluate(
            """() => {  // in one go: a word of the gateway in between would be news from it
              Date.now = ((now) => () => now() + 25_000)(Date.now.bind(Date));
              document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
        holds(page, "window.opened.length >= 1")
        running.process.send_signal(18)
        ask(page, "two")
        page.get_by_text("second", exact=True).wait_for()
        finished(page)
        assert page.evaluate("window.opened.filter((one) => one.readyState === 1).length") == 1


def test_a_browser_that_is_logged_out_in_one_tab_asks_for_the_pin_in_the_others(tmp_path, screen):
    with gateway(tmp_path, [say("hello")]) as running:
        page = screen(running)
        ask(page, "one")
        finished(page)
        other = page.context.new_page()
        other.goto(page.url)
        other.get_by_text("hello", exact=True).wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("PIN").wait_for()
        other.get_by_label("PIN").wait_for()
