from __future__ import annotations

import os
from pathlib import Path


def test_ls_shows_directories_first_then_files_with_sizes(hands, workspace: Path) -> None:
    (workspace / "zdir").mkdir()
    (workspace / ".git").mkdir()
    (workspace / ".lmagent").mkdir()
    (workspace / ".env").write_text("x")
    (workspace / "a.txt").write_text("x" * 1234)
    (workspace / "link").symlink_to("a.txt")
    os.mkfifo(workspace / "pipe")
    assert hands("ls").content.split("\n") == [
        ".git/", "zdir/", ".env  1", "a.txt  1,234", "link  (symbolic link)", "pipe  (special file)",
    ]  # fmt: skip
    assert hands("ls", path="zdir").content == "zdir is empty."


def test_ls_shows_a_page_and_counts_the_rest(hands, workspace: Path) -> None:
    for number in range(230):
        (workspace / f"f{number:03d}").touch()
    assert hands("ls", path="").data == {"count": 230, "truncated": False}
    hands.room = 1000
    output = hands("ls", path="")
    shown = output.content.count("  0\n")
    assert 80 < shown < 125
    assert output.content.endswith(f"\n… and {230 - shown} more; glob with a pattern finds them")
    assert output.data == {"count": 230, "truncated": True}


def test_a_file_name_cannot_speak_to_the_terminal_nor_break_the_list(hands, workspace: Path) -> None:
    (workspace / "a\n\x1b[2Jb").touch()
    (workspace / os.fsdecode(b"bad\xff")).touch()
    content = hands("ls").content
    assert content.split("\n") == ["a \\x1b[2Jb  0", "bad\\udcff  0"]
    content.encode("utf-8")
    hands("glob", pattern="*").content.encode("utf-8")


def test_ls_of_what_is_no_directory(hands, workspace: Path, outside: Path) -> None:
    (workspace / "f").write_text("abc")
    assert hands("ls", path="f").content == "f is a file of 3 bytes, not a directory. Use read."
    assert "There is no g" in hands.refused("ls", path="g").message
    (workspace / "out").symlink_to(outside)
    assert "leads out" in hands.refused("ls", path="out").message


def test_mkdir_makes_parents_and_says_when_there_is_nothing_to_do(hands, workspace: Path) -> None:
    assert hands("mkdir", path="a/b/c").content == "Made the directory a/b/c."
    assert (workspace / "a/b/c").is_dir()
    assert hands("mkdir", path="a/b").content == "The directory a/b was there already."
    (workspace / "f").touch()
    assert "not a directory" in hands.refused("mkdir", path="f").message
    assert ".git" in hands.refused("mkdir", path=".git/hooks").message
    assert hands.summary("mkdir", path="./a/b/") == "mkdir a/b"
