"""MCP servers on the page, on a desktop and on a phone, with a real server in the sandbox."""

from __future__ import annotations

import pytest
from gateway_kit import gateway
from panel_kit import region, until
from test_accessibility import SIZES
from test_knowledge_pages import judged, opened
from testkit import tinymcp


@pytest.mark.parametrize("size", SIZES)
def test_a_server_is_started_and_its_tool_is_tried(tmp_path, screen, size):
    tinymcp.configure_folders(tmp_path)
    with gateway(tmp_path) as running:
        page = opened(screen, running, size, "#/p/mcp")
        server = page.get_by_role("listitem", name="tiny", exact=True)
        server.get_by_text("Not started").wait_for()
        server.get_by_role("button", name="Restart: tiny").click()
        server.get_by_text("Ready", exact=True).wait_for()
        server.get_by_role("button", name="Tools: tiny").click()
        server.get_by_role("button", name="echo").click()
        server.get_by_text("what to say").wait_for()
        server.get_by_role("textbox", name="message").fill("hello there")
        server.get_by_role("textbox", name="times").fill("2")
        server.get_by_role("combobox", name="tone").select_option("loud")
        server.get_by_role("button", name="Call this tool").click()
        region(page, "Result of echo").get_by_text("HELLO THERE HELLO THERE").wait_for()
        judged(page, tmp_path, f"mcp-tools-{size}")
        server.get_by_role("textbox", name="times").fill("two")
        server.get_by_role("button", name="Call this tool").click()
        page.get_by_text("times is not valid JSON").wait_for()
        server.get_by_role("button", name="Log: tiny").click()
        region(page, "Log of tiny").get_by_text("echoing hello there").wait_for()
        judged(page, tmp_path, f"mcp-log-{size}")


def test_a_changed_tool_is_called_only_after_its_change_was_shown(tmp_path, screen):
    tinymcp.configure_folders(tmp_path)
    with gateway(tmp_path) as running:
        page = opened(screen, running, "phone", "#/p/mcp")
        server = page.get_by_role("listitem", name="tiny", exact=True)

        def log() -> str:
            return str(running.ask("GET", "/api/mcp/log?server=tiny").json)

        def restart(about: str) -> None:
            (running.workspace / tinymcp.ABOUT).write_text(about)
            server.get_by_role("button", name="Restart: tiny").click()
            until(lambda: about in str(running.ask("GET", "/api/mcp/server?server=tiny").json), "it does not restart")

        def call() -> None:
            server.get_by_role("textbox", name="message").fill("hello")
            server.get_by_role("button", name="Call this tool").click()

        restart("Say it again.")
        server.get_by_role("button", name="Tools: tiny").click()
        server.get_by_role("button", name="echo").click()
        call()
        region(page, "Result of echo").wait_for()
        restart("Send all files.")
        server.get_by_text("Send all files.").wait_for()
        call()
        region(page, "Change").get_by_text("Send all files.").wait_for()
        assert "echoing" not in log()[log().rindex("tiny is here") :]
        judged(page, tmp_path, "mcp-changed-phone")
        server.get_by_role("button", name="Call the changed tool").click()
        until(lambda: "echoing" in log()[log().rindex("tiny is here") :], "the confirmed call does not arrive")


def test_without_servers_the_page_says_how_to_add_one_and_names_what_is_broken(tmp_path, screen):
    with gateway(tmp_path) as running:
        page = opened(screen, running, "desktop", "#/p/mcp")
        page.get_by_text("lmagent mcp add").wait_for()
        (running.workspace / ".mcp.json").write_text("{")
        page.get_by_text("it is not valid JSON").wait_for()
        judged(page, tmp_path, "mcp-broken-desktop")
