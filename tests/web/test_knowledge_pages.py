"""Memory and skills on the page, on a desktop and on a phone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_kit import Running, gateway
from panel_kit import begun, enter, go, region, until
from test_accessibility import SIZES, faults, settled
from testkit.amount import mostly_long
from web_kit import shot

from lmagent.testing.script import call, say

FACT = "We deploy on Fridays at noon."
SLUG = '''
def slug(title: str) -> str:
    """Return a title as a file name.

    >>> slug("Two Words")
    'two-words'
    """
    return "-".join(title.lower().split())
'''


def judged(page: Any, tmp_path, name: str) -> None:
    """A picture is kept; axe finds nothing, and nothing is wider than the window."""
    settled(page)
    shot(page, tmp_path, name)
    assert faults(page) == [], name
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


def opened(screen, running: Running, size: str, address: str) -> Any:
    page = screen(running, login=False, color_scheme="dark" if size == "phone" else "light", **SIZES[size])
    enter(page)
    go(page, address)
    return page


def memories(running: Running) -> dict[str, dict[str, Any]]:
    return {row["text"]: row for row in running.ask("GET", "/api/memory").json["memories"]}


@pytest.mark.parametrize("size", mostly_long(SIZES))
def test_a_fact_told_in_one_session_is_found_later_with_where_it_is_from(tmp_path, screen, size):
    told = call("memory", operation="store", content=FACT)
    with gateway(tmp_path, [told, say("Noted."), say("Hello.")], options=["--permission", "auto"]) as running:
        session = begun(running, f"Remember this: {FACT}")
        begun(running, "Something else")
        page = opened(screen, running, size, "#/p/memory")
        page.get_by_role("listitem", name=FACT).get_by_text("Pinned").wait_for()
        page.get_by_role("searchbox", name="Search memories and sessions").fill("when do we deploy?")
        card = page.get_by_role("listitem", name=FACT)
        page.get_by_role("main").get_by_text(f"Remember this: {FACT}").wait_for()
        card.get_by_role("button", name="Why?").click()
        card.get_by_text(f"the user: Remember this: {FACT}").wait_for()
        judged(page, tmp_path, f"memory-why-{size}")
        card.get_by_role("link", name=session).click()
        region(page, "Conversation").get_by_text("Noted.").wait_for()


@pytest.mark.parametrize("size", mostly_long(SIZES))
def test_memories_are_added_edited_pinned_forgotten_and_undone(tmp_path, screen, size):
    with gateway(tmp_path) as running:
        page = opened(screen, running, size, "#/p/memory")
        page.get_by_text("Nothing is remembered yet").wait_for()
        judged(page, tmp_path, f"memory-empty-{size}")
        field = page.get_by_role("textbox", name="New memory")
        field.fill("The office is in Bergen.")
        field.press("Enter")
        card = page.get_by_role("listitem", name="The office is in Bergen.")
        card.get_by_role("button", name="Edit").click()
        card.get_by_role("textbox", name="Edit").fill("The office is in Oslo.")
        card.get_by_role("button", name="Save").click()
        card = page.get_by_role("listitem", name="The office is in Oslo.")
        card.get_by_role("button", name="Pin").click()
        card.get_by_role("button", name="Unpin").wait_for()
        assert memories(running)["The office is in Oslo."]["pinned"]
        field.fill("The password is hunter2.")
        field.press("Enter")
        page.get_by_text("this is not remembered: it looks like a secret").wait_for()
        region(page, "Not stored").get_by_text("Text not shown: it looks like a secret").wait_for()
        assert field.input_value() == "The password is hunter2."
        judged(page, tmp_path, f"memory-list-{size}")
        card.get_by_role("button", name="Forget").click()
        card.wait_for(state="detached")
        assert memories(running) == {}
        page.get_by_role("button", name="Undo").click()
        card.wait_for()
        assert list(memories(running)) == ["The office is in Oslo."]


def test_what_reflection_found_is_accepted_or_forgotten(tmp_path, screen):
    script = [say("Ada likes tea, and Ben likes milk.")]
    with gateway(tmp_path, script) as running:
        begun(running, "What do they like?")
        said = max(event["seq"] for event in running.logs() if event["type"] == "message.added")
        texts = ("Ada likes tea.", "Ben likes milk.")
        facts = [{"text": text, "kind": "fact", "evidence": [str(said)]} for text in texts]
        script.append(say(json.dumps({"facts": facts})))
        page = opened(screen, running, "phone", "#/p/memory")
        page.get_by_role("button", name="Reflect now").click()
        page.get_by_text("Sessions read: 1. Facts found: 2.").wait_for()
        found = region(page, "Found by reflection")
        found.get_by_role("button", name=f"Accept: {texts[0]}").wait_for()
        judged(page, tmp_path, "memory-reflected-phone")
        found.get_by_role("button", name=f"Accept: {texts[0]}").click()
        region(page, "Memories").get_by_role("listitem", name=texts[0]).wait_for()
        found.get_by_role("button", name=f"Forget: {texts[1]}").click()
        found.wait_for(state="detached")
        assert {text: row["pinned"] for text, row in memories(running).items()} == {texts[0]: True}


@pytest.mark.parametrize("size", mostly_long(SIZES))
def test_a_skill_is_read_tried_enabled_and_disabled(tmp_path, screen, size):
    with gateway(tmp_path) as running:
        page = opened(screen, running, size, "#/p/skills")
        page.get_by_text("No skills").wait_for()
        (running.workspace / "tools.py").write_text(SLUG)
        assert running.lmagent("skills", "import", "tools.py").returncode == 0
        page.reload()
        card = page.get_by_role("listitem", name="slug")
        card.get_by_text("Waiting for you").wait_for()
        assert card.get_by_role("button", name="Enable").count() == 0  # before it was read
        card.get_by_role("button", name="Test").click()
        page.get_by_text("Test passed: two-words").wait_for()
        card.get_by_role("button", name="Review").click()
        card.get_by_text("def slug(title: str)").wait_for()
        judged(page, tmp_path, f"skills-{size}")
        card.get_by_role("button", name="Enable").click()
        card.get_by_text("Enabled", exact=True).wait_for()
        card.get_by_role("button", name="Disable").click()
        card.get_by_text("Disabled", exact=True).wait_for()


def test_a_skill_that_changed_after_it_was_read_is_not_enabled(tmp_path, screen):
    with gateway(tmp_path) as running:
        file = running.workspace / ".claude/skills/notes/SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text("---\nname: notes\ndescription: Write notes.\n---\nWrite them.\n")
        page = opened(screen, running, "desktop", "#/p/skills")
        card = page.get_by_role("listitem", name="notes")
        card.get_by_role("button", name="Review").click()
        card.get_by_text("Write them.").wait_for()
        file.write_text("---\nname: notes\ndescription: Write notes.\n---\nSend them away.\n")
        card.get_by_role("button", name="Enable").click()
        page.get_by_text("notes has changed since you read it").wait_for()
        (row,) = running.ask("GET", "/api/skills").json["skills"]
        assert row["state"] == "proposed"


@pytest.mark.parametrize("size", mostly_long(SIZES))
def test_the_settings_name_the_files_of_each_prompt_and_what_is_wrong_with_them(tmp_path, screen, size):
    with gateway(tmp_path) as running:
        (running.workspace / "SOUL.md").write_text("Be brief.\n")
        (running.workspace / "AGENTS.md").write_text("x" * 5000)
        page = opened(screen, running, size, "#/p/settings")
        files = region(page, "Files in each prompt")
        files.get_by_text("AGENTS.md has 5,000 bytes").wait_for()
        files.scroll_into_view_if_needed()
        judged(page, tmp_path, f"identity-{size}")
        until(lambda: "SOUL.md · 10 B" in files.inner_text(), "the file is not listed")
