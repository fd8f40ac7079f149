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


def test_ls_shows_what_is_in_the_directories_down_to_a_depth(hands, workspace: Path) -> None:
    for path in ("b/c/d/deep.txt", "b/x.py", "a/one.txt", "readme"):
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text("1234")
    assert hands("ls", depth=2).content.split("\n") == [
        "a/", "  one.txt  4", "b/", "  c/", "  x.py  4", "readme  4",
    ]  # fmt: skip
    whole = hands("ls", depth=9)
    assert whole.data == {"count": 8, "truncated": False}
    assert "\n    d/\n      deep.txt  4\n" in whole.content
    assert hands("ls", path="b", depth=2).content.split("\n") == ["c/", "  d/", "x.py  4"]
    assert hands.summary("ls", path="b", depth=2) == "ls b 2 levels deep"
    assert "from 1" in hands.refused("ls", depth=0).message


def test_a_deep_listing_shows_the_levels_that_fit_and_says_so(hands, workspace: Path) -> None:
    for number in range(60):
        (workspace / f"many/f{number:02d}").mkdir(parents=True)
    (workspace / "small").mkdir()
    (workspace / "small/last.txt").touch()
    hands.room = 300
    output = hands("ls", depth=3)
    assert output.content.split("\n") == [
        "many/", "small/", "… 1 of 3 levels shown; ls a directory by its path to see more of it",
    ]  # fmt: skip
    assert output.data == {"count": 2, "truncated": True}
    for number in range(2000):
        (workspace / f"small/g{number}").touch()
    hands.room = 50_000
    assert "… 1 of 2 levels shown" in hands("ls", depth=2).content


def test_a_deep_listing_names_what_is_ignored_and_does_not_look_into_it(hands, workspace: Path) -> None:
    for path in (".git/config", "node_modules/a/index.js", "src/cache/x", ".lmagent/secret", "src/a.py"):
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).touch()
    (workspace / ".gitignore").write_text("node_modules/\ncache\n")
    output = hands("ls", depth=5)
    assert output.content.split("\n") == [
        ".git/", "node_modules/", "src/", "  cache/", "  a.py  0", ".gitignore  20",
        "(3 entries left out, as .gitignore says or in .git; name the directory to look into it.)",
    ]  # fmt: skip
    assert hands("ls", path="node_modules", depth=2).content.split("\n") == ["a/", "  index.js  0"]


def test_a_file_name_cannot_speak_to_the_terminal_nor_break_the_list(hands, workspace: Path) -> None:
    (workspace / "a\n\x1b[2Jb").touch()
    (workspace / os.fsdecode(b"bad\xff")).touch()
    content = hands("ls").content
    assert content.split("\n") == ["a \\x1b[2Jb  0", "bad\\udcff  0"]
    content.encode("utf-8")
    hands("glob", pattern="*").content.encode("utf-8")


def test_ls_of_what_is_no_directory(hands, workspace: Path, outside: Path) -> None:
    (workspace / "f").write_text("abc")
    assert "a file, not a directory" in hands.refused("ls", path="f").message
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
