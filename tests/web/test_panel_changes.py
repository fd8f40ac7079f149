"""The user reads what a session changed: numbered lines, side by side where there is room, and what is no text."""

from __future__ import annotations

from gateway_kit import shared
from panel_kit import begun, go, region
from web_kit import PHONE, shot

from lmagent.testing.script import call, say

AUTO = ["--permission", "auto"]
OLD = "".join(f"line {number}\n" for number in range(1, 41)) + "the price is 5\n"


def test_changes_are_numbered_lines_without_headings_and_side_by_side_where_there_is_room(tmp_path, screen):
    script = [
        call("read", path="a.txt"),
        call("edit", path="a.txt", search="the price is 5", replace="the price is 7"),
        call("write", path="new.txt", content="first\n"),
        call("shell", command="printf 'a\\0b' > data.bin; printf 'no end' > open.txt"),
        say("Done."),
    ]
    with shared(script, options=AUTO) as running:
        (running.workspace / "a.txt").write_text(OLD)
        session = begun(running, "change it")
        page = screen(running, viewport={"width": 1280, "height": 800})
        go(page, f"#/s/{session}/changes")
        changed = region(page, "a.txt")
        changed.get_by_text("+the price is 7").wait_for()
        text = region(page, "Changes").inner_text()
        assert "@@" not in text
        assert "--- " not in text
        assert "/dev/null" not in text
        assert changed.locator("del.line").get_attribute("data-at") == "41   "
        assert changed.locator("ins.line").get_attribute("data-at") == "   41"
        assert changed.locator("ins.line b").inner_text() == "7"
        assert "new" in region(page, "new.txt").get_by_role("button").first.inner_text()
        assert "No newline at end of file" in region(page, "open.txt").inner_text()
        assert "binary file, 3 bytes" in region(page, "Changes").locator(".notice").inner_text()
        shot(page, tmp_path, "changes-one-column")
        page.get_by_role("button", name="Side by side").click()
        pair = changed.locator(".pair").last
        left, right = pair.locator("del").bounding_box(), pair.locator("ins").bounding_box()
        assert left["x"] + left["width"] <= right["x"]
        assert abs(left["y"] - right["y"]) < 1
        shot(page, tmp_path, "changes-side-by-side")
        page.reload()
        changed.locator(".pair").first.wait_for()
        page.set_viewport_size(PHONE["viewport"])
        changed.locator(".pair").first.wait_for(state="detached")
        shot(page, tmp_path, "changes-phone")
