"""web_fetch_js: a real Chromium in a real sandbox reads pages that scripts fill, and reaches only the page's site."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Generator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest
from fetch_kit import context
from msgspec.structs import replace

from lmagent.app.confined import Confined
from lmagent.config.settings import Settings
from lmagent.core.errors import ToolError
from lmagent.core.sandbox import Sandbox
from lmagent.core.tool import ToolOutput
from lmagent.sandbox.environment import find_browser
from lmagent.sandbox.hosts import parse_target
from lmagent.testing.fakes import FakeClock
from lmagent.web.browser import site_of
from lmagent.web.fetch import Web
from lmagent.web.links import parse_link
from lmagent.web.reading import read_rendered
from lmagent.web.tools import Browser, WebFetchJs, WebTools

BROWSER = find_browser("", os.environ, Path("/nowhere"))
real = pytest.mark.skipif(
    not (BROWSER and shutil.which("bwrap")), reason="needs Chromium and bubblewrap: scripts/ensure_programs"
)

SCRIPTED = """<title>Shop</title><main><p id=price>loading</p><div id=app></div></main><script>
setTimeout(() => { price.textContent = "The price is 54 euros." }, 3000);
document.getElementById("app").innerHTML = "<h1>Kettle</h1><p style='display:none'>SECRET</p>";
for (const address of ["http://169.254.169.254/latest", "http://127.0.0.1:ELSEWHERE/private", "http://[::1]:ELSEWHERE/",
                       "https://ads.example/x.js", "https://tracker.example/y"])
  fetch(address, {mode: "no-cors"}).catch(() => {});
