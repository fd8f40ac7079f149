from __future__ import annotations

import os
from pathlib import Path

import pytest

from lmagent.tools.beneath import Beneath
from lmagent.tools.walk import Walk


def plant(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def names(workspace: Path, start: str = ".", **options) -> list[str]:
    with Beneath(workspace) as files:
        return [entry.path for entry in Walk(files, start, **options) if entry.kind != "dir"]


def test_paths_come_in_order_hidden_ones_included(workspace: Path) -> None:
    plant(workspace, "b/x", "b.txt", "a", ".hidden", "b/a/z", ".git/HEAD", ".lmagent/log", ".lmagent-1a.tmp")
    found = names(workspace)
    assert found == [".hidden", "a", "b.txt", "b/a/z", "b/x"]
    assert found == sorted(found)


def test_links_are_named_and_not_followed(workspace: Path, outside: Path) -> None:
    plant(workspace, "a/x")
    (workspace / "out").symlink_to(outside)
    (workspace / "a/loop").symlink_to("..")
    assert names(workspace) == ["a/loop", "a/x", "out"]


def test_gitignore_is_honoured_at_every_level(workspace: Path) -> None:
    plant(workspace, "a.log", "keep.log", "build/x", "src/build/y", "src/a.py", "src/gen/b.py", "src/gen/c.txt", "top")
    plant(workspace, ".git/info/exclude", "deep/top", "node_modules/m/index.js")
    (workspace / ".gitignore").write_text("*.log\n!keep.log\nbuild/\n/top\nnode_modules\n# comment\n\n")
    (workspace / "src/.gitignore").write_text("gen/*\n!gen/c.txt\n")
    (workspace / ".git/info/exclude").write_text("a.py\n")
    assert names(workspace) == [".gitignore", "deep/top", "keep.log", "src/.gitignore", "src/gen/c.txt"]
    assert "build/x" in names(workspace, gitignore=False)


def test_an_ignored_directory_that_is_asked_for_is_walked(workspace: Path) -> None:
    plant(workspace, "node_modules/m/index.js", "src/a.log", "src/b")
    (workspace / ".gitignore").write_text("node_modules/\n*.log\n")
    assert names(workspace, "node_modules") == ["node_modules/m/index.js"]
    assert names(workspace, "node_modules/m") == ["node_modules/m/index.js"]
    assert names(workspace, "src") == ["src/b"]


def test_a_pattern_that_cannot_be_read_is_skipped(workspace: Path) -> None:
    plant(workspace, "a.log", "b")
    (workspace / ".gitignore").write_text("!\n*.log\n")
    assert names(workspace) == [".gitignore", "b"]


def test_a_gitignore_that_is_a_link_out_is_no_gitignore(workspace: Path, outside: Path) -> None:
    plant(workspace, "secret")
    (workspace / ".gitignore").symlink_to(outside / "secret.txt")
    assert names(workspace) == [".gitignore", "secret"]


def test_a_tree_deeper_than_there_are_descriptors(workspace: Path) -> None:
    path = workspace
    for _ in range(300):
        path /= "d"
    os.makedirs(path)
    (path / "leaf").write_text("x")
    assert len(names(workspace)) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_directory_that_cannot_be_read_is_counted(workspace: Path) -> None:
    plant(workspace, "no/x", "yes/x")
    os.chmod(workspace / "no", 0)
    with Beneath(workspace) as files:
        walk = Walk(files)
        assert [entry.path for entry in walk if entry.kind == "file"] == ["yes/x"]
        assert walk.unreadable == 1
