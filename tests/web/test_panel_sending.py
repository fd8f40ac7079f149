"""The user puts files into the workspace, edits them, and takes them out again."""

from __future__ import annotations

import io
import zipfile

from gateway_kit import shared
from panel_kit import begun, go, holds, on_phone, region, until
from web_kit import ask, box, finished

from lmagent.testing.script import say

DROP = """([place, names]) => {
    const carried = new DataTransfer();
    for (const [name, text, type] of names) carried.items.add(new File([text], name, { type }));
    const target = document.querySelector(place);
    for (const type of ["dragover", "drop"]) {
        target.dispatchEvent(new DragEvent(type, { dataTransfer: carried, bubbles: true, cancelable: true }));
    }
}"""


def drop(page, place: str, *files: tuple[str, str, str]) -> None:
    page.evaluate(DROP, [place, list(files)])


def test_files_are_uploaded_by_button_and_by_drop_and_a_taken_name_is_asked_about(screen):
    with shared() as running:
        (running.workspace / "src").mkdir()
        (running.workspace / "a.txt").write_text("old\n")
        page = screen(running)
        page.get_by_role("button", name="Files").click()
        files = region(page, "Files")
        files.get_by_role("treeitem", name="src").wait_for()
        chosen = [{"name": name, "mimeType": "text/plain", "buffer": name.encode()} for name in ("b.txt", "a.txt")]
        page.locator("input[type=file][aria-label^=Upload]").set_input_files(chosen)
        files.get_by_text("a.txt already exists").wait_for()
        files.get_by_role("treeitem", name="b.txt").wait_for()
        assert (running.workspace / "a.txt").read_text() == "old\n"
        files.get_by_role("button", name="Replace").click()
        page.get_by_text("Uploaded 2 files to the workspace").wait_for()
        assert (running.workspace / "a.txt").read_text() == "a.txt"
        drop(page, '[data-path="src"]', ("inner.md", "# Inner\n", ""))
        page.get_by_text("Uploaded 1 file to src").wait_for()
        assert (running.workspace / "src" / "inner.md").read_text() == "# Inner\n"
        assert len(list((running.workspace / ".lmagent" / "sessions").iterdir())) == 1


def test_a_file_that_is_too_large_is_said_to_be_before_a_byte_is_sent(screen):
    with shared() as running:
        page = screen(running)
        page.get_by_role("button", name="Files").click()
        region(page, "Files").get_by_text("No files yet").wait_for()
        sent: list[str] = []
        page.on("request", lambda asked: asked.method == "POST" and sent.append(asked.url))
        page.evaluate(
            """() => {
                const carried = new DataTransfer();
                const file = new File(["x"], "huge.bin");
                Object.defineProperty(file, "size", { value: 2 ** 31 });
                const event = new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true });
                const item = { kind: "file", webkitGetAsEntry: () => null };
                const given = { types: ["Files"], files: [file], items: [item] };
                Object.defineProperty(event, "dataTransfer", { value: given });
                document.querySelector(".files").dispatchEvent(event);
            }"""
        )
        page.get_by_text("huge.bin is too large: it has 2,148 MB, and an upload can have 68 MB").wait_for()
        assert not sent


def test_a_text_is_edited_and_the_session_knows_the_change(screen):
    with shared([say("ok")]) as running:
        (running.workspace / "notes.md").write_text("one\n")
        session = begun(running, "Hello")
        page = screen(running)
        go(page, f"#/s/{session}/files/notes.md")
        files = region(page, "Files")
        files.get_by_role("button", name="Edit").click()
        field = files.get_by_role("textbox", name="Text of notes.md")
        field.fill("one\ntwo\n")
        page.keyboard.press("Control+s")
        files.locator(".code").get_by_text("two").wait_for()
        assert (running.workspace / "notes.md").read_text() == "one\ntwo\n"
        go(page, f"#/s/{session}/changes")
        region(page, "Changes").get_by_text("notes.md").first.wait_for()
        region(page, "Changes").get_by_role("button", name="Undo").click()
        region(page, "Changes").get_by_role("button", name="Undo", exact=True).last.click()
        until(lambda: (running.workspace / "notes.md").read_text() == "one\n", "the edit is not undone")


