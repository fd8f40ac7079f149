"""Agents on the page: chosen when a conversation begins, named in it and in the list; and the page of a project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_kit import Running, gateway, shared
from test_agents_api import CLERK, write_agent
from web_kit import PHONE, ask, finished, session_of, shot

from lmagent.projects.starting import start
from lmagent.testing.script import call, say

DARK = {"color_scheme": "dark"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("agents")
    write_agent(folder, "clerk.toml", CLERK)
    with gateway(folder, lambda _: say("Five euros.")) as started:
        yield started


def test_an_agent_is_chosen_by_keyboard_and_named_above_the_conversation_and_in_the_list(screen, running, tmp_path):
    page = screen(running)
    page.get_by_role("button", name="Agent: lmagent").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="clerk").wait_for()
    shot(page, tmp_path, "agents-menu")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert "Knows the prices" in page.locator(":focus").inner_text()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Clerk").wait_for()
    page.get_by_role("button", name="Permissions: manual").wait_for()  # as the agent's file says
    assert page.get_by_text("Examples").count() == 0
    shot(page, tmp_path, "agents-first-screen")
    ask(page, "What does a lamp cost?")
    finished(page)
    assert running.model.chats[-1].messages[0]["content"] == "You are the clerk."
    assert running.ask("GET", f"/api/sessions/{session_of(page)}").json["agent"] == "clerk"
    page.locator(".under").get_by_title("Agent: clerk").wait_for()
    page.locator(".sessions .about").get_by_text("clerk").wait_for()
    assert page.get_by_role("button", name="Agent: ").count() == 0  # a session keeps its agent
    shot(page, tmp_path, "agents-conversation")
    page.get_by_role("button", name="New session").click()
    page.get_by_role("button", name="Agent: lmagent").wait_for()
    ask(page, "And a table?")
    finished(page)
    assert page.locator(".under").get_by_title("Agent:").count() == 0


def test_a_phone_has_the_choice_in_its_menu(screen, running, tmp_path):
    page = screen(running, **PHONE, **DARK)
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("button", name="Agent: lmagent").click()
    page.get_by_role("button", name="clerk").click()
    page.get_by_role("heading", name="Clerk").wait_for()
    ask(page, "What does a lamp cost?")
    finished(page)
    page.locator(".under").get_by_title("Agent: clerk").wait_for()
    shot(page, tmp_path, "agents-phone-dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_agents_of_files_there_is_no_choice(screen):
    with shared([say("Hello.")]) as running:
        page = screen(running)
        page.get_by_role("heading", name="What shall we work on?").wait_for()
        page.get_by_role("button", name="Model: ").wait_for()
        assert page.get_by_role("button", name="Agent: ").count() == 0


def test_the_page_of_a_project_has_its_name_and_takes_a_question_of_it_for_an_answer(screen, tmp_path: Path):
    project = start(tmp_path / "dice-master", "conversational")
    (project / "agent.yaml").write_text((project / "agent.yaml").read_text().replace('"dice-master"', '"Dice Master"'))
    with gateway(tmp_path, [call("roll_dice"), say("A four. Again?")], project=project) as running:
        page = screen(running)
        page.get_by_role("heading", name="Dice Master").wait_for()
        page.get_by_text("Talks, rolls dice, and knows the date of tomorrow").wait_for()
        page.locator(".brand").get_by_text("Dice Master").wait_for()
        assert page.title() == "New session · Dice Master"
        assert page.get_by_role("button", name="Agent: ").count() == 0
        shot(page, tmp_path, "agents-project")
        ask(page, "Roll")
        finished(page)
        page.get_by_text("A four. Again?").wait_for()
        assert "Needs your answer" not in page.locator("body").inner_text()
        assert page.title() == "Roll · Dice Master"
        assert page.locator(".under").get_by_title("Agent:").count() == 0
        page.get_by_role("button", name="Model: ").wait_for()
        shot(page, tmp_path, "agents-project-conversation")
