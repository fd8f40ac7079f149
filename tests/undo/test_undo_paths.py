"""Before and after of some paths: what the write and edit tools need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from undo_kit import Lab, paths_of, reasons_of

from lmagent.core.changes import Change, PathState
from lmagent.undo import UndoLimits, escaped, unescaped


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_an_edit_is_taken_back_and_done_again(lab: Lab) -> None:
    lab.write("src/a", "one")
    first = lab.picture()
    changes = lab.call("echo two > src/a; echo x > unseen", ["src/a"])
    second = lab.picture()
    assert paths_of(changes) == ["src/a"]
    lab.restore(changes)
    lab.do("rm unseen")
    assert lab.picture() == first
    lab.restore(changes, "after")
    assert lab.picture(["unseen"]) == {path: seen for path, seen in second.items() if path != "unseen"}


def test_folders_that_a_write_makes_go_with_it(lab: Lab) -> None:
    lab.write("a/keep", "one")
    changes = lab.call("mkdir -p a/b/c; echo x > a/b/c/new", ["a/b/c/new"])
    assert paths_of(changes) == ["a/b", "a/b/c", "a/b/c/new"]
    lab.restore(changes)
    assert sorted(lab.picture()) == ["a", "a/keep"]


def test_a_path_stands_for_all_that_is_below_it(lab: Lab) -> None:
    lab.write("d/e/f", "one")
    assert paths_of(lab.call("rm -r d; echo > other", ["d", "d/e/f"])) == ["d", "d/e", "d/e/f"]


@pytest.mark.parametrize("path", [".", "", "{workspace}", "d/.."])
def test_the_workspace_itself_is_all_of_it(lab: Lab, path: str) -> None:
    assert paths_of(lab.call("mkdir d; echo > d/x", [path.format(workspace=lab.workspace)])) == ["d", "d/x"]


def test_a_path_may_be_absolute(lab: Lab) -> None:
    assert paths_of(lab.call("echo > x", [str(lab.workspace / "x")])) == ["x"]


def test_a_path_through_a_link_keeps_what_the_link_leads_to(lab: Lab) -> None:
    lab.write("real/a", "one")
    (lab.workspace / "link").symlink_to("real")
    (lab.workspace / "alias").symlink_to("real/a")
    assert paths_of(lab.call("echo two > link/a", ["link/a"])) == ["real/a"]
    assert paths_of(lab.call("echo three > alias", ["alias"])) == ["real/a"]


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "out/x", "a\0b"])
def test_a_path_outside_is_refused_and_not_looked_at(lab: Lab, path: str) -> None:
    (lab.workspace / "out").symlink_to("/tmp")
    refusals = [refusal for refusal in lab.before([path]) if "not in the workspace" in refusal.reason]
    assert bool(refusals) == (path != "out/x")
    assert lab.after([path]) == []


def test_an_edited_file_is_copied_even_in_a_bulky_tree(tmp_path: Path) -> None:
    lab = Lab(tmp_path, UndoLimits(small_copies=0))
    lab.write("node_modules/p/i.js", "one")
    lab.before()
    changes = lab.call("echo two >> node_modules/p/i.js", ["node_modules/p/i.js"])
    assert changes[0].lost == ""
    lab.restore(changes)
    assert lab.read("node_modules/p/i.js") == "one"


def test_several_calls_can_be_under_way(lab: Lab) -> None:
    lab.before(["a"])
    lab.before(["b"])
    lab.write("a")
    lab.write("b")
    assert (paths_of(lab.after(["a"])), paths_of(lab.after(["b"]))) == (["a"], ["b"])


def test_after_without_before_is_an_error(lab: Lab) -> None:
    with pytest.raises(ValueError, match="without before"):
        lab.after(["a"])


def test_our_own_folder_is_not_looked_at(lab: Lab) -> None:
    assert lab.call("mkdir .lmagent; echo > .lmagent/x") == []
    assert lab.call("echo > .lmagent/y", [".lmagent/y"]) == []
    assert paths_of(lab.call("mkdir -p d/.lmagent")) == ["d", "d/.lmagent"]


def test_a_store_in_the_workspace_is_not_looked_at(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.store = lab.workspace / ".local" / "undo"
    lab.snapshots = lab.another()
    assert paths_of(lab.call("echo > x")) == ["x"]
    assert paths_of(lab.call("echo two > x")) == ["x"]


@pytest.mark.parametrize(
    "name", [b"plain", "naïve ☃".encode(), b"\xff", b"caf\xe9", b"back\\slash", b"\\xff", b"\\\\", b"new\nline", b"%FF"]
)
def test_every_name_survives_json(lab: Lab, name: bytes) -> None:
    text = os.fsdecode(name)
    assert unescaped(escaped(text)) == text
    lab.write(text, "one")
    lab.do(lambda: (lab.workspace / "link").symlink_to(text))
    first = lab.picture()
    changes = lab.call(lambda: (lab.workspace / text).unlink()) + lab.call("rm link")
    assert changes[0].path == escaped(text)
    lab.restore(changes)
    assert lab.picture() == first


def test_only_names_that_need_it_are_escaped() -> None:
    assert escaped("a/naïve ☃") == "a/naïve ☃"
    assert escaped(os.fsdecode(b"caf\xe9")) == "caf\\xe9"
    assert escaped("a\\b") == "a\\\\b"


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", ".", "a//b", "a/", "x\0", ".lmagent/x"])
def test_a_change_from_a_forged_log_leads_nowhere(lab: Lab, path: str) -> None:
    outside = lab.workspace.parent / "x"
    outside.write_text("outside")
    change = Change(path, None, PathState("file", 0o644, "", 7, outside.stat().st_mtime_ns))
    restored = lab.restore([change])
    assert restored.refused
    assert outside.read_text() == "outside"


def test_a_forged_change_of_the_store_is_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.store = lab.workspace / "data" / "undo"
    lab.snapshots = lab.another()
    lab.write("a", "one")
    lab.call("rm a")
    lock = (lab.store / "lock").stat()
    change = Change("data/undo/lock", None, PathState("file", 0o600, "", 0, lock.st_mtime_ns))
    assert lab.restore([change]).refused
    assert (lab.store / "lock").exists()


@pytest.mark.parametrize("content", ["../../../../etc/passwd", "link:../../x-1-1", "0" * 63, "link:1-2", "0" * 64])
def test_a_content_from_a_forged_log_is_nothing(lab: Lab, content: str) -> None:
    restored = lab.restore([Change("x", PathState("file", 0o644, content, 5, 1), None)])
    assert list(reasons_of(restored)) == ["x"]
    assert lab.snapshots.content(content) is None
    assert lab.picture() == {}
