"""Files that are kept by a hard link: a change in place takes the link along, and its size and time show it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from undo_kit import Lab, reasons_of

from lmagent.undo import UndoLimits

LINKS = UndoLimits(copy_max=1000, small_copies=0)
IN_PLACE = "it was changed in place, and only a hard link to it was kept"


def test_a_large_file_that_was_only_removed_comes_back(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write("big", b"good" * (5 << 20))
    first = lab.picture()
    assert not lab.restore(lab.call("mv big other; rm other")).refused
    assert lab.picture() == first


@pytest.mark.parametrize("path", ["big", "build/product"])
def test_a_change_in_place_of_the_same_size_is_found_and_said_to_be_lost(tmp_path: Path, path: str) -> None:
    lab = Lab(tmp_path, LINKS)
    lab.write(path, b"good" * 1000)
    changes = lab.call(f"printf EVIL | dd of={path} conv=notrunc")
    assert [(change.path, change.lost) for change in changes] == [(path, IN_PLACE)]
    assert reasons_of(lab.restore(changes)) == {path: IN_PLACE}
    assert lab.read(path)[:4] == "EVIL"
    assert lab.call("true") == [], "it is found once"


@pytest.mark.parametrize("path", ["big", "build/product"])
def test_a_linked_file_that_was_only_touched_keeps_its_content(tmp_path: Path, path: str) -> None:
    lab = Lab(tmp_path, LINKS)
    lab.write(path, b"good" * 1000)
    changes = lab.call(f"touch {path}")
    assert reasons_of(lab.restore(changes)) == {path: IN_PLACE}
    assert lab.read(path) == "good" * 1000


def test_a_file_of_git_s_whose_time_was_renewed_is_what_it_was(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write(".git/objects/ab/cdef", b"good" * 1000)
    first = lab.picture()
    changes = lab.call("touch .git/objects/ab/cdef")
    assert [change.lost for change in changes] == [""]
    assert not lab.restore(changes).refused
    assert lab.picture() == first


HARMLESS: dict[str, str] = {
    "removed": "rm build/p",
    "renamed": "mv build/p build/q",
    "linked": "ln build/p q",
    "mode changed": "chmod 600 build/p",
    "owner changed": "chown 1234:1234 build/p",
    "replaced": "cp build/p q; mv q build/p",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_linked_file_whose_content_did_not_change_is_not_lost(tmp_path: Path, name: str) -> None:
    if "chown" in HARMLESS[name] and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    lab = Lab(tmp_path, LINKS)
    lab.write("build/p", b"good" * 1000)
    first = lab.picture()
    changes = lab.call(HARMLESS[name])
    assert [change.lost for change in changes if change.lost] == []
    assert not lab.restore(changes).refused
    assert lab.picture() == first


def test_a_link_that_was_written_to_is_not_taken_for_whole_after_a_restart(tmp_path: Path) -> None:
    lab = Lab(tmp_path, LINKS)
    file = lab.write("build/p", b"good" * 1000)
    changes = lab.call(file.unlink)
    next((lab.store / "links").rglob("*-*")).write_bytes(b"EVIL" * 1000)
    lab.snapshots = lab.another()
    assert list(reasons_of(lab.restore(changes))) == ["build/p"]
    assert changes[0].before is not None
    assert lab.snapshots.content(changes[0].before.sha256) is None


def test_a_linked_file_that_did_not_change_is_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, LINKS)
    for number in range(5):
        lab.write(f"build/{number}", b"x" * 1000 * (number + 1))
    lab.before()
    read = list[str]()
    opened: Callable[..., int] = os.open

    def counted(path: str, flags: int, *arguments: int, **more: int) -> int:
        if not flags & os.O_DIRECTORY and str(path).isdigit():
            read.append(path)
        return opened(path, flags, *arguments, **more)

    monkeypatch.setattr(os, "open", counted)
    assert lab.after() == []
    lab.before()
    assert read == []
