"""The page as an app: it can be installed, and opens where no gateway answers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from gateway_kit import gateway
from web_kit import Screen, box

from lmagent.gateway.http.static import WEB
from lmagent.testing.script import say

pytestmark = pytest.mark.long


def test_the_manifest_names_icons_of_the_sizes_that_they_have() -> None:
    manifest = json.loads((WEB / "lmagent.webmanifest").read_text())
    assert manifest["display"] == "standalone"
    pictures = [icon for icon in manifest["icons"] if icon["type"] == "image/png"]
    assert {icon["sizes"] for icon in pictures} == {"192x192", "512x512"}
    for icon in pictures:
        content = (WEB / Path(icon["src"]).name).read_bytes()
        assert "{}x{}".format(*struct.unpack(">II", content[16:24])) == icon["sizes"]


def test_a_browser_takes_it_for_an_app_and_finds_no_fault(tmp_path: Path, screen: Screen) -> None:
    with gateway(tmp_path, [say("hello")]) as running:
        page = screen(running, service_workers="allow")
        client = page.context.new_cdp_session(page)
        found = client.send("Page.getAppManifest")
        assert found["url"].endswith("/static/lmagent.webmanifest")
        assert found["errors"] == []
        wrong = client.send("Page.getInstallabilityErrors")["installabilityErrors"]
        # A window of a test is incognito to Chromium; its headless shell installs nothing and looks no further.
        assert {error["errorId"] for error in wrong} <= {"in-incognito"}


def test_the_page_opens_without_its_gateway_says_so_and_goes_on_when_it_is_back(tmp_path: Path, screen: Screen) -> None:
    with gateway(tmp_path, [say("hello")]) as running:
        page = screen(running, service_workers="allow")
        page.wait_for_function("() => caches.match('/').then(Boolean)")
        page.wait_for_function("() => Boolean(navigator.serviceWorker.controller)")
        page.reload()  # the worker keeps what it sees, and it was not there at the beginning
        box(page).wait_for()
        running.kill()
        page.reload()
        page.get_by_text("trying again").wait_for()
        running.start()
        box(page).wait_for()


def test_nothing_of_a_conversation_is_kept_for_later(tmp_path: Path, screen: Screen) -> None:
    with gateway(tmp_path, [say("hello")]) as running:
        page = screen(running, service_workers="allow")
        page.wait_for_function("() => Boolean(navigator.serviceWorker.controller)")
        page.reload()
        box(page).wait_for()
        kept = page.evaluate(
            "async () => (await (await caches.open('page')).keys()).map(({ url }) => new URL(url).pathname)"
        )
        assert kept
        assert [path for path in kept if path != "/" and not path.startswith("/static/")] == []


def test_a_notification_of_the_service_worker_leads_to_its_session(tmp_path: Path, screen: Screen) -> None:
    with gateway(tmp_path, [say("hello")]) as running:
        page = screen(running, service_workers="allow", permissions=["notifications"])
        page.wait_for_function("() => Boolean(navigator.serviceWorker.controller)")
        session = running.ask("POST", "/api/sessions", {"title": "Away"}).json["session"]
        [worker] = page.context.service_workers
        worker.evaluate("address => show(address)", f"#/s/{session}")
        page.wait_for_function("id => location.hash === `#/s/${id}`", arg=session)
