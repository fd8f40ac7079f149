"""Owner and group come back with the rest; what this user may not give away is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from test_undo_odd import as_nobody
from undo_kit import Lab, paths_of, reasons_of

from lmagent.core.changes import Change, PathState

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def owners(lab: Lab) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(lab.workspace)): (path.lstat().st_uid, path.lstat().st_gid)
        for path in lab.workspace.rglob("*")
    }


def furnish(lab: Lab) -> None:
    lab.write("d/a", "one", 0o4750)
    lab.write("node_modules/p", b"x" * 100_000)
    (lab.workspace / "l").symlink_to("d")
    for name, user, group in (("d", 33, 34), ("d/a", 35, 36), ("l", 37, 38), ("node_modules/p", 39, 40)):
        os.chown(lab.workspace / name, user, group, follow_symlinks=False)
    (lab.workspace / "d/a").chmod(0o4750)  # giving it away took the bit


SCRIPTS = {
    "removed": "rm -r d l node_modules",
    "given away": "chown -hR 1:2 .",
    "given away and written": "echo two > d/a; chown 1:2 d/a; chown 1 d",
    "replaced": "cp d/a b; mv b d/a; rm l; ln -s elsewhere l",
}


@needs_root
@pytest.mark.parametrize("name", SCRIPTS)
def test_owners_come_back_and_go_again(tmp_path: Path, name: str) -> None:
    lab = Lab(tmp_path)
    furnish(lab)
    first, owned = lab.picture(), owners(lab)
    changes = lab.call(SCRIPTS[name])
    second, then = lab.picture(), owners(lab)
    for _ in range(2):
        assert not lab.restore(changes).refused
        assert (lab.picture(), owners(lab)) == (first, owned)
        assert not lab.restore(changes, "after").refused
        assert (lab.picture(), owners(lab)) == (second, then)


def test_who_may_not_give_files_away_gets_them_back_and_is_told() -> None:
    def act(lab: Lab) -> None:
        lab.write("mine", "one")
        lab.write("a", "one")
        changes = lab.call("rm a mine")
        foreign = [
            Change(change.path, change.before and _of(change.before, 33, 34)) if change.path == "a" else change
            for change in changes
        ]
        restored = lab.restore(foreign)
        assert paths_of(changes) == list(restored.paths)
        assert reasons_of(restored) == {"a": "it is back, but this user may not give it to user 33 and group 34"}
        assert lab.read("a") == "one"
        assert not lab.restore(foreign, "after").refused
        assert lab.picture() == {}

    as_nobody(act)


def _of(state: PathState, uid: int, gid: int) -> PathState:
    return replace(state, uid=uid, gid=gid)


@needs_root
def test_a_state_from_an_older_log_says_nothing_of_owners(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write("a", "one")
    os.chown(lab.workspace / "a", 12, 13)
    (change,) = lab.call("echo two > a")
    assert change.before is not None
    assert change.after is not None
    old = Change("a", _of(change.before, -1, -1), _of(change.after, -1, -1))
    assert not lab.restore([old]).refused
    assert lab.read("a") == "one"
