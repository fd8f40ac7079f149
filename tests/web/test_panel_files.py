"""A person looks at the workspace's files beside the conversation."""

from gateway_kit import shared
from images_kit import png
from panel_kit import go, holds, on_phone, region
from web_kit import box

MARK = "<img src=x onerror=alert(1)>"


def fill(workspace) -> None:
    (workspace / "src" / "deep").mkdir(parents=True)
    (workspace / "src" / "deep" / "inner.txt").write_text("deep inside\n")
    (workspace / "src" / "app.py").write_text("def main():\n    return 1\n")
    (workspace / "alpha.txt").write_text("alpha\n")
    (workspace / "logo.png").write_bytes(png(20, 10))
    (workspace / "data.bin").write_bytes(bytes(range(256)) * 10)


def test_the_tree_is_walked_by_keyboard_and_opens_files(screen):
    with shared() as running:
        fill(running.workspace)
        page = screen(running)
        page.get_by_role("button", name="Files").click()
        files = region(page, "Files")
        source = files.get_by_role("treeitem", name="src")
        source.focus()
        page.keyboard.press("ArrowRight")
        files.get_by_role("treeitem", name="app.py").wait_for()
        assert source.get_attribute("aria-expanded") == "true"
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        files.get_by_role("treeitem", name="inner.txt").wait_for()
        assert files.get_by_role("treeitem", name="inner.txt").get_attribute("aria-level") == "3"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        files.get_by_role("treeitem", name="app.py").wait_for(state="detached")
        page.keyboard.press("l")
        holds(page, "document.activeElement.textContent.startsWith('logo.png')")
        page.keyboard.press("Home")
        holds(page, "document.activeElement.textContent.startsWith('src')")
        page.keyboard.press("a")
        page.keyboard.press("Enter")
        files.get_by_text("alpha", exact=True).wait_for()


def test_text_has_its_lines_numbered_and_is_coloured(screen):
    with shared() as running:
        fill(running.workspace)
        page = screen(running)
        go(page, "#/s/-/files/src/app.py")
        files = region(page, "Files")
        assert files.locator(".numbers").inner_text() == "1\n2"
        assert files.locator(".code").inner_text() == "def main():\n    return 1\n"
        files.locator(".code-keyword").first.wait_for()


def test_a_long_file_is_shown_piece_by_piece_to_its_last_line(screen):
    lines = [f"line {number} of a long file" for number in range(12_000)]
    with shared() as running:
        (running.workspace / "long.txt").write_text("\n".join(lines) + "\n")
        page = screen(running)
        go(page, "#/s/-/files/long.txt")
        files = region(page, "Files")
        files.get_by_text(" shown").wait_for()
        files.get_by_role("button", name="Show more").click()
        files.get_by_role("button", name="Show more").wait_for(state="detached")
        assert files.locator(".code").text_content() == "\n".join(lines) + "\n"
        assert files.locator(".numbers").text_content().endswith("\n12000")


def test_a_picture_is_shown_and_what_is_no_text_is_offered_to_be_saved(screen):
    with shared() as running:
        fill(running.workspace)
        page = screen(running)
        go(page, "#/s/-/files/logo.png")
        picture = region(page, "Files").get_by_role("img", name="logo.png")
        picture.wait_for()
        holds(page, "document.querySelector('.picture').naturalWidth === 20")
        go(page, "#/s/-/files/data.bin")
        region(page, "Files").get_by_text("This is not a text file").wait_for()
        with page.expect_download() as saved:
            region(page, "Files").get_by_role("link", name="Download").last.click()
        assert saved.value.path().read_bytes() == (running.workspace / "data.bin").read_bytes()


def test_a_file_is_found_by_a_part_of_its_name_and_put_into_the_message(screen):
    with shared() as running:
        fill(running.workspace)
        page = screen(running)
        box(page).fill("Look at")
        page.get_by_role("button", name="Files").click()
        files = region(page, "Files")
        files.get_by_role("searchbox", name="Find files by name").fill("inner")
        files.get_by_role("button", name="src/deep/inner.txt").click()
        files.get_by_role("button", name="Mention in message").click()
        holds(page, "document.getElementById('message').value === 'Look at @src/deep/inner.txt '")
        holds(page, "document.activeElement.id === 'message'")


def test_on_a_phone_a_mention_brings_back_the_conversation(screen):
    with shared() as running:
        fill(running.workspace)
        page = on_phone(screen, running)
        page.get_by_role("button", name="More", exact=True).click()
        page.get_by_role("button", name="Files").click()
        page.get_by_role("treeitem", name="alpha.txt").click()
        page.get_by_role("button", name="Mention in message").click()
        page.get_by_role("region", name="Files").wait_for(state="detached")
        assert box(page).input_value() == "@alpha.txt "


def test_names_and_contents_are_shown_and_never_act(screen):
    with shared() as running:
        (running.workspace / f"{MARK.replace('/', '')}.html").write_text(f"<script>alert(1)</script>{MARK}")
        page = screen(running)
        page.on("dialog", lambda dialog: page.evaluate("document.title = 'acted'") or dialog.dismiss())
        page.get_by_role("button", name="Files").click()
        region(page, "Files").get_by_role("treeitem").first.click()
        region(page, "Files").get_by_text("<script>alert(1)</script>").wait_for()
        assert page.locator("main img, .panel img").count() == 0
        assert page.title() != "acted"


def test_a_file_that_is_gone_is_a_readable_state_with_a_way_back(screen):
    with shared() as running:
        fill(running.workspace)
        page = screen(running)
        go(page, "#/s/-/files/no/such/file.txt")
        files = region(page, "Files")
        files.get_by_text("Cannot show no/such/file.txt").wait_for()
        files.get_by_role("button", name="All files").click()
        files.get_by_role("treeitem", name="alpha.txt").wait_for()


def test_an_empty_workspace_says_what_to_do(screen):
    with shared() as running:
        page = screen(running)
        page.get_by_role("button", name="Files").click()
        region(page, "Files").get_by_text("No files yet").wait_for()
