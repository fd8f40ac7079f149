"""Names, ids and texts that somebody chose to break the page: it shows them, and goes on."""

import json

import pytest
from gateway_kit import gateway
from web_kit import ask, finished, long_of, session_of, talk

from lmagent.testing.script import Reply, ScriptedCall, call, say

pytestmark = pytest.mark.long

INHERITED = ("constructor", "__proto__", "toString")
"""What every object of JavaScript has without being given it."""


def test_a_call_may_be_numbered_by_a_word_that_every_object_knows(tmp_path, screen):
    script = [
        *(
            Reply(calls=(ScriptedCall("bash", '{"command": "echo begun; sleep 1; echo ended"}', name),))
            for name in INHERITED
        ),
        say("all done"),
    ]
    with gateway(tmp_path, script, options=["--permission", "auto"]) as running:
        page = screen(running, alone=True)
        ask(page, "run them")
        finished(page)
        assert talk(page).count("sleep 1") == len(INHERITED)
        assert "all done" in talk(page)


def test_a_call_may_be_numbered_by_what_looks_like_a_path(tmp_path, screen):
    script = [Reply(calls=(ScriptedCall("bash", '{"command": "echo begun"}', "a/../b?c#d%2f é"),)), say("all done")]
    with gateway(tmp_path, script, options=["--permission", "auto"]) as running:
        page = screen(running, alone=True)
        ask(page, "run it")
        finished(page)
        page.locator(".tool-line").click()
        assert "echo begun" in page.get_by_role("group", name="Code, json").inner_text()


def test_a_folder_and_a_file_may_be_called_so(tmp_path, screen):
    with gateway(tmp_path, [say("hello")]) as running:
        for name in INHERITED:
            (running.workspace / name).mkdir()
            (running.workspace / name / f"inside.{name}").write_text(f"content of {name}")
        page = screen(running, alone=True)
        ask(page, "hi")
        finished(page)
        page.goto(f"{running.url}/#/s/{session_of(page)}/files")
        for name in INHERITED:
            page.get_by_role("treeitem", name=name, exact=True).click()
        for name in INHERITED:
            page.get_by_role("treeitem", name=f"inside.{name}").click()
            page.get_by_text(f"content of {name}").wait_for()
            page.get_by_role("button", name="All files").click()


def test_an_entity_and_a_language_may_be_called_so(tmp_path, screen):
    text = "an &constructor; here\n\n```constructor\nfirst\n```\n\n```__proto__\nsecond\n```"
    with gateway(tmp_path, [say(text)]) as running:
        page = screen(running, alone=True)
        ask(page, "say it")
        finished(page)
        assert "an &constructor; here" in talk(page)
        assert page.locator(".said pre").all_inner_texts() == ["first", "second"]


def test_text_that_was_made_to_keep_the_page_busy_is_shown_as_it_stands(tmp_path, screen):
    tangle, wide = long_of("_a_", 20_000), "|a" * 5_000 + "\n" + "|-" * 5_000 + "\n" + "|a|\n" * 2_000
    code = f"```c\n{long_of('a', 40_000)}\n```"
    reply = say(f"*before*\n\n{tangle}\n\n{wide}\n\n{code}\n\n*after*", chunk=8_000)
    with gateway(tmp_path, [reply], LMAGENT_CONTEXT_WINDOW="200000") as running:
        page = screen(running, alone=True)
        ask(page, "say it")
        finished(page)
        assert page.locator(".said em").all_inner_texts() == ["before", "after"]
        assert page.locator(".said table").count() == 0
        assert tangle in talk(page)
        assert "|-|-|-" in talk(page)
        assert page.locator(".said pre span").count() == 0


def test_what_is_decided_about_hides_nothing_and_reads_as_it_is(tmp_path, screen):
    trick = "if admin:\u202e } # \u2066\x1b[8m"
    seen = "if admin:\\u202e } # \\u2066\\x1b[8m"
    steps = [{"id": "1", "description": f"step {trick}", "verification": f"until {trick}", "risk": f"risk {trick}"}]
    plan = {"title": f"title {trick}", "goal": f"goal {trick}", "risk_areas": [f"area {trick}"], "steps": steps}
    with gateway(tmp_path, [say(json.dumps(plan)), call("write", path="a.py", content=f"{trick}\n")]) as running:
        page = screen(running, alone=True)
        ask(page, "/plan it")
        card = page.get_by_role("region", name="Plan")
        card.wait_for()
        shown = card.inner_text()
        assert [
            word for word in ("title", "goal", "area", "step", "until", "risk") if f"{word} {seen}" not in shown
        ] == []
        card.get_by_role("button", name="Approve").click()
        page.get_by_role("button", name="Deny").wait_for()
        assert seen in page.get_by_role("region", name="What would happen").inner_text()


def test_a_files_name_and_a_links_target_read_as_what_they_are(tmp_path, screen):
    said = "[here](http://b\u00fccher.example/\u202egnp.exe) [there](http://example.org)"
    with gateway(tmp_path, [say(said)]) as running:
        (running.workspace / "photo\u202egnp.exe").write_text("no photo")
        page = screen(running, alone=True)
        ask(page, "hi")
        finished(page)
        titles = page.locator(".said a").evaluate_all("(links) => links.map((link) => link.title)")
        assert titles == ["http://xn--bcher-kva.example/%E2%80%AEgnp.exe", "http://example.org/"]
        page.goto(f"{running.url}/#/s/{session_of(page)}/files")
        page.get_by_role("treeitem", name="photo\\u202egnp.exe").click()
        assert page.locator(".viewer .path").inner_text().startswith("photo\\u202egnp.exe")
        page.get_by_text("no photo").wait_for()
        page.get_by_role("button", name="All files").click()
        page.get_by_label("Find files by name").fill("photo")
        page.get_by_role("button", name="photo\\u202egnp.exe").wait_for()


@pytest.mark.parametrize("depth", [30, 1_000, 9_000])
def test_code_may_be_nested_as_deep_as_it_is_long(tmp_path, screen, depth):
    code = long_of("`${ ", depth)
    with gateway(tmp_path, [say(f"```javascript\n{code}\n```", chunk=8_000), say("and on")]) as running:
        page = screen(running, alone=True)
        ask(page, "show it")
        finished(page)
        page.locator(".said pre").scroll_into_view_if_needed()
        if depth < 9_000:  # there the highlighter itself gives up
            page.locator(".said pre span").first.wait_for()
        assert page.locator(".said pre").inner_text() == code
        ask(page, "go on")
        page.get_by_text("and on").wait_for()