def test_what_was_typed_outlives_the_page_and_a_file_that_changed_meanwhile_is_not_overwritten_unasked(
    tmp_path, screen
):
    with shared([say("ok")]) as running:
        path = running.workspace / "notes.md"
        path.write_text("one\n")
        session = begun(running, "Hello")
        page = screen(running)
        go(page, f"#/s/{session}/files/notes.md")
        files = region(page, "Files")
        files.get_by_role("button", name="Edit").click()
        files.get_by_role("textbox", name="Text of notes.md").fill("typed\n")
        page.reload()
        files.get_by_text("Your unsaved changes were restored.").wait_for()
        assert files.get_by_role("textbox", name="Text of notes.md").input_value() == "typed\n"
        path.write_text("by another program\n")
        files.get_by_role("button", name="Save").click()
        files.get_by_text("notes.md was changed on the disk").wait_for()
        assert path.read_text() == "by another program\n"
        assert files.get_by_role("textbox", name="Text of notes.md").input_value() == "typed\n"
        files.get_by_role("button", name="Overwrite").click()
        until(lambda: path.read_text() == "typed\n", "it is not overwritten")
        files.get_by_role("button", name="Edit").wait_for()
        page.reload()
        files.get_by_role("button", name="Edit").wait_for()


def test_a_folder_and_a_file_are_downloaded(screen):
    with shared() as running:
        (running.workspace / "src").mkdir()
        (running.workspace / "src" / "a.py").write_text("a = 1\n")
        page = screen(running)
        page.get_by_role("button", name="Files").click()
        files = region(page, "Files")
        files.get_by_role("treeitem", name="src").click()
        with page.expect_download() as saved:
            files.get_by_role("button", name="Download src as ZIP").click()
        assert saved.value.suggested_filename == "src.zip"
        assert zipfile.ZipFile(io.BytesIO(saved.value.path().read_bytes())).namelist() == ["a.py"]
        files.get_by_role("treeitem", name="a.py").click()
        with page.expect_download() as saved:
            files.get_by_role("link", name="Download").click()
        assert saved.value.suggested_filename == "a.py"


def test_a_document_that_is_dropped_on_the_message_goes_into_the_workspace_and_is_named_in_the_message(
    tmp_path, screen
):
    with shared([say("Read.")]) as running:
        page = screen(running)
        box(page).fill("Read")
        drop(page, ".composer", ("my paper.pdf", "%PDF-1.4", "application/pdf"), ("notes.txt", "n\n", "text/plain"))
        holds(page, "document.getElementById('message').value.includes('@uploads/notes.txt ')")
        assert box(page).input_value() == 'Read @"uploads/my paper.pdf" @uploads/notes.txt '
        assert (running.workspace / "uploads" / "my paper.pdf").read_bytes() == b"%PDF-1.4"
        page.get_by_role("button", name="Send").click()
        finished(page)
        assert len(list((running.workspace / ".lmagent" / "sessions").iterdir())) == 1
        drop(page, ".composer", ("notes.txt", "other\n", "text/plain"))
        holds(page, "document.getElementById('message').value === '@uploads/notes-2.txt '")


def test_a_table_and_a_page_are_shown_as_what_they_are_and_no_script_of_them_runs(screen, no_leftovers):
    with shared() as running:
        (running.workspace / "t.csv").write_text('name;note\n"a ""b""";"x;\ny"\n')
        (running.workspace / "p.html").write_text("<h1>Hi</h1><script>document.body.textContent = 'acted'</script>")
        page = screen(running)
        go(page, "#/s/-/files/t.csv")
        files = region(page, "Files")
        files.get_by_role("button", name="Preview").click()
        files.get_by_role("columnheader", name="note").wait_for()
        assert files.get_by_role("cell").all_inner_texts() == ['a "b"', "x; y"]
        go(page, "#/s/-/files/p.html")
        files.get_by_role("button", name="Preview").click()
        frame = page.frame_locator("iframe.page-of")
        frame.get_by_role("heading", name="Hi").wait_for()
        assert "acted" not in frame.locator("body").inner_text()
        blocked = [said for said in no_leftovers if "Blocked script execution" in said]
        assert len(blocked) == len(no_leftovers) == 1
        no_leftovers.clear()


def test_on_a_phone_a_file_can_be_edited(screen):
    with shared([say("ok")]) as running:
        (running.workspace / "alpha.txt").write_text("alpha\n")
        page = on_phone(screen, running)
        ask(page, "hello")
        finished(page)
        page.get_by_role("button", name="More", exact=True).click()
        page.get_by_role("button", name="Files").click()
        page.get_by_role("treeitem", name="alpha.txt").click()
        page.get_by_role("button", name="Edit", exact=True).click()
        page.get_by_role("textbox", name="Text of alpha.txt").fill("beta\n")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Saved alpha.txt").wait_for()
        assert (running.workspace / "alpha.txt").read_text() == "beta\n"
