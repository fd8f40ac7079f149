"""Random trees, random calls: undo all is what was there, redo all is what was made, and the user's own is kept."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from undo_kit import Lab, picture

from lmagent.undo import UndoLimits
from lmagent.undo.put import TEMPORARY

pytestmark = pytest.mark.long

NAMES = ["a", "node_modules", os.fsdecode(b"\xe9\xff"), "back\\slash"]  # few, so that they meet
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
MODES = st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o777, 0o711])
CONTENTS = st.binary(max_size=6)
REPLACING = ("write", "remove", "folder", "symlink", "chmod", "rename", "copy")
IN_PLACE = ("append", "touch", "link")

Act = tuple[str, str, str, int, bytes]


def acts(names: tuple[str, ...], size: int) -> st.SearchStrategy[list[Act]]:
    return st.lists(st.tuples(st.sampled_from(names), PATHS, PATHS, MODES, CONTENTS), max_size=size)


def perform(root: Path, act: Act) -> None:
    """One change; one that cannot be made is none."""
    name, path, other, mode, content = act
    with suppress(OSError, shutil.Error):
        DEEDS[name](root / path, root / other, mode, content)


def _write(path: Path, _: Path, mode: int, content: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name("beside")
    beside.write_bytes(content)
    beside.chmod(mode)
    beside.rename(path)


def _remove(path: Path, *_: Any) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _folder(path: Path, _: Path, mode: int, __: bytes) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)


def _symlink(path: Path, other: Path, *_: Any) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    path.symlink_to(other.name)


def _chmod(path: Path, _: Path, mode: int, __: bytes) -> None:
    if not path.is_symlink():
        path.chmod(mode)


def _append(path: Path, _: Path, __: int, content: bytes) -> None:
    if not path.is_symlink():
        with path.open("ab") as file:
            file.write(content)


def _touch(path: Path, _: Path, mode: int, __: bytes) -> None:
    os.utime(path, ns=(mode, mode * 10**15 + 7), follow_symlinks=False)


def _link(path: Path, other: Path, *_: Any) -> None:
    if other.is_file():
        other.unlink()
    os.link(path, other, follow_symlinks=False)


DEEDS: dict[str, Callable[[Path, Path, int, bytes], Any]] = {
    "write": _write,
    "remove": _remove,
    "folder": _folder,
    "symlink": _symlink,
    "chmod": _chmod,
    "rename": lambda path, other, *_: path.rename(other),
    "copy": lambda path, other, *_: shutil.copy2(path, other, follow_symlinks=False),
    "append": _append,
    "touch": _touch,
    "link": _link,
}

ALL = (*REPLACING, *IN_PLACE)
MANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
KINDS = {"copies": (ALL, UndoLimits()), "links": (REPLACING, UndoLimits(small_copies=0))}


@pytest.mark.parametrize("kind", KINDS)
def test_undo_all_and_redo_all_are_exact(kind: str) -> None:
    names, limits = KINDS[kind]

    @MANY
    @given(acts(names, 12), st.lists(acts(names, 5), min_size=1, max_size=4), st.data())
    def check(first: list[Act], rounds: list[list[Act]], data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as name:
            lab = Lab(Path(name), limits)
            mine = lab.workspace / "mine"
            mine.mkdir()
            for act in first:
                perform(lab.workspace, act)
            begin = lab.picture(["mine"])
            changes = []
            for deeds in rounds:
                perform(mine, data.draw(acts(REPLACING, 1).map(lambda some: some[0] if some else ("remove",) * 5)))
                changes += lab.call(lambda deeds=deeds: [perform(lab.workspace, act) for act in deeds])
            end, own = lab.picture(["mine"]), picture(mine)
            for _ in range(2):
                assert lab.restore(changes).refused == ()
                assert lab.picture(["mine"]) == begin
                assert lab.restore(changes, "after").refused == ()
                assert lab.picture(["mine"]) == end
            assert picture(mine) == own

    check()


@MANY
@given(
    acts(ALL, 8),
    st.lists(st.tuples(acts(ALL, 4), acts(ALL, 2)), min_size=1, max_size=4),
    acts(("write",), 4),
)
def test_what_the_user_wrote_last_is_never_lost(
    first: list[Act], rounds: list[tuple[list[Act], list[Act]]], last: list[Act]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        lab = Lab(Path(name))
        for act in first:
            perform(lab.workspace, act)
        changes = []
        for calls, wishes in rounds:
            changes += lab.call(lambda calls=calls: [perform(lab.workspace, act) for act in calls])
            for act in wishes:
                perform(lab.workspace, act)
        for number, act in enumerate(last):
            perform(lab.workspace, (*act[:4], b"the user's own %d" % number))
        own = {path: seen for path, seen in lab.picture().items() if seen[0] == "file" and b"the user's" in seen[2]}
        for side in ("before", "after", "before"):
            restored = lab.restore(changes, side)
            now = lab.picture()
            assert {path: now.get(path) for path in own} == own
            assert not any(TEMPORARY in path for path in now)
            assert {refusal.path for refusal in restored.refused} <= {change.path for change in changes}
