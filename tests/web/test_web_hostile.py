"""Names, ids and texts that somebody chose to break the page: it shows them, and goes on."""

from gateway_kit import gateway
from web_kit import ask, finished, session_of, talk

from lmagent.testing.script import Call, Reply, say

INHERITED = ("constructor", "__proto__", "toString")
"""What every object of JavaScript has without being given it."""


def test_a_call_may_be_numbered_by_a_word_that_every_object_knows(tmp_path, screen):
    script = [
        *(Reply(calls=(Call("bash", '{"command": "echo begun; sleep 1; echo ended"}', name),)) for name in INHERITED),
        say("all done"),
    ]
    with gateway(tmp_path, script, options=["--permission", "auto"]) as running:
        page = screen(running)
        ask(page, "run them")
        finished(page)
        assert talk(page).count("sleep 1") == len(INHERITED)
        assert "all done" in talk(page)


def test_a_folder_and_a_file_may_be_called_so(tmp_path, screen):
    with gateway(tmp_path, [say("hello")]) as running:
        for name in INHERITED:
            (running.workspace / name).mkdir()
            (running.workspace / name / f"inside.{name}").write_text(f"content of {name}")
        page = screen(running)
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
        page = screen(running)
        ask(page, "say it")
        finished(page)
        assert "an &constructor; here" in talk(page)
        assert page.locator(".said pre").all_inner_texts() == ["first", "second"]


def test_text_that_was_made_to_keep_the_page_busy_is_shown_as_it_stands(tmp_path, screen):
    tangle, wide = "_a_" * 20_000, "|a" * 5_000 + "\n" + "|-" * 5_000 + "\n" + "|a|\n" * 2_000
    code = f"```c\n{'a' * 40_000}\n```"
    with gateway(tmp_path, [say(f"*before*\n\n{tangle}\n\n{wide}\n\n{code}\n\n*after*", chunk=8_000)]) as running:
        page = screen(running)
        ask(page, "say it")
        finished(page)
        assert page.locator(".said em").all_inner_texts() == ["before", "after"]
        assert page.locator(".said table").count() == 0
        assert tangle in talk(page)
        assert "|-|-|-" in talk(page)
        assert page.locator(".said pre span").count() == 0