navigator.serviceWorker?.register("/worker.js").catch(() => {});
window.open("/opened");
new RTCPeerConnection({iceServers: [{urls: "stun:127.0.0.1:ELSEWHERE"}]}).createOffer();
new WebSocket("ws://127.0.0.1:ELSEWHERE/socket");
</script>"""
PAGES = {
    "/scripted": SCRIPTED,
    "/away": "<script>location = 'https://other.example/page'</script>",
    "/moved": "<script>location = '/there'</script>",
    "/there": "<p>This is where the script led.</p>",
    "/endless": "<p>before</p><script>while (true) {}</script>",
    "/dialog": "<p>before</p><script>alert('hello')</script>",
    "/ticking": "<p id=a>0</p><script>setInterval(() => { a.textContent = 'ticks' }, 1)</script>",
    "/growing": "<script>for (;;) document.body.append('x'.repeat(1e6))</script>",
    "/empty": "",
    "/framed": "<p>The text around it.</p><iframe src='/there'></iframe><iframe src='about:blank'></iframe>",
}


class Site:
    """A site of pages with scripts, and a server that must not be reached."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.elsewhere: list[str] = []
        self._servers = [self._serve(self.elsewhere.append), self._serve(self.seen.append)]
        self.other, self.port = (server.server_address[1] for server in self._servers)

    def _serve(self, note: Callable[[str], None]) -> ThreadingHTTPServer:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                note(self.path)
                known = self.path in PAGES
                self.send_response(200 if known or self.path == "/file" else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                if self.path == "/file":
                    self.send_header("Content-Disposition", "attachment; filename=x.bin")
                self.end_headers()
                self.wfile.write(PAGES.get(self.path, "").replace("ELSEWHERE", str(site.other)).encode())

            def log_message(self, format: str, *_: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture(scope="module")
def site() -> Generator[Site]:
    served = Site()
    yield served
    served.close()


def rendered(
    site: Site, path: str, tmp_path: Path, seconds: int = 5, selector: str = "", barred: Sequence[int] = ()
) -> ToolOutput:
    """Return the page; ports that are `barred` are listed too, and a rule forbids them."""

    async def go() -> ToolOutput:
        listed = tuple(f"127.0.0.1:{port}" for port in (site.port, *barred))
        confined = Confined(tmp_path, Settings(agent_data_dir=tmp_path / "data"))
        browser = Browser(BROWSER, confined.beside)
        web = Web(listed, FakeClock(auto=True))
        try:
            return await read_rendered(
                web,
                browser,
                f"http://127.0.0.1:{site.port}{path}",
                seconds,
                selector,
                replace(context(), barred=lambda _, port: port in barred),
            )
        finally:
            await confined.aclose()

    return anyio.run(go)


@real
def test_a_page_is_read_as_its_scripts_have_made_it_and_nothing_else_is_reached(site: Site, tmp_path: Path) -> None:
    before = set(os.listdir("/tmp"))
    result = rendered(site, "/scripted", tmp_path)
    assert "# Kettle" in result.content
    assert "The price is 54 euros." in result.content
    assert "SECRET" not in result.content
    assert result.content.startswith("<outside ")
    assert "[not reached, since they are not the page's own site: ads.example, tracker.example]" in result.content
    assert site.elsewhere == []
    assert {path for path in site.seen if path != "/robots.txt"} <= {
        "/scripted",
        "/opened",
        "/worker.js",
        "/favicon.ico",
    }
    assert not [name for name in set(os.listdir("/tmp")) - before if name.startswith("lmagent-web-")]


@real
def test_a_denied_host_is_not_reached_although_it_is_listed(site: Site, tmp_path: Path) -> None:
    result = rendered(site, "/scripted", tmp_path, barred=(site.other,))
    assert "127.0.0.1 (a rule forbids it)" in result.content
    assert site.elsewhere == []


def test_a_page_from_elsewhere_reaches_no_listed_host_of_this_machine_or_network() -> None:
    near = ("127.0.0.1:8000", "[::1]:1", "ip:nas.home:80", "any:build.test:80")
    web = Web((*near, "cdn.example"), FakeClock(auto=True))
    assert web.listed_for(parse_link("https://news.example/")) == ("cdn.example",)
    assert web.listed_for(parse_link("http://127.0.0.1:8000/")) == (*near, "cdn.example")


@real
def test_a_page_that_leads_to_another_host_is_not_followed(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"shows nothing without other\.example, which it may not reach"):
        rendered(site, "/away", tmp_path)


@real
def test_frames_are_not_read_and_counted(site: Site, tmp_path: Path) -> None:
    text = rendered(site, "/framed", tmp_path, seconds=1).content
    assert "The text around it." in text
    assert text.endswith("\n[frames of the page that are not read: 1]")


@real
@pytest.mark.long
def test_a_script_may_lead_to_another_page_of_the_site(site: Site, tmp_path: Path) -> None:
    assert "This is where the script led." in rendered(site, "/moved", tmp_path).content


@real
@pytest.mark.long
def test_timers_that_never_end_end_with_the_time_of_the_page(site: Site, tmp_path: Path) -> None:
    assert "ticks" in rendered(site, "/ticking", tmp_path, selector="#a").content


@real
@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/endless", "did not come to an end"),
        ("/dialog", "did not come to an end"),
        ("/growing", "too large for the browser|did not come to an end|takes more memory"),
        ("/file", "is an empty page, a download|did not come to an end"),
        ("/empty", "is an empty page, a download"),
    ],
)
def test_a_page_that_does_not_end_or_is_none_is_said(site: Site, tmp_path: Path, path: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        rendered(site, path, tmp_path, seconds=1)


def test_the_user_is_asked_about_the_host_before_a_browser_starts(tmp_path: Path) -> None:
    async def none(*_: object) -> Sandbox:
        raise AssertionError("no sandbox is needed to ask")

    tool = WebTools((), FakeClock()).fetch_js(Browser("/usr/bin/chromium", none))
    assert tool.hosts is not None
    assert tool.preview is not None
    assert tool.hosts(WebFetchJs("https://docs.example/a")) == ("docs.example:443",)
    assert tool.preview(WebFetchJs("https://docs.example/a"), context()).startswith(
        "Fetch a page from docs.example in a browser"
    )
    with pytest.raises(ToolError, match="is not on the internet"):
        tool.preview(WebFetchJs("http://192.168.1.1/"), context())


@pytest.mark.parametrize(
    ("address", "patterns"),
    [
        ("docs.python.org:443", ("docs.python.org", "*.docs.python.org")),
        ("www.example.com:443", ("www.example.com", "example.com", "*.example.com")),
        ("example.com:8443", ("example.com:8443", "*.example.com:8443")),
        ("127.0.0.1:8080", ()),
        ("localhost:8080", ()),
        ("[::1]:80", ()),
    ],
)
def test_the_own_site_of_a_page_is_its_host_and_the_names_below(address: str, patterns: tuple[str, ...]) -> None:
    assert site_of(parse_target(address)) == patterns


def test_a_browser_is_found_on_the_path_by_setting_and_in_the_cache_of_playwright(tmp_path: Path) -> None:
    def program(*parts: str) -> str:
        path = tmp_path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}
    workspace = tmp_path / "work"
    assert find_browser("", env, workspace) == ""
    cached = program("home/.cache/ms-playwright/chromium_headless_shell-1187/chrome-linux/headless_shell")
    assert find_browser("", env, workspace) == cached
    chrome = program("bin/google-chrome")
    assert find_browser("", env, workspace) == chrome
    assert find_browser(cached, env, workspace) == cached
    assert find_browser(str(tmp_path / "missing"), env, workspace) == ""
    assert find_browser("", {"PATH": "/nowhere"}, workspace) == ""
    assert find_browser("", {"PATH": env["PATH"]}, tmp_path) == ""
