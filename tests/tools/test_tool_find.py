from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lmagent.core.errors import ToolError
from lmagent.tools.find.pattern import Pattern, fixed_start, name_or_path


def plant(root: Path, *paths: str, text: str = "") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text or path)


# --- patterns --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", ".py", ".h.py"], ["b/a.py", "a.pyc"]),
        ("**/*.py", ["a.py", "b/a.py", "b/.c/d/a.py"], ["a.pyc"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_a.py"], ["test_a.py", "lib/src/test_a.py"]),
        ("src/**", ["src/a", "src/b/c"], ["src", "srcs/a"]),
        ("**", ["a", "a/b"], []),
        ("a?c.[ch]", ["abc.c", "abc.h"], ["ac.c", "a/c.c", "abc.o"]),
        ("[!a]*", ["b"], ["a"]),
        ("**/*.{ts,tsx}", ["a.ts", "b/c.tsx"], ["a.tsy"]),
        ("{src,lib}/{a,b}.c", ["src/a.c", "lib/b.c"], ["src/c.c"]),
        ("a{b}c", ["a{b}c"], ["abc"]),
        ("**/b/**/d", ["b/d", "a/b/c/d", "a/b/d"], ["a/d"]),
        ("**/**/x", ["x", "a/x"], []),
        ("[", ["["], ["x"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [path for path in yes if not compiled.matches(path)] == []
    assert [path for path in no if compiled.matches(path)] == []
    for path in yes:
        parts = path.split("/")
        assert all(compiled.may_hold("/".join(parts[:depth])) for depth in range(1, len(parts)))


def test_a_pattern_knows_where_not_to_look() -> None:
    assert not Pattern("src/*.py").may_hold("lib")
    assert not Pattern("src/*.py").may_hold("src/deep")
    assert fixed_start("src/lib/**/*.py") == "src/lib"
    assert fixed_start("*.py") == fixed_start("{a,b}/c") == "."
    assert name_or_path("*.py").matches("a/b.py")


def test_no_pattern_is_slow() -> None:
    started = time.perf_counter()
    Pattern("*a" * 30 + "b").matches("a" * 250)
    Pattern("**/a/" * 15 + "b").matches("/".join("a" * 200))
    assert time.perf_counter() - started < 1
    with pytest.raises(ToolError, match="alternatives"):
        Pattern("{a,b}" * 20)


# --- glob ------------------------------------------------------------------------------------------------------


def test_glob_finds_files_in_order_hidden_ones_included(hands, workspace: Path) -> None:
    plant(workspace, "src/b.py", "src/a/c.py", ".hid/d.py", "e.txt", ".git/x.py", "top.py")
    assert hands("glob", pattern="**/*.py").content.split("\n") == [".hid/d.py", "src/a/c.py", "src/b.py", "top.py"]
    assert hands("glob", pattern="src/*.py").content == "src/b.py"
    assert hands("glob", pattern=str(workspace / "src/*.py")).content == "src/b.py"
    assert hands("glob", pattern="*/").content == ".hid\nsrc"


def test_glob_honours_gitignore_and_says_so(hands, workspace: Path) -> None:
    plant(workspace, "out/a.js", "src/a.js")
    (workspace / ".gitignore").write_text("out/\n")
    assert hands("glob", pattern="**/*.js").content == "src/a.js"
    assert hands("glob", pattern="out/*.js").content == "out/a.js"  # asked for by name
    assert ".gitignore" in hands("glob", pattern="**/b.js").content


def test_glob_tells_of_matches_further_down(hands, workspace: Path) -> None:
    plant(workspace, "a/x.py", "b/y.py")
    assert "**/*.py looks in deeper directories too" in hands("glob", pattern="*.py").content
    assert "Nothing matches" in hands("glob", pattern="nowhere/*.py").content


def test_glob_shows_a_page_and_counts_the_rest(hands, workspace: Path) -> None:
    plant(workspace, *(f"f{number:04d}" for number in range(450)))
    output = hands("glob", pattern="*")
    assert output.content.split("\n") == [f"f{number:04d}" for number in range(450)]
    assert output.data == {"count": 450, "truncated": False}
    hands.room = 1000
    output = hands("glob", pattern="*")
    *rows, last = output.content.split("\n")
    assert rows == [f"f{number:04d}" for number in range(len(rows))]
    assert last == f"… and {450 - len(rows)} more; narrow the pattern to see them"
    assert output.data == {"count": 450, "truncated": True}


def test_glob_stays_inside(hands, workspace: Path, outside: Path) -> None:
    (workspace / "link").symlink_to(outside)
    assert "secret" not in hands("glob", pattern="**/*").content
    assert "leads out" in hands.refused("glob", pattern="link/*").message
    for pattern in ("../*", "/etc/*", "~/*", "a/../../*", ""):
        hands.refused("glob", pattern=pattern)


# --- grep ----------------------------------------------------------------------------------------------------------


def test_grep_takes_a_pattern_literally_unless_told_otherwise(hands, workspace: Path) -> None:
    plant(workspace, "a.py", text="x = f(a)\ny = g(b)\nz = f(a) + f(a)\n")
    output = hands("grep", pattern="f(a)")
    assert output.content == "[2 lines in 1 of 1 file]\na.py\n1:x = f(a)\n3:z = f(a) + f(a)"
    assert output.data == {"count": 2, "files": 1, "truncated": False}
    assert "a.py\n2:y = g(b)" in hands("grep", pattern=r"g\(\w\)", regex=True).content
    nothing = hands("grep", pattern="f|g").content
    assert nothing.startswith("No match for f|g in 1 file.")
    assert "regex=true" in nothing


def test_grep_shows_context(hands, workspace: Path) -> None:
    plant(workspace, "f", text="".join(f"{n}\n" for n in range(1, 21)))
    content = hands("grep", pattern="^(4|5|12)$", regex=True, context=1).content
    assert content.split("\n")[1:] == [
        "f", "3-3", "4:4", "5:5", "6-6", "--", "11-11", "12:12", "13-13",
    ]  # fmt: skip


def test_grep_groups_by_file_and_keeps_indentation(hands, workspace: Path) -> None:
    plant(workspace, "a.py", text="def f():\n    return x\n\treturn x\n")
    plant(workspace, "b.py", text=" x\n")
    assert hands("grep", pattern="x").content.split("\n")[1:] == [
        "a.py", "2:    return x", "3:\treturn x", "", "b.py", "1: x",
    ]  # fmt: skip


def test_grep_looks_where_it_is_told(hands, workspace: Path) -> None:
    plant(workspace, "src/a.py", "src/a.txt", "lib/b.py", "c.py", text="needle\n")
    assert hands("grep", pattern="needle", glob="*.py").data["files"] == 3
    assert hands("grep", pattern="needle", glob="src/*.py").data["files"] == 1
    assert hands("grep", pattern="needle", paths=["src", "c.py", "src/a.py"]).data["files"] == 3
    assert "There is no lost" in hands.refused("grep", pattern="needle", paths=["lost"]).message


def test_grep_passes_over_binaries_ignored_files_and_links(hands, workspace: Path, outside: Path) -> None:
    plant(workspace, "a", "out/b", text="secret\n")
    (workspace / "bin").write_bytes(b"secret\0")
    (workspace / ".gitignore").write_text("out/\n")
    (workspace / "link").symlink_to(outside / "secret.txt")
    (workspace / "dir").symlink_to(outside)
    assert hands("grep", pattern="secret").content == "[1 line in 1 of 3 files]\na\n1:secret"
    assert hands("grep", pattern="secret", paths=["out"]).data["files"] == 1
    for path in ("link", "dir", "../outside", "/etc"):
        hands.refused("grep", pattern="secret", paths=[path])
    nothing = hands("grep", pattern="nothing|cret.", regex=True, paths=["bin"]).content
    assert "binary or larger than 32 MB: 1." in nothing
    nothing = hands("grep", pattern="nothing").content
    assert ".gitignore" in nothing


def test_grep_knows_encodings(hands, workspace: Path) -> None:
    (workspace / "u8").write_bytes("grüße\n".encode())
    (workspace / "l1").write_bytes("grüße\n".encode("latin-1"))
    (workspace / "u16").write_bytes("grüße\r\n".encode("utf-16"))
    assert hands("grep", pattern="grüße").data["files"] == 3
    assert hands("grep", pattern="gr.{2}e$", regex=True).data["files"] == 3
    assert "u16" in hands("grep", pattern="gr").content


def test_grep_trims_long_lines_around_the_hit_and_cleans_them(hands, workspace: Path) -> None:
    plant(workspace, "min.js", text="a" * 5000 + "NEEDLE\x1b[31m" + "b" * 5000)
    name, row = hands("grep", pattern="NEEDLE").content.split("\n")[1:]
    assert name == "min.js"
    assert "NEEDLE" in row
    assert "\x1b" not in row
    assert row.startswith("1:…")
    assert row.endswith("…")
    assert len(row) < 300


def test_grep_shows_a_page_and_counts_everything(hands, workspace: Path) -> None:
    plant(workspace, *(f"f{number:03d}" for number in range(30)), text="needle in a line\n" * 40)
    for hands.room in (300, 2000, 8000):
        for context in (0, 20):
            output = hands("grep", pattern="needle", context=context)
            header, *rows = output.content.split("\n")
            shown = sum("needle" in row for row in rows)
            assert header.startswith(f"[1,200 lines in 30 of 30 files; the first {shown} are shown")
            assert output.data == {"count": 1200, "files": 30, "truncated": True}


def test_grep_shows_at_least_the_hit_when_its_surroundings_are_too_long(hands, workspace: Path) -> None:
    plant(workspace, "f", text=("ü" * 400 + "\n") * 20 + "needle\n" + ("ü" * 400 + "\n") * 20)
    hands.room = 8000
    assert hands("grep", pattern="needle", context=20).content.endswith("\nf\n21:needle")


def test_a_catastrophic_expression_is_stopped_and_told(hands, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmagent.tools.find import grep

    monkeypatch.setattr(grep, "BUDGET", 0.5)
    plant(workspace, "a", text="match aac\n")
    plant(workspace, "b", text="a" * 64 + "\n")
    started = time.monotonic()
    output = hands("grep", pattern="(a+)+c", regex=True)
    assert time.monotonic() - started < 3
    assert "a\n1:match aac" in output.content
    assert "Stopped after" in output.content
    assert output.data["truncated"] is True


@pytest.mark.parametrize("pattern", ["(", "[", "a{2,1}", "(?P<x>a)(?P<x>b)", "*"])
def test_an_expression_that_cannot_be_read_is_explained(hands, workspace: Path, pattern: str) -> None:
    assert "cannot be read" in hands.refused("grep", pattern=pattern, regex=True).message


def test_patterns_that_no_line_can_match_are_refused(hands) -> None:
    assert "line break" in hands.refused("grep", pattern="a\nb").message
    assert "needs a pattern" in hands.refused("grep", pattern="").message


def children() -> set[str]:
    """The processes that this one has begun, the ended ones that were not waited for too."""
    return {child for task in Path("/proc/self/task").glob("*/children") for child in task.read_text().split()}


def test_grep_leaves_no_process_and_no_descriptor(hands, workspace: Path) -> None:
    plant(workspace, "a", text="x\n")
    hands("grep", pattern="x.?", regex=True)
    count, before = len(os.listdir("/proc/self/fd")), children()
    for _ in range(3):
        hands("grep", pattern="x.?", regex=True)
        hands.refused("grep", pattern="(", regex=True)
    assert len(os.listdir("/proc/self/fd")) == count
    assert children() == before


def test_summaries(hands) -> None:
    assert hands.summary("glob", pattern="**/*.py") == "glob **/*.py"
    assert hands.summary("grep", pattern="a\nb", paths=["src", "lib"]) == "grep a b in src, lib"
    assert hands.targets("grep", pattern="x", paths=["./src/"]) == ("src",)
    assert hands.targets("grep", pattern="x") == (".",)
    assert hands.targets("glob", pattern="src/**/x") == ("src",)
