"""Every screen: readable for everybody (axe), in light and dark, on a desk and on a phone of 390 pixels."""

from pathlib import Path

import pytest
from gateway_kit import gateway
from web_kit import PHONE, ask, box, finished, shot

from lmagent.testing.script import call, say, think

AXE = Path(__file__).parents[2] / "tools/web/node_modules/axe-core/axe.min.js"
RICH = (
    "## Found\n\nIt is `here`, see [this](http://example.org):\n\n| a | b |\n|---|--:|\n| x | 1 |\n\n"
    "```python\ndef f():\n    return 'x'\n```"
)

WINDOWS = [
    pytest.param({**options, "color_scheme": scheme}, id=f"{name}-{scheme}")
    for name, options in (("desk", {}), ("phone", PHONE))
    for scheme in ("light", "dark")
]


def readable(page, name, tmp_path):
    """No serious finding of axe, nothing wider than the window; a picture is kept."""
    shot(page, tmp_path, name)
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{name}: {wide} px too wide"
    if not AXE.exists():
        pytest.skip("axe-core is not installed: scripts/check_web.sh installs it with npm")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    bad = [
        f"{rule['id']}: {rule['nodes'][0]['html'][:200]} {rule['nodes'][0].get('failureSummary', '')[:300]}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]
    assert bad == [], name


@pytest.mark.parametrize("window", WINDOWS)
def test_every_screen_of_a_conversation_is_readable(tmp_path, screen, request, window):
    place = request.node.callspec.id
    script = [think("a thought", call("write", path="a.txt", content="new\n")), say(RICH)]
    with gateway(tmp_path, script) as running:
        page = screen(running, login=False, **window)
        page.get_by_label("PIN").wait_for()
        readable(page, f"{place}-login", tmp_path)
        page.get_by_label("PIN").fill("314159")
        page.get_by_role("button", name="Log in").click()
        box(page).wait_for()
        page.get_by_text("For example").wait_for()
        readable(page, f"{place}-first", tmp_path)
        ask(page, "write a file, and then tell me about it in some words")
        page.get_by_role("button", name="Approve").wait_for()
        readable(page, f"{place}-approval", tmp_path)
        page.get_by_role("button", name="Approve").click()
        finished(page)
        page.locator(".code-keyword").first.wait_for()
        page.get_by_role("button", name="Thought").click()
        page.get_by_role("button", name="write a.txt").click()
        page.get_by_role("region", name="Result").wait_for()
        readable(page, f"{place}-done", tmp_path)
        page.get_by_role("button", name="Permissions: normal").click()
        readable(page, f"{place}-menu", tmp_path)


def test_a_thumb_hits_every_button_of_a_phone(tmp_path, screen):
    with gateway(tmp_path, [call("write", path="a.txt", content="new\n"), say("ok")]) as running:
        page = screen(running, **PHONE)
        ask(page, "write it")
        page.get_by_role("button", name="Approve").wait_for()
        sizes = page.locator("main button:visible").evaluate_all(
            "(all) => all.map((one) => [one.innerText || one.ariaLabel, one.getBoundingClientRect().height])"
        )
        small = [(name, height) for name, height in sizes if height < 44]
        assert [name for name, _ in small if name != "write it"] == [], small


def test_the_whole_of_a_first_task_works_by_keyboard(tmp_path, screen):
    with gateway(tmp_path, [call("write", path="a.txt", content="new\n"), say("Written.")]) as running:
        page = screen(running)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # the link that skips to the message
        page.keyboard.type("write it")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Approve").wait_for()
        for _ in range(40):
            page.keyboard.press("Shift+Tab")
            if page.evaluate("document.activeElement.innerText") == "Approve":
                break
        page.keyboard.press("Enter")
        finished(page)
        assert (running.workspace / "a.txt").exists()


def test_light_and_dark_can_be_chosen_and_are_kept(tmp_path, screen):
    with gateway(tmp_path, []) as running:
        page = screen(running, color_scheme="light")
        ground = "getComputedStyle(document.body.parentElement).backgroundColor"
        light = page.evaluate(ground)
        page.get_by_role("button", name="Colours: as the system").click()
        page.get_by_role("button", name="Colours: light").click()
        assert page.evaluate(ground) != light
        page.reload()
        page.get_by_role("button", name="Colours: dark").wait_for()
        assert page.evaluate(ground) != light


def test_what_changes_is_told_to_a_screen_reader_and_not_every_word(tmp_path, screen):
    with gateway(tmp_path, [call("write", path="a.txt", content="new\n"), say("Many words. " * 50)]) as running:
        page = screen(running)
        page.evaluate(
            """() => {
              window.told = [];
              const region = document.querySelector("[aria-live=polite]");
              const all = { childList: true, characterData: true, subtree: true };
              new MutationObserver(() => window.told.push(region.textContent)).observe(region, all);
            }"""
        )
        ask(page, "write it")
        page.get_by_role("button", name="Approve").click()
        finished(page)
        told = page.evaluate("window.told")
        assert any(text.startswith("Waiting for your approval") for text in told)
        assert told[-1] == "Finished"
        assert len(told) <= 8, told
