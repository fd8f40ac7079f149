"""web_fetch: its answers, the pages that it keeps, and its manners."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest
from fetch_kit import fetched, refusal, web
from testkit.trapsite import PAGE, html

from lmagent.core.errors import ToolError
from lmagent.core.messages import ToolCall
from lmagent.engine.toolbox import Toolbox
from lmagent.testing.fakes import FakeClock
from lmagent.web.client import WebAnswer
from lmagent.web.links import parse_link
from lmagent.web.robots import Robots
from lmagent.web.tools import WebTools

ROBOTS = "User-agent: lmagent\nDisallow: /private\nCrawl-delay: 3\n\nUser-agent: *\nDisallow: /\n"


@pytest.fixture(autouse=True)
def no_pages(site):
    site.pages.clear()
    site.seen.clear()


def test_a_page_comes_with_its_title_and_its_last_address(site):
    content = fetched(web(site), site.to("/page")).content
    assert content.splitlines()[1:3] == ["# A page", site.url("/page")]
    assert "The text of the page." in content


def test_only_so_many_characters_are_shown_and_the_rest_is_named(site):
    site.pages["/long"] = html("<title>Long</title>" + "".join(f"<p>Line {number}.</p>" for number in range(1000)))
    output = fetched(web(site), site.url("/long"), characters=500)
    assert "Line 10." in output.content
    assert "Line 100." not in output.content
    assert "[500 of " in output.content.splitlines()[-1]
    assert output.full is not None
    assert "Line 999." in output.full


def test_reading_on_does_not_fetch_again_and_the_same_call_does(site):
    of = web(site)
    for characters in (100, 200, 300):
        fetched(of, site.url("/page"), characters=characters)
    assert site.seen.count("/page") == 1
    fetched(of, site.url("/page"), characters=300)
    assert site.seen.count("/page") == 2


def test_a_kept_page_is_of_one_session_grows_old_and_ends_with_the_session(site):
    clock = FakeClock(auto=True)
    of = web(site, clock=clock)
    fetched(of, site.url("/page"), characters=100)
    assert of.pages.get("other", parse_link(site.url("/page")), ("", 1)) is None
    assert of.pages.get("s", parse_link(site.url("/page")), ("", 1)) is not None
    of.forget("s")
    assert of.pages.get("s", parse_link(site.url("/page")), ("", 1)) is None
    fetched(of, site.url("/page"), characters=100)
    anyio.run(clock.sleep, 1000)
    assert of.pages.get("s", parse_link(site.url("/page")), ("", 1)) is None


def test_robots_txt_is_read_once_and_obeyed(site):
    site.pages["/robots.txt"] = html(ROBOTS, "text/plain")
    site.pages["/private/a"] = html(PAGE)
    of = web(site)
    assert "robots.txt keeps programs from /private/a" in refusal(of, site.url("/private/a"))
    assert "The text" in fetched(of, site.url("/page")).content
    assert site.seen == ["/robots.txt", "/page"]


def test_a_redirect_to_a_page_that_robots_may_not_read_is_not_followed(site):
    site.pages["/robots.txt"] = html(ROBOTS, "text/plain")
    assert "robots.txt keeps programs from /private/b" in refusal(web(site), site.to("/private/b"))
    assert "/private/b" not in site.seen


def test_rules_that_cannot_be_read_keep_us_out_and_missing_ones_do_not(site):
    site.pages["/robots.txt"] = b"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\n"
    assert "robots.txt keeps programs" in refusal(web(site), site.url("/page"))
    site.pages["/robots.txt"] = b"HTTP/1.1 403 No\r\nConnection: close\r\n\r\n"
    assert "The text" in fetched(web(site), site.url("/page")).content


@pytest.mark.parametrize(
    ("rules", "readable", "kept"),
    [
        ("User-agent: *\nDisallow: /*?q=\nDisallow: /*.pdf$", "/a.pdf/b", "/a?q=1"),
        ("User-agent: *\nDisallow: /*?q=\nDisallow: /*.pdf$", "/b?p=1", "/x/y.pdf"),
        ("User-agent: *\nAllow: /\nDisallow: /private/", "/b", "/private/a"),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b", "/a/c"),
        ("User-agent: *\nDisallow: /p$", "/page", "/p"),
        ("\ufeffUser-agent: *\r\n\r\nDisallow: /a b # why", "/a", "/a%20b"),
        ("User-agent: agent\nDisallow: /\n\nUser-agent: *\nDisallow: /x", "/y", "/x"),
        ("User-agent: *\nDisallow: /\nUser-agent: LMagent\nUser-agent: b\n\nDisallow: /x", "/y", "/x"),
        (
            "User-agent: lmagent\nDisallow: /x\nUser-agent: b\nDisallow: /\nUser-agent: lmagent\nDisallow: /y",
            "/z",
            "/y",
        ),
        (f"User-agent: *\nDisallow: /{'*a' * 100_000}b\nDisallow: /x", f"/{'a' * 2000}", "/x"),
    ],
)
def test_the_longest_rule_of_robots_txt_with_its_stars_decides(rules, readable, kept):
    robots = Robots(WebAnswer(200, {}, rules.encode()))
    robots.check(parse_link(f"https://site.test{readable}"))
    with pytest.raises(ToolError):
        robots.check(parse_link(f"https://site.test{kept}"))


@pytest.mark.parametrize(("asked", "pause"), [("3", 3), ("0.5", 0.5), ("9999", 10), ("nan", 0), ("-1", 0), ("1e9", 0)])
def test_a_pause_that_is_no_number_is_none(asked, pause):
    assert Robots(WebAnswer(200, {}, f"User-agent: *\nCrawl-delay: {asked}".encode())).pause == pause


def test_a_host_gets_its_pause_and_a_longer_one_if_it_asks(site):
    clock = FakeClock(auto=True)
    of = web(site, clock=clock)
    fetched(of, site.url("/page"))
    fetched(of, site.url("/orders"))
    assert [slept for slept in clock.slept if slept] == [0.5]
    site.pages["/robots.txt"] = html(ROBOTS, "text/plain")
    of.forget("s")
    fetched(of, site.url("/page"))
    fetched(of, site.url("/orders"))
    assert [slept for slept in clock.slept if slept] == [0.5, 0.5, 3.0]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("https://Docs.Python.org:443/3/?q=a b#part", "https://docs.python.org/3/?q=a%20b"),
        ("docs.python.org/3/", "https://docs.python.org/3/"),
        ("localhost:3000", "http://localhost:3000/"),
        ("http://example.com", "http://example.com/"),
        ("http://example.com?q=\u00e9", "http://example.com/?q=%C3%A9"),
        ("  https://example.com./a  ", "https://example.com/a"),
    ],
)
def test_an_address_has_one_spelling(given, meant):
    assert str(parse_link(given)) == meant


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "https://example.com/", "prompt": "What does it say?"},
        {"uri": "https://example.com/", "max_length": 5000, "raw": False, "start_index": 0},
        {"url": "https://example.com/", "selector": "main", "format": "markdown"},
    ],
)
@pytest.mark.parametrize("name", ["fetch", "WebFetch", "web-fetch", "fetch_url"])
def test_calls_under_the_names_of_other_agents_are_understood(name, arguments):
    toolbox = Toolbox([WebTools((), FakeClock()).fetch()])
    invocation = toolbox.resolve(ToolCall("c", name, json.dumps(arguments)))
    assert invocation.tool.name == "web_fetch"
    assert invocation.hosts == ("example.com:443",)
    assert invocation.summary == "web_fetch https://example.com/"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: it makes the certificate")
def test_over_tls_the_certificate_must_be_of_the_name_although_the_connection_goes_to_an_address(site, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=good.test", "-addext", "subjectAltName=DNS:good.test", "-days", "2"]
    subprocess.run([*command, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/page"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE.encode() if found else b"")

        def log_message(self, format: str, *_: object) -> None:
            """Be quiet."""

    async def resolve(_host: str, _port: int) -> tuple[str, ...]:
        return ("127.0.0.1",)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(certificate, key)
        server.socket = served.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        port = server.server_port
        tls = ssl.create_default_context(cafile=certificate)
        of = web(site, f"ip:good.test:{port}", f"ip:other.test:{port}", resolver=resolve, tls=tls)
        assert "The text of the page." in fetched(of, f"https://good.test:{port}/page").content
        assert "has no valid certificate" in refusal(of, f"https://other.test:{port}/page")
        server.shutdown()
