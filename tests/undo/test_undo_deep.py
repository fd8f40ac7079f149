"""Folders below folders come back, and a folder that is too deep to be looked into is named."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from undo_kit import Lab, paths_of, reasons_of

from lmagent.undo import UndoLimits
from lmagent.undo.keep import Keeper
from lmagent.undo.objects import Objects
from lmagent.undo.scan import Scan

DEEP = 99


@contextmanager
def inside(lab: Lab, depth: int, *, make: bool = False) -> Iterator[int]:
    """The descriptor of the folder so many levels down; its path may be longer than the system takes at once."""
    current = os.open(lab.workspace, os.O_RDONLY)
    try:
        for _ in range(depth):
            if make:
                os.mkdir("a-rather-long-name", dir_fd=current)
            inner = os.open("a-rather-long-name", os.O_RDONLY, dir_fd=current)
            os.close(current)
            current = inner
        yield current
    finally:
        os.close(current)


def test_what_lies_deep_comes_back_with_few_descriptors(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with inside(lab, DEEP, make=True) as folder:
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o640, dir_fd=folder))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        lab.before()
        lab.do("rm -rf a-*")
        changes = lab.after()
        assert len(changes) == DEEP + 1
        restored = lab.restore(changes)
        assert not restored.refused
        assert len(restored.paths) == DEEP + 1
        with inside(lab, DEEP) as folder:
            assert os.stat("f", dir_fd=folder).st_mode & 0o777 == 0o640
        assert not lab.restore(changes, "after").refused
        assert lab.picture() == {}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_folder_that_was_too_deep_to_be_looked_into_is_named_when_it_is_taken_back(tmp_path: Path) -> None:
    lab = Lab(tmp_path, UndoLimits(depth_max=3))
    lab.write("1/2/3/4/5/f", "one")
    changes = lab.call("rm -r 1")
    assert paths_of(changes) == ["1", "1/2", "1/2/3", "1/2/3/4"]
    for _ in range(2):
        restored = lab.restore(changes)
        assert list(restored.paths) == paths_of(changes)
        assert "its contents were not kept: more than 3 folders deep" in reasons_of(restored)["1/2/3/4"]


def test_a_folder_that_is_moved_away_while_a_deep_walk_goes_on_is_no_error(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with inside(lab, 90, make=True):
        pass
    moved = False

    def swap() -> None:
        nonlocal moved
        if not moved:
            with inside(lab, 20) as folder:
                os.rename("a-rather-long-name", "b", src_dir_fd=folder, dst_dir_fd=folder)
                os.mkdir("a-rather-long-name", dir_fd=folder)
            moved = True

    steps = iter(range(1000))
    keeper = Keeper(Objects(lab.store, 1 << 30), UndoLimits())
    scan = Scan(str(lab.workspace), keeper, {}, UndoLimits(), breathe=lambda: swap() if next(steps) == 80 else None)
    assert scan.run(None).tree
    assert moved
    lab.before()
    assert lab.after() == []


@pytest.mark.parametrize("depth", [1, 7, 64, 97])
def test_every_depth_is_walked_to_its_end(tmp_path: Path, depth: int) -> None:
    lab = Lab(tmp_path)
    with inside(lab, depth, make=True):
        pass
    for level in range(depth + 1):
        with inside(lab, level) as folder:
            for name in ("a", "z"):
                os.mkdir(name, dir_fd=folder)
    lab.before()
    lab.do("rm -rf -- *")
    changes = lab.after()
    assert len(changes) == depth + 2 * (depth + 1)
    assert not lab.restore(changes).refused
    lab.before()
    lab.do("rm -rf -- *")
    assert paths_of(lab.after()) == paths_of(changes)
