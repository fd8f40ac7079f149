"""Files, editor and previews, the menu of a session, formulas and diagrams: no serious fault, and nothing too wide."""

from __future__ import annotations

import pytest
from gateway_kit import gateway
from panel_kit import begun, command, enter, go, told
from test_accessibility import SIZES, faults, settled
from test_panel_sending import drop
from web_kit import shot

from lmagent.testing.script import call, say

pytestmark = pytest.mark.long

ANSWER = "The sum is $\\sum_{i=1}^n i = \\frac{n(n+1)}{2}$.\n\n```mermaid\ngraph LR\n  A[Begin] --> B[Ship]\n```\n"
AUTO = ["--permission", "auto"]


def furnish(running) -> str:
    """Files of several kinds, and a pinned session with a fork; its id."""
    root = running.workspace
    (root / "src").mkdir()
    (root / "src" / "app.py").write_text("def main():\n    return 1\n")
    (root / "notes.md").write_text("# Notes\n\n- one\n- two\n")
    (root / "table.csv").write_text("name,amount\nfirst,1\nsecond,2\n")
    session = begun(running, "Add it up")
    told(running, session, "And again")
    command(running, session, type="mark", pinned=True)
    command(running, session, type="fork")
    return session


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_no_state_of_files_and_sessions_has_a_serious_fault(tmp_path, screen, size, scheme):
    found: dict[str, list[str]] = {}
    script = [call("write", path="new.py", content="x = 1\n" * 3), say(ANSWER), say("fork")]
    with gateway(tmp_path, script, options=AUTO) as running:
        root, session = running.workspace, furnish(running)
        page = screen(running, login=False, color_scheme=scheme, **SIZES[size])
        enter(page)

        def judge(name: str) -> None:
            settled(page)
            found[name] = faults(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            shot(page, tmp_path, f"{name}-{size}-{scheme}")

        go(page, f"#/s/{session}")
        page.frame_locator("iframe[title=Diagram]").get_by_text("Ship").wait_for()
        page.locator("math").first.wait_for()
        judge("conversation")
        go(page, f"#/s/{session}/files")
        page.get_by_role("treeitem", name="src").click()
        page.get_by_role("treeitem", name="app.py").wait_for()
        drop(page, '[data-path="notes.md"]', ("notes.md", "other", "text/markdown"))
        page.get_by_text("notes.md already exists").wait_for()
        judge("files")
        page.get_by_role("button", name="Skip").click()
        go(page, f"#/s/{session}/files/notes.md")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("heading", name="Notes", exact=True).wait_for()
        judge("markdown")
        page.get_by_role("button", name="Edit", exact=True).click()
        field = page.get_by_role("textbox", name="Text of notes.md")
        field.fill("# Notes\n\nchanged\n")
        (root / "notes.md").write_text("meanwhile\n")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("was changed on the disk").wait_for()
        judge("editor")
        go(page, f"#/s/{session}/files/table.csv")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("cell", name="second").wait_for()
        judge("table")
        go(page, f"#/s/{session}/changes")
        page.get_by_text("x = 1").first.wait_for()
        judge("changes")
        go(page, f"#/s/{session}")
        if size == "phone":
            page.get_by_role("button", name="Sessions and pages").click()
        page.get_by_role("button", name="More about Add it up").first.click()
        page.get_by_role("button", name="Export", exact=True).wait_for()
        judge("menu")
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
