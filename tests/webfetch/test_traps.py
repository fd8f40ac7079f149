"""A site of traps: nothing reaches another place, nothing hangs, and nothing grows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fetch_kit import fetched, refusal, web
from testkit.trapsite import HANGING, ORDER, TRAPS, Canary, connections, escapes

from lmagent.web.client import FetchLimits


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    canary = Canary()
    yield canary
    canary.close()


ESCAPES = escapes(1)


@pytest.mark.parametrize("way", list(ESCAPES))
def test_no_redirect_leads_out_even_if_the_user_allows_every_host(site, canary, way):
    location = escapes(canary.port)[way]
    with connections() as tried:
        why = refusal(web(site), site.to(location))
    assert set(tried) <= {("127.0.0.1", site.port)}, (way, why)


@pytest.mark.parametrize("way", list(ESCAPES))
def test_no_address_of_a_call_leads_out(site, canary, way):
    with connections() as tried:
        why = refusal(web(site), escapes(canary.port)[way])
    assert tried == [], (way, why)


def test_only_the_listed_port_of_a_machine_is_reached(site, canary):
    assert "not on the internet" in refusal(web(site), f"http://127.0.0.1:{canary.port}/")
    assert "--allow-host 127.0.0.1:" in refusal(web(site), f"http://127.0.0.1:{canary.port}/")


def test_a_name_is_resolved_once_for_a_connection_which_goes_to_the_judged_address(site):
    answers = [("127.0.0.1",), ("127.0.0.1",), ("169.254.169.254",), ("169.254.169.254",)]
    looked: list[str] = []

    async def flipping(host: str, _port: int) -> tuple[str, ...]:
        looked.append(host)
        return answers[len(looked) - 1]

    of = web(site, f"ip:flip.test:{site.port}", resolver=flipping)
    url = f"http://flip.test:{site.port}/page"
    with connections() as tried:
        assert "The text of the page." in fetched(of, url).content
        assert "169.254.169.254, which is not on the internet" in refusal(of, url)
    assert tried == [("127.0.0.1", site.port)] * len(tried)
    assert len(looked) == len(tried) + 1


def test_an_address_that_is_not_allowed_is_passed_over_for_one_that_is(site):
    of = web(site, f"ip:partly.test:{site.port}")
    with connections() as tried:
        assert "The text of the page." in fetched(of, f"http://partly.test:{site.port}/page").content
    assert {host for host, _ in tried} == {"127.0.0.1"}


@pytest.mark.parametrize("path", HANGING)
def test_what_never_ends_is_ended(site, path):
    begun = time.monotonic()
    if path in ("/endless", "/endless-chunks"):  # the beginning of an endless page is a page
        content = fetched(web(site, limits=FetchLimits(body=1 << 20)), site.url(path)).content
        assert "only its beginning was read" in content
    else:
        why = refusal(web(site), site.url(path))
        assert "did not answer within 0.8 s" in why or "is silent" in why
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("path", ["/bomb-gzip", "/bomb-deflate", "/bomb-raw", "/bomb-members", "/ten-megabytes"])
def test_a_page_that_is_too_long_is_read_in_part_and_a_bomb_never_unpacked(site, path):
    of = web(site, limits=FetchLimits(body=1 << 20))
    output = fetched(of, site.url(path))
    assert output.data["bytes"] == 1 << 20
    assert output.content.endswith("[the page is longer: only its beginning was read]")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/brotli", "packed the page with 'br'"),
        ("/twice-packed", "packed the page with 'gzip, gzip'"),
        ("/damaged", "the packed bytes are damaged"),
        ("/cut", "before the page was whole"),
        ("/loop", "redirects more than 5 times"),
        ("/nowhere", "answers 302 Found"),
        ("/missing", "answers 404 Not Found."),
        ("/busy", "answers 429 Too Many Requests."),
        ("/strange", "is _/\\x1b[2j_, which is no text"),
        ("/rubbish", "does not speak HTTP"),
        ("/nothing", "closed the connection"),
        ("/huge-header", "does not speak HTTP"),
        ("/endless-head", "does not speak HTTP"),
        ("/video", "is longer than 1 MB, so it was not read"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(site, path, why):
    assert why in refusal(web(site, limits=FetchLimits(silence=5, whole=10, body=1 << 20)), site.url(path))


@pytest.mark.parametrize("location", ["//[x", "http://[::1", "http://\u2100.test/", "http://a.test:0/"])
def test_a_redirect_to_no_address_is_said_in_one_line(site, location):
    assert "cannot be fetched: " in refusal(web(site), site.to(location))


@pytest.mark.parametrize("path", ["/wrong-charset", "/no-charset"])
def test_a_wrong_charset_costs_a_letter_and_not_the_page(site, path):
    assert "caf" in fetched(web(site), site.url(path)).content


def test_orders_in_a_page_arrive_as_data_that_cannot_end_its_frame(site):
    content = fetched(web(site), site.url("/orders")).content
    first, *_, last = content.splitlines()
    assert first.startswith("<outside ")
    assert f'from="web {site.address}"' in first
    assert last == f"</outside {first.split()[1]}>"
    assert ORDER in content
    assert "</outside>" not in content


def test_a_host_that_refuses_or_does_not_exist_is_named(site, canary):
    canary_port = Canary()
    canary_port.close()
    assert "refuses connections" in refusal(web(site, f"127.0.0.1:{canary_port.port}"), f"127.0.0.1:{canary_port.port}")
    assert "There is no host named nowhere.test" in refusal(web(site), "https://nowhere.test/")


def test_a_new_host_is_asked_about_once_and_a_denial_ends_the_fetch(site):
    asked: list[str] = []
    url = site.to("https://elsewhere.test/page")
    assert "There is no host named elsewhere.test" in refusal(web(site), url, asked=asked)
    assert asked == ["elsewhere.test:443"]
    before = len(site.seen)
    assert "connecting to elsewhere.test was not allowed" in refusal(web(site), url, answer=False)
    assert site.seen[before:] == ["/robots.txt", url.removeprefix(f"http://{site.address}")]


def test_no_redirect_leads_to_another_listed_host_of_this_machine(site):
    asked: list[str] = []
    url = site.to(f"http://loopback.test:{site.port}/page")
    before = site.seen.count("/page")
    assert "no redirect is followed there" in refusal(web(site, f"ip:loopback.test:{site.port}"), url, asked=asked)
    assert (asked, site.seen.count("/page")) == ([], before)


def test_a_name_of_the_environment_for_a_proxy_is_not_used(site, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert "The text of the page." in fetched(web(site), site.url("/page")).content


def test_no_cookie_no_key_and_no_referrer_is_sent_and_the_name_is_honest(site):
    of = web(site)
    fetched(of, site.url("/cookies"))
    fetched(of, site.to("/cookies"))
    head = site.heads[-1].lower()
    assert "user-agent: lmagent/" in head
    assert not any(f"\r\n{name}:" in head for name in ("cookie", "authorization", "referer", "origin"))


def test_the_listener_that_must_not_be_reached_was_not(canary):
    canary.listener.settimeout(0.05)
    canary.listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        canary.listener.accept()


def test_every_trap_is_one_of_the_site():
    assert set(HANGING) <= set(TRAPS)
