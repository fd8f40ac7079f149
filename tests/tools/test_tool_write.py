from __future__ import annotations

import hashlib
import os
from pathlib import Path


def test_a_new_file_is_created_with_its_parents(hands, workspace: Path) -> None:
    output = hands("write", path="docs/new/a.md", content="# Title\n\ntext")
    assert (workspace / "docs/new/a.md").read_text() == "# Title\n\ntext"
    assert output.content == "Created docs/new/a.md (13 bytes, 3 lines)."
    assert output.data["path"] == "docs/new/a.md"
    assert output.data["changed"] is True
    assert output.data["sha256"] == hashlib.sha256(b"# Title\n\ntext").hexdigest()
    assert output.data["diff"].startswith("--- /dev/null\n+++ docs/new/a.md\n@@ -0,0 +1,3 @@\n+# Title\n+\n+text")


def test_an_existing_file_must_have_been_shown(hands, workspace: Path) -> None:
    (workspace / "a").write_text("precious\n")
    refusal = hands.refused("write", path="a", content="new\n")
    assert "Read it first" in refusal.message
    assert refusal.data["code"] == "unread"
    assert (workspace / "a").read_text() == "precious\n"
    hands("read", path="a")
    output = hands("write", path="./a", content="new\nlines\n")
    assert output.content == "Replaced a (10 bytes, 2 lines, +2 −1)."
    assert hands("write", path="a", content="again\n").data["changed"]  # what was written counts as seen


def test_a_file_that_changed_since_is_not_overwritten(hands, workspace: Path) -> None:
    (workspace / "a").write_text("one\n")
    hands("read", path="a")
    (workspace / "a").write_text("one, and a person's work\n")
    refusal = hands.refused("write", path="a", content="two\n")
    assert refusal.data["code"] == "stale"
    assert "Read it again" in refusal.message
    assert (workspace / "a").read_text() == "one, and a person's work\n"


def test_the_same_content_is_no_change_and_no_write(hands, workspace: Path) -> None:
    (workspace / "a").write_text("same\n")
    before = os.stat(workspace / "a")
    output = hands("write", path="a", content="same\n")
    assert "no change" in output.content
    assert "changed" not in output.data
    assert os.stat(workspace / "a").st_ino == before.st_ino


def test_directories_git_and_the_outside_are_refused(hands, workspace: Path, outside: Path) -> None:
    (workspace / "dir").mkdir()
    assert "directory" in hands.refused("write", path="dir", content="x").message
    assert ".git" in hands.refused("write", path=".git/config", content="x").message
    hands.refused("write", path="../outside/secret.txt", content="x")
    hands.refused("write", path=str(outside / "secret.txt"), content="x")
    assert (outside / "secret.txt").read_text() == "secret\n"


def test_line_ends_that_change_are_told(hands, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"a\r\nb\r\n")
    hands("read", path="a")
    assert "CRLF and are LF now" in hands("write", path="a", content="a\nc\n").content


def test_the_preview_shows_the_change_and_changes_nothing(hands, workspace: Path) -> None:
    (workspace / "a").write_text("one\ntwo\n")
    hands.mark("a")
    preview = hands.preview("write", path="a", content="one\nTWO\x1b[2J\n")
    assert "-two\n+TWO" in preview
    assert "\x1b" not in preview
    assert "no change" in hands.refused_unasked("write", path="a", content="one\ntwo\n").message
    assert hands.refused_unasked("write", path="../x", content="").data["code"] == "path"
    assert "+new" in hands.preview("write", path="b", content="new\n")
    assert os.listdir(workspace) == ["a"]


def test_a_binary_file_is_not_replaced_by_text(hands, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"\0\1\2")
    hands.mark("a")
    assert "binary" in hands.refused("write", path="a", content="x").message
    assert "binary" in hands.refused_unasked("write", path="a", content="x").message
    assert "binary" in hands.refused("write", path="a", content="x", mode="append").message
    assert (workspace / "a").read_bytes() == b"\0\1\2"


