"""Where no WebSocket opens, the page says so and works over plain HTTP."""

import pytest
from gateway_kit import gateway
from web_kit import ask, box, finished, shot

from lmagent.testing.script import call, say, slow

pytestmark = pytest.mark.long

NEVER = """class extends EventTarget {
  static OPEN = 1;
  readyState = 0;
  close() {}
}"""
"""As behind a proxy that swallows what asks for a socket."""

REFUSED = """class extends EventTarget {
  static OPEN = 1;
  readyState = 3;
  constructor() {
    super();
    setTimeout(() => this.onclose());
  }
  close() {}
}"""


@pytest.mark.parametrize("kind", [NEVER, REFUSED], ids=["never answered", "refused"])
def test_a_page_whose_socket_does_not_open_says_so_and_works(tmp_path, screen, kind):
    script = [
        call("shell", command="echo approved > a.txt"),
        say("It is written."),
        slow(say("never to be heard in full " * 50), each=0.2),
        say("Queued and answered."),
    ]
    with gateway(tmp_path, script) as running:
        page = screen(running)
        page.add_init_script(f"window.RealSocket = WebSocket; window.WebSocket = {kind};")
        page.reload()
        ask(page, "write it")
        page.get_by_text("No WebSocket to the gateway opens").wait_for()
        shot(page, tmp_path, "no-socket")
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("It is written.").wait_for()
        finished(page)
        page.get_by_label("Sessions", exact=True).get_by_text("done").wait_for()  # the list is live, too
        ask(page, "talk")
        page.get_by_text("never to be heard").wait_for()
        box(page).fill("and this")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Stop").wait_for(state="detached")
        page.get_by_role("button", name="Send").click()
        page.get_by_text("Queued and answered.").wait_for()


def test_a_gateway_that_restarts_is_found_again_without_a_socket(tmp_path, screen):
    with gateway(tmp_path, [say("first"), say("second")]) as running:
        page = screen(running)
        page.add_init_script(f"window.WebSocket = {REFUSED};")
        page.reload()
        ask(page, "one")
        page.get_by_text("first", exact=True).wait_for()
        page.get_by_text("No WebSocket to the gateway opens").wait_for()
        running.kill()
        page.get_by_text("The connection to the gateway is lost").wait_for()
        running.start()
        ask(page, "two")
        page.get_by_text("second", exact=True).wait_for()
        page.get_by_text("The connection to the gateway is lost").wait_for(state="detached")


def test_a_page_with_9_kb_of_cookies_of_other_servers_is_live(tmp_path, screen):
    with gateway(tmp_path, [slow(say("word " * 40, chunk=5), each=0.1)]) as running:
        page = screen(running)
        page.context.add_cookies(
            [{"name": f"other{number}", "value": "c" * 3000, "url": running.url} for number in range(3)]
        )
        page.reload()
        with page.expect_websocket():
            ask(page, "go")
        page.get_by_text("word word word").first.wait_for()
        finished(page)
        assert not page.get_by_text("No WebSocket").count()
