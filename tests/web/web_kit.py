"""A real browser on a real gateway: Chromium without a window, `lmagent web` as a process, a scripted model.

    def test_…(screen):
        with shared([say("hello")]) as running:
            page = screen(running)              # logged in
            ask(page, "do it")

A test that changes more of its gateway than sessions and files of the workspace has its own: `gateway(tmp_path, …)`.

A page that prints an error, breaks its policy, opens a dialog or a window, or asks anything of another host, fails its
test at the end. With LMAGENT_SHOTS=FOLDER `shot(page, name)` keeps screenshots there, else in the test's own folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import Running

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or ""
PATIENCE = 60_000
"""Milliseconds that the page has for anything on a busy machine."""

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
DESKTOP = {"viewport": {"width": 1280, "height": 860}}
USUAL = {**DESKTOP, "reduced_motion": "reduce", "service_workers": "block"}
"""Of a window. A service worker would answer where a test lets the gateway be away."""
OPTIONS = ["--no-sandbox", "--disable-dev-shm-usage", "--process-per-site", "--in-process-gpu"]

EXPECTED = re.compile(
    r"status of (4\d\d|50[23])|net::ERR_|response code: (4\d\d|50[23])"
    r"|WebSocket .* failed: (HTTP Authentication failed|.*closed before (receiving|the connection))"
)
"""What a browser logs of requests and sockets that fail: the page shows it, which its tests see. A 500 is a fault."""


class Chromium:
    """One Chromium for the tests of a worker, with a window that most of them use one after the other.

    A new window of its own costs two seconds of a processor for each test: a process, and the page's modules compiled
    in it. Pages of one window share theirs, which stays while its first page does.
    """

    def __init__(self) -> None:
        self._playwright: Any = None
        self.browser: Any = None
        self.window: Any = None
        self._lasting: Any = None
        self._visited: set[str] = set()

    def start(self) -> Any:
        if self.browser is None:
            if not CHROMIUM:
                pytest.skip("chromium is not installed: scripts/ensure_programs installs it where apt can")
            sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
            self._playwright = sync_api.sync_playwright().start()
            self.browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        return self.browser

    def page(self, url: str) -> Any:
        """Return a new page of the shared window, on which nobody is logged in."""
        if self.window is None:
            self.window = self.browser.new_context(**USUAL)
            first = self.window.new_page()
            first.goto(f"{url}/favicon.ico")
            self._lasting = self.window.new_cdp_session(first)
        self._visited.add(url)
        return self.window.new_page()

    def clear(self) -> None:
        """Close all that a test opened, and forget what the shared window keeps of it."""
        for context in self.browser.contexts:
            if context is not self.window:
                context.close()
        if self.window is not None:
            _, *others = self.window.pages
            for page in others:
                page.close()
            self.window.clear_cookies()
            for url in self._visited:
                self._lasting.send("Storage.clearDataForOrigin", {"origin": url, "storageTypes": "local_storage"})
            self._visited.clear()
            self.window.set_default_timeout(PATIENCE)

    def stop(self) -> None:
        """End it: Playwright holds the event loop of the thread, and tests of other folders want one of their own."""
        if self.browser is not None:
            self.browser.close()
            self._playwright.stop()
        self.browser = self.window = self._lasting = self._playwright = None
        self._visited.clear()


chromium = Chromium()


@pytest.fixture
def browser() -> Any:
    return chromium.start()


Screen = Callable[..., Any]


@pytest.fixture
def no_leftovers(browser: Any) -> Iterator[list[str]]:
    """What pages said that they should not have said, which fails the test."""
    wrong: list[str] = []
    yield wrong
    chromium.clear()
    assert not wrong, wrong


@pytest.fixture
def screen(browser: Any, no_leftovers: list[str]) -> Screen:
    """Opens a page on a gateway: `screen(running, login=True, **options of the window)`.

    The first page of a test is one of the shared window; a page with options or `alone`, and each further one, has a
    window of its own, as another person's browser. A test that changes its window has to be alone in it.
    """
    opened: list[Any] = []

    def open_page(running: Running, *, login: bool = True, path: str = "", alone: bool = False, **options: Any) -> Any:
        if opened or options or alone:
            page = browser.new_context(**{**USUAL, **options}).new_page()
        else:
            page = chromium.page(running.url)
        opened.append(page)
        page.context.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: no_leftovers.append(f"error: {error}"))
        page.on("console", lambda said: _heard(said, no_leftovers))
        page.on("dialog", lambda shown: (no_leftovers.append(f"dialog: {shown.message}"), shown.dismiss()))
        page.on("popup", lambda other: no_leftovers.append(f"window: {other.url}"))
        page.on("request", lambda asked: _asked(asked.url, running.url, no_leftovers))
        if login:
            name, _, value = running.page().headers["Cookie"].partition("=")
            page.context.add_cookies([{"name": name, "value": value, "url": running.url, "httpOnly": True}])
        page.goto(f"{running.url}/{path}")
        if login:
            box(page).wait_for()
        return page

    return open_page


def _heard(said: Any, wrong: list[str]) -> None:
    if said.type == "error" and not EXPECTED.search(said.text):
        wrong.append(f"console: {said.text}")


def _asked(url: str, ours: str, wrong: list[str]) -> None:
    if not url.startswith((ours + "/", "blob:", "data:")):
        wrong.append(f"asked elsewhere: {url}")


def box(page: Any) -> Any:
    """Where one writes."""
    return page.get_by_role("textbox", name="Message", exact=True)


def ask(page: Any, text: str) -> None:
    """Write and send it, as by hand."""
    box(page).fill(text)
    page.get_by_role("button", name="Send").click()


def finished(page: Any) -> None:
    """Wait until the turn is done."""
    page.locator("[data-state=done]").wait_for()


def talk(page: Any) -> str:
    """What stands in the conversation."""
    return page.get_by_role("region", name="Conversation").inner_text()


def session_of(page: Any) -> str:
    """Id of the session that the page shows."""
    return page.url.partition("#/s/")[2].partition("/")[0]


def shot(page: Any, folder: Path, name: str) -> None:
    """Keep a picture of the screen."""
    kept = Path(os.environ.get("LMAGENT_SHOTS") or folder)
    kept.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=kept / f"{name}.png")


def long_of(unit: str, times: int) -> str:
    """A text of one unit, that many times, with a number now and then: without, a reply is cut off as endless."""
    return "".join(unit if at % 1000 else f"{at}{unit}" for at in range(times))