def test_summary_and_targets(hands) -> None:
    assert hands.summary("write", path="a", content="1\n2\n") == "write a (2 lines)"
    assert hands.summary("write", path="a", content="1\n2\n", mode="append") == "append to a (2 lines)"
    assert hands.summary("write", path="a", confirm=True) == "write a (the text that was kept)"
    assert hands.targets("write", path="./b/a", content="") == ("b/a",)


def test_a_refused_text_is_kept_and_written_when_it_is_confirmed(hands, workspace: Path) -> None:
    (workspace / "a").write_text("precious\n")
    assert "confirm=true" in hands.refused("write", path="a", content="new\n").message
    assert hands.preview("write", path="a", confirm=True).endswith("-precious\n+new")
    assert hands("write", path="a", confirm=True).content == "Replaced a (4 bytes, 1 line, +1 −1)."
    assert (workspace / "a").read_text() == "new\n"


def test_the_last_refused_text_is_the_one_that_is_kept(hands, workspace: Path) -> None:
    (workspace / "a").write_text("precious\n")
    hands.refused("write", path="a", content="new\n")
    hands.refused("write", path="a", content="newer\n")
    hands("write", path="a", confirm=True)
    assert (workspace / "a").read_text() == "newer\n"


def test_what_is_confirmed_may_be_sent_again_all_the_same(hands, workspace: Path) -> None:
    (workspace / "a").write_text("precious\n")
    hands.refused("write", path="a", content="new\n", confirm=True)  # nothing was asked yet: it cannot be confirmed
    hands("write", path="a", content="newer\n", confirm=True)
    assert (workspace / "a").read_text() == "newer\n"


def test_a_confirmation_holds_for_the_file_as_it_was(hands, workspace: Path) -> None:
    (workspace / "a").write_text("precious\n")
    hands.refused("write", path="a", content="new\n")
    (workspace / "a").write_text("a person's work\n")
    hands.refused("write", path="a", confirm=True)
    assert (workspace / "a").read_text() == "a person's work\n"
    hands("write", path="a", confirm=True)  # that was told, and is confirmed once more
    assert (workspace / "a").read_text() == "new\n"


def test_nothing_kept_and_no_content_are_errors_that_say_so(hands, workspace: Path) -> None:
    (workspace / "a").write_text("precious\n")
    assert "no text is kept" in hands.refused("write", path="a", confirm=True).message
    assert "content is missing" in hands.refused("write", path="a").message
    assert "content is missing" in hands.refused("write", path="new").message
    assert os.listdir(workspace) == ["a"]


def test_an_empty_file_is_replaced_unseen(hands, workspace: Path) -> None:
    (workspace / "a").touch()
    hands("write", path="a", content="new\n")
    assert (workspace / "a").read_text() == "new\n"


def test_appending_needs_no_look_and_keeps_what_is_there(hands, workspace: Path) -> None:
    (workspace / "a").write_text("one\n")
    assert (
        hands("write", path="a", content="two\nthree\n", mode="append").content == "Appended to a (10 bytes, 2 lines)."
    )
    hands("write", path="a", content="four", mode="a")
    assert "continues its last line" in hands("write", path="a", content="five\n", mode="append").content
    assert (workspace / "a").read_text() == "one\ntwo\nthree\nfourfive\n"
    assert hands("write", path="b", content="new\n", mode="append").content == "Created b (4 bytes, 1 line)."


def test_what_is_appended_takes_line_ends_and_encoding_of_the_file(hands, workspace: Path) -> None:
    (workspace / "a").write_bytes("\ufeffgrüße\r\n".encode("utf-16-le"))
    hands("write", path="a", content="zwölf\nmehr\n", mode="append")
    assert (workspace / "a").read_bytes().decode("utf-16") == "grüße\r\nzwölf\r\nmehr\r\n"


def test_an_unknown_mode_is_refused_by_its_name_and_writes_nothing(hands, workspace: Path) -> None:
    refusal = hands.refused("write", path="a", content="x", mode="prepend")
    assert refusal.message == "write has no mode 'prepend': it is overwrite or append. Nothing was written."
    assert not (workspace / "a").exists()
