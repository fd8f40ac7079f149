"""Sessions that are there before somebody looks at them, and where the panels stand on the page."""

from __future__ import annotations

import time
from typing import Any

from gateway_kit import PIN, Running
from web_kit import PHONE, box

WAIT = 30.0
"""Seconds for a turn on a busy machine."""


def begun(running: Running, text: str, *, mode: str = "auto", done: bool = True) -> str:
    """A session in which something was asked for; its id. With `done`, its turn has ended."""
    session = running.ask("POST", "/api/sessions", {"mode": mode}).json["session"]
    told(running, session, text, done=done)
    return session


def told(running: Running, session: str, text: str, *, done: bool = True) -> None:
    """Something that is said in a session."""
    turns = turns_of(running, session)
    command(running, session, type="submit", message={"role": "user", "parts": [{"type": "text", "text": text}]})
    if done:
        until(lambda: turns_of(running, session) > turns, f"the turn of {text!r} does not end")


def command(running: Running, session: str, **wish: Any) -> None:
    """A command that is accepted."""
    answer = running.ask("POST", f"/api/sessions/{session}/commands", wish)
    assert answer.status == 202, answer.body


def turns_of(running: Running, session: str) -> int:
    """Turns that have ended."""
    return int(running.ask("GET", f"/api/sessions/{session}").json["turns"])


def until(holds: Any, otherwise: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def go(page: Any, address: str) -> None:
    """Follow an address of the page, `#/p/usage`, and be there: a browser tells the page of it a moment later."""
    page.evaluate(
        """address => new Promise((there) => {
          if (location.hash === address) return there();
          addEventListener("hashchange", () => there(), { once: true });
          location.hash = address;
        })""",
        address,
    )


def holds(page: Any, expression: str) -> None:
    """Wait until something holds in the page, whose rules forbid what Playwright waits with: making code of text."""
    until(lambda: page.evaluate(expression), f"it never holds: {expression}")


def region(page: Any, name: str) -> Any:
    """A part of the page by its name."""
    return page.get_by_role("region", name=name, exact=True)


def on_phone(screen: Any, running: Running, **options: Any) -> Any:
    """A page on a phone, logged in."""
    page = screen(running, login=False, **PHONE, **options)
    enter(page)
    return page


def enter(page: Any, pin: str = PIN) -> None:
    """Log in."""
    page.get_by_label("PIN").fill(pin)
    page.get_by_role("button", name="Log in").click()
    box(page).wait_for()
