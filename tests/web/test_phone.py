"""A person on a phone sends a task with a picture, approves, closes the page, and finds the run in a terminal."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gateway_kit import gateway
from images_kit import png
from panel_kit import enter, until
from web_kit import PATIENCE, PHONE, ask, box, session_of

from lmagent.testing.script import call, hang, say, think

pytestmark = pytest.mark.long

SHOTS = Path(__file__).parents[2] / ".cache" / "screenshots"
TASK = "What is on this picture? Count the lines of notes.txt and write the number into count.txt"
COUNT = "until [ -e closed ]; do sleep 0.05; done; wc -l < notes.txt > count.txt"
ANSWER = "There are three lines, and count.txt says so."


def address_for_phones(running) -> str:
    """The address that the gateway printed beside that of this machine."""
    own = [line.strip() for line in running.said if line.strip().startswith("http://")]
    others = [address for address in own if "://127.0.0.1:" not in address]
    if not others:
        pytest.skip("this machine has no address in a network: nothing but itself can reach it")
    return others[0]


class Phone:
    """A phone's browser, with what it complained about and whom it asked; `shot` keeps what it shows."""

    def __init__(self, browser, url: str) -> None:
        self.url = url
        self.wrong: list[str] = []
        self.context = browser.new_context(**PHONE, reduced_motion="reduce")
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda asked: self._asked(asked.url))

    def _asked(self, url: str) -> None:
        if not url.startswith((self.url, "blob:")):
            self.wrong.append(f"asked elsewhere: {url}")

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"phone-{name}.png")

    def fits(self) -> bool:
        """Nothing stands out of the screen at the side."""
        return self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def terminal(running, *words: str) -> str:
    """What `lmagent` prints in the same workspace."""
    command = [sys.executable, "-m", "lmagent", *words]
    done = subprocess.run(
        command, cwd=running.workspace, env=running.env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_task_sent_and_approved_on_a_phone_is_found_finished_in_the_terminal(tmp_path, browser):
    script = [
        think("I count the lines.", call("bash", command=COUNT)),
        say(ANSWER),
        say("It was three."),
    ]
    with gateway(tmp_path, script, options=["--lan", "--permission", "normal"]) as running:
        (running.workspace / "notes.txt").write_text("one\ntwo\nthree\n")
        phone = Phone(browser, address_for_phones(running))
        session = a_run_from_the_phone(phone)
        (running.workspace / "closed").touch()
        until(lambda: ended(running), "the turn goes on for ever")
        assert (running.workspace / "count.txt").read_text().strip() == "3"
        picture_was_sent(running)
        assert phone.wrong == []
        found_in_the_terminal(running, session)


def a_run_from_the_phone(phone: Phone) -> str:
    """Up to the closed page; the session's id."""
    page = phone.page
    page.goto(phone.url)
    page.get_by_label("PIN").wait_for()
    phone.shot("1-pin")
    enter(page)
    assert phone.fits()
    phone.shot("2-first-screen")
    picture = {"name": "photo.png", "mimeType": "image/png", "buffer": png(64, 48)}
    page.locator("input[type=file]").set_input_files(picture)
    page.locator(".box .pictures img").wait_for()
    box(page).fill(TASK)
    phone.shot("3-task-with-picture")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Approve").wait_for()
    assert phone.fits()
    phone.shot("4-approval")
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Approve").wait_for(state="detached")
    page.locator("[data-state=busy]").wait_for()
    phone.shot("5-running")
    session = session_of(page)
    phone.context.close()
    return session


def ended(running) -> bool:
    return any(event["type"] == "turn.finished" for event in running.logs())


def picture_was_sent(running) -> None:
    """To the model server, as a picture, beside the words."""
    asked = next(request.body for request in running.model.requests if request.body)
    [told] = [item for item in asked["messages"] if TASK in json.dumps(item)]
    assert any(part["type"] == "image_url" for part in told["content"])


def found_in_the_terminal(running, session: str) -> None:
    """It is listed, shown whole, and goes on there."""
    assert session in terminal(running, "sessions", "list")
    shown = terminal(running, "sessions", "show", session)
    assert TASK in shown
    assert ANSWER in shown
    running.stop()
    model = ["--base-url", running.model.base_url, "-m", "scripted"]
    assert "It was three." in terminal(running, "--resume", session, *model, "How many were there?")


def test_what_a_phone_sees_stands_on_a_desktop_at_the_same_time(tmp_path, screen):
    with gateway(tmp_path, [call("bash", command="echo both"), say("Seen by both.")]) as running:
        phone = screen(running, login=False, **PHONE)
        enter(phone)
        box(phone).fill("Show it on two screens")
        phone.get_by_role("button", name="Send").click()
        phone.get_by_role("button", name="Approve").wait_for()
        desktop = screen(running)
        desktop.get_by_role("region", name="Sessions").get_by_role("link", name="Show it on two screens").click()
        desktop.get_by_role("button", name="Approve").click()
        for page in (phone, desktop):
            page.get_by_text("Seen by both.").wait_for()
            page.locator("[data-state=done]").wait_for()
            assert page.get_by_role("button", name="Approve").count() == 0
        assert [event["type"] for event in running.logs()].count("approval.resolved") == 1


def test_a_message_that_waits_can_be_cancelled_on_a_small_screen(tmp_path, screen):
    with gateway(tmp_path, [hang(say("A long answer that waits."), chunks=2)]) as running:
        page = screen(running, **PHONE)
        ask(page, "Write something long")
        queue = page.get_by_role("button", name="Queue")
        queue.wait_for()
        box(page).fill("And then a second question, which is much longer than the screen is wide")
        queue.click()
        cancel = page.get_by_role("button", name="Cancel")
        cancel.wait_for()
        place = cancel.bounding_box()
        assert place["x"] + place["width"] <= PHONE["viewport"]["width"]
