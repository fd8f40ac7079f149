"""web_screenshot: a picture of a page in the workspace, drawn by a real Chromium in a real sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fetch_kit import run
from testkit.trapsite import html

from lmagent.sandbox.environment import find_browser
from lmagent.testing.script import call, say
from lmagent.tools.pictures import picture_of
from lmagent.web.tools import WebScreenshot, picture_path

real = pytest.mark.skipif(
    not find_browser("", os.environ, Path("/nowhere")), reason="needs Chromium and bubblewrap: scripts/ensure_programs"
)


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    (empty_workspace / "mine.png").write_bytes(b"not of the session")
    return empty_workspace


def shot(url: str, **more: object):
    return call("use_tool", name="web_screenshot", arguments={"url": url, "wait_seconds": 1, **more})


@real
def test_a_page_is_drawn_into_the_workspace_shown_and_undone(workspace, site):
    site.pages["/red"] = html("<title>Red</title><body style='background: red'><p>A page.</p>")
    ran = run(workspace, shot(site.url("/red"), output="shots/red.png"), sandbox_hosts=(site.address,), undo=True)
    (asked,) = ran.asked
    assert asked.summary == f"web_screenshot {site.url('/red')} → shots/red.png"
    assert asked.preview.startswith(f"Fetch a page from {site.address} in a browser, with its scripts and pictures:")
    (result,) = ran.results
    assert (result.status, result.data["picture"]) == ("ok", "shots/red.png"), result.content
    assert "shots/red.png (1280 x 1600 pixels, " in result.content
    assert ran.changes == ["shots", "shots/red.png"]
    assert not (workspace / "shots/red.png").exists()


@real
def test_a_model_that_sees_is_told_of_it_and_looks_at_the_picture(workspace, site):
    look = call("use_tool", name="vision", arguments={"path": "127.0.0.1.png", "prompt": "What colour?"})
    take = shot(site.url("/page"), output="127.0.0.1.png")
    flags = {"sandbox_hosts": (site.address,), "permission_mode": "auto", "vision_enabled": "true"}
    ran = run(workspace, take, look, say("It is white."), **flags)
    assert "webp). web_screenshot(url) takes one of a web page." in str(ran.requests[0]["messages"])
    asked = next(body for body in ran.requests if "data:image/png;base64," in str(body))
    assert "What colour?" in str(asked["messages"])
    assert ran.results[1].content == "It is white."


@real
@pytest.mark.long
def test_the_picture_has_what_the_page_shows(workspace, site):
    site.pages["/red"] = html("<title>Red</title><body style='background: red'><p>A page.</p>")
    ran = run(workspace, shot(site.url("/red")), sandbox_hosts=(site.address,))
    picture = (workspace / ran.results[0].data["picture"]).read_bytes()
    found = picture_of(picture)
    assert found is not None
    assert (found.media_type, found.width, found.height) == ("image/png", 1280, 1600)
    assert len(picture) > 3000


def test_no_other_file_is_replaced_and_no_near_host_is_drawn_before_anyone_is_asked(workspace, site):
    calls = (
        shot(site.url("/page"), output="mine.png"),
        shot(site.url("/page"), output="page.jpg"),
        shot("http://192.168.1.1/"),
    )
    ran = run(workspace, *calls, sandbox_hosts=(site.address,))
    assert ran.asked == []
    refusals = (
        "mine.png exists, and is no picture of this session",
        "Give a name that ends in .png",
        "is not on the i",
    )
    for result, words in zip(ran.results, refusals, strict=True):
        assert words in result.content
    assert (workspace / "mine.png").read_bytes() == b"not of the session"


@pytest.mark.parametrize("flags", [{"approve": False}, {"permission_deny": ("effect:net(elsewhere.test)",)}])
def test_a_host_that_is_not_listed_is_asked_about_also_if_writing_is_allowed(workspace, flags):
    ran = run(workspace, shot("https://elsewhere.test/"), permission_allow=("web_screenshot",), **flags)
    assert [asked.summary for asked in ran.asked] == ["connect to elsewhere.test:443"][: "approve" in flags]
    assert "Connecting to elsewhere.test was not allowed" in ran.results[0].content


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://docs.python.org/3/", "docs.python.org.png"),
        ("http://127.0.0.1:8000/", "127.0.0.1-8000.png"),
        ("http://[::1]:8000/", "1-8000.png"),
    ],
)
def test_a_picture_is_named_like_its_host(url, path):
    assert picture_path(WebScreenshot(url)) == path
