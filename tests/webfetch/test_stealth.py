"""web_fetch_stealth: a browser's request through the same guard; libcurl resolves nothing and follows nothing."""

from __future__ import annotations

import anyio
import pytest
from fetch_kit import SHORT, fetched, refusal
from testkit.trapsite import Canary, escapes, html, resolve

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.testing.fakes import FakeClock
from lmagent.web.client import FetchLimits
from lmagent.web.fetch import Web

pytest.importorskip("curl_cffi", reason="the extra `stealth` is not installed: its client was NOT tested")

LONGER = FetchLimits(connect=1.0, silence=10.0, whole=20.0, body=1 << 20)


def stealth(site, *more: str, limits: FetchLimits = LONGER) -> Web:
    return Web((site.address, *more), FakeClock(auto=True), resolve=resolve, limits=limits, stealth=True)


def test_a_page_is_asked_for_as_a_browser_does_without_cookies(site):
    of = stealth(site)
    assert "The text of the page." in fetched(of, site.url("/cookies")).content
    assert "The text of the page." in fetched(of, site.url("/page")).content
    robots, head = site.heads[0].lower(), site.heads[-1].lower()
    assert "user-agent: lmagent" in robots
    assert "mozilla/5.0" in head
    assert "lmagent" not in head
    assert not any(f"\r\n{name}:" in head for name in ("cookie", "authorization", "referer"))


def test_the_connection_goes_to_the_judged_address_and_through_no_proxy(site, monkeypatch):
    canary = Canary()
    for name in ("http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
    of = stealth(site, f"ip:loopback.test:{site.port}")
    assert "The text of the page." in fetched(of, f"http://loopback.test:{site.port}/page").content
    canary.listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        canary.listener.accept()
    canary.close()


def test_no_redirect_leads_out(site):
    canary = Canary()
    for location in escapes(canary.port).values():
        refusal(stealth(site), site.to(location))
    canary.listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        canary.listener.accept()
    canary.close()


def test_a_redirect_on_the_site_is_followed_by_us(site):
    output = fetched(stealth(site), site.to("/page"))
    assert output.data["page"]["url"] == site.url("/page")


@pytest.mark.parametrize("path", ["/bomb-gzip", "/bomb-deflate", "/bomb-raw", "/endless"])
def test_a_page_that_is_too_long_is_read_in_part(site, path):
    # Each piece of a body counts for more than its bytes.
    assert 1_000_000 < fetched(stealth(site), site.url(path)).data["bytes"] <= 1 << 20


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/missing", "answers 404"),
        ("/brotli", "packed the page with 'br'"),
        ("/video", "longer than 1 MB"),
        ("/silent", "cannot be read"),
        ("/drip", "cannot be read"),
        ("/huge-header", "cannot be read"),
        ("/nothing", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(site, path, why):
    limits = SHORT if path in ("/silent", "/drip") else LONGER
    assert why in refusal(stealth(site, limits=limits), site.url(path))


def test_robots_txt_is_obeyed(site):
    site.pages["/robots.txt"] = html("User-agent: *\nDisallow: /page\n", "text/plain")
    try:
        assert "robots.txt keeps programs" in refusal(stealth(site), site.url("/page"))
    finally:
        del site.pages["/robots.txt"]


@pytest.mark.parametrize("on", [False, True])
def test_the_tool_is_there_only_if_it_is_switched_on(empty_workspace, on):
    async def names() -> set[str]:
        flags = {"llm_url": "http://127.0.0.1:1/v1", "fetch_stealth": on}
        host = await open_host(HostOptions(empty_workspace, flags), say=lambda _: None)
        try:
            return {tool.name for tool in host.toolbox}
        finally:
            await host.aclose()

    assert ("web_fetch_stealth" in anyio.run(names)) is on
