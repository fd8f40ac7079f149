"""Another file system, a full one, and limits: what cannot be kept is said, and nothing is half recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from undo_kit import Lab, paths_of, reasons_of, small_disk

from lmagent.core.errors import StoreError
from lmagent.undo import UndoLimits


def lab_on(disk: Path, tmp_path: Path, limits: UndoLimits | None = None) -> Lab:
    """A workspace whose store is on another file system."""
    lab = Lab(tmp_path, limits)
    lab.store = disk / "key"
    lab.snapshots = lab.another()
    return lab


def test_large_files_are_copied_where_links_are_not_possible(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        lab = lab_on(disk, tmp_path, UndoLimits(copy_max=1000, small_copies=0))
        lab.write("big", b"x" * 5000)
        lab.write("node_modules/small", b"y")
        first = lab.picture()
        assert lab.before() == []
        lab.do("rm -r big node_modules")
        assert not lab.restore(lab.after()).refused
        assert lab.picture() == first
        lab.snapshots.close()


def test_what_does_not_fit_is_refused_and_its_loss_is_said(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        lab = lab_on(disk, tmp_path, UndoLimits(copy_max=1000, total_max=6000))
        lab.write("a-big", b"x" * 5000)
        lab.write("b-big", b"y" * 5000)
        refused = [refusal.path for refusal in lab.before()]
        assert len(refused) == 1
        assert [refusal.path for refusal in lab.before()] == refused, "it is said every time"
        lab.do("rm *-big")
        changes = lab.after()
        assert [change.path for change in changes if change.lost] == refused
        restored = lab.restore(changes)
        assert list(reasons_of(restored)) == refused
        assert len(restored.paths) == 1
        lab.snapshots.close()


def test_the_mode_of_a_file_that_was_not_kept_is_restored(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        lab = lab_on(disk, tmp_path, UndoLimits(total_max=0))
        lab.write("a", "one")
        first = lab.picture()
        changes = lab.call("chmod 600 a")
        assert changes[0].lost == ""
        assert not lab.restore(changes).refused
        assert lab.picture() == first
        lab.snapshots.close()


def test_a_new_file_that_could_not_be_kept_is_removed_all_the_same(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        lab = lab_on(disk, tmp_path, UndoLimits(total_max=10))
        changes = lab.call(lambda: lab.write("new", "x" * 100))
        assert not lab.restore(changes).refused
        assert lab.picture() == {}
        assert list(reasons_of(lab.restore(changes, "after"))) == ["new"]
        lab.snapshots.close()


def test_a_full_disk_stops_the_call_before_it_is_made(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        lab = lab_on(disk, tmp_path)
        for number in range(10):
            lab.write(f"f{number}", os.urandom(20_000))
        with pytest.raises(StoreError, match="the disk is full"):
            lab.before()
        assert os.listdir(lab.store / "tmp") == []
        assert not (lab.store / "manifest").exists()
        with pytest.raises(ValueError, match="without before"):
            lab.after()
        lab.do("rm f3 f4 f5 f6 f7 f8 f9; head -c 100 f0 > f2; head -c 100 f0 > f1")
        for path in (lab.store / "objects").rglob("*"):
            if path.is_file():
                path.unlink()
        assert not lab.restore(lab.call("rm *")).refused
        lab.snapshots.close()


def test_a_disk_that_fills_up_during_a_call_does_not_hide_what_it_changed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        lab = lab_on(disk, tmp_path)
        lab.write("a", "one")
        first = lab.picture()
        changes = lab.call(lambda: (lab.write("a", os.urandom(80_000)), lab.write("b", os.urandom(80_000))))
        assert paths_of(changes) == ["a", "b"]
        assert not lab.restore(changes).refused
        assert lab.picture() == first
        assert sorted(reasons_of(lab.restore(changes, "after"))) == ["a", "b"]
        lab.snapshots.close()


def test_a_workspace_with_too_many_paths_is_kept_as_far_as_the_limit_goes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, UndoLimits(entries_max=20))
    for number in range(5):
        for inner in range(10):
            lab.write(f"d{number}/{inner}", "one")
    assert any("more than 20" in refusal.reason for refusal in lab.before())
    lab.do("rm -r d*; echo > new")
    changes = lab.after()
    first = {path for path in paths_of(changes) if "/" in path}
    lab.restore(changes)
    assert {path for path in lab.picture() if "/" in path} == first


def test_a_tree_that_is_too_deep_is_refused_where_it_gets_so(tmp_path: Path) -> None:
    lab = Lab(tmp_path, UndoLimits(depth_max=5))
    lab.write("1/2/3/4/5/6/7/f", "one")
    refusals = lab.before()
    assert [refusal.path for refusal in refusals] == ["1/2/3/4/5/6"]
    assert lab.call("echo two > 1/2/3/4/5/6/7/f; echo > 1/x") != []


def test_another_file_system_in_the_workspace_is_not_looked_at(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with small_disk(lab.workspace / "mounted") as disk:
        (disk / "a").write_text("one")
        refusals = lab.before()
        (disk / "a").write_text("two")
        assert [refusal.path for refusal in refusals] == ["mounted"]
        assert lab.after() == []
