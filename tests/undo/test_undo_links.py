"""Files that are kept by a hard link: a change in place takes the link along, and no forged time may hide that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from undo_kit import Lab, paths_of, reasons_of

from lmagent.undo import Limits

LINKS = Limits(copy_max=1000, small_copies=0)
UNREAD = Limits(copy_max=1000, small_copies=0, read_max=0)
IN_PLACE = "it was changed in place, and only a hard link to it was kept"


def overwrite(path: Path, content: bytes) -> None:
    """Write over the beginning of a file, and put its time back."""
    found = path.stat()
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (found.st_ino, found.st_mtime_ns)


def test_a_large_file_that_was_changed_in_place_with_its_time_put_back_is_never_restored_wrongly(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path)
    big = lab.write("big", b"good" * (5 << 20))

    def attack() -> None:
        overwrite(big, b"EVIL" * (5 << 20))
        big.unlink()

    restored = lab.restore(lab.call(attack))
    assert restored.paths == ()
    assert reasons_of(restored) == {"big": IN_PLACE}
    assert not big.exists()


def test_a_large_file_that_was_only_removed_comes_back(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write("big", b"good" * (5 << 20))
    first = lab.picture()
    assert not lab.restore(lab.call("mv big other; rm other")).refused
    assert lab.picture() == first


@pytest.mark.parametrize("limits", [LINKS, UNREAD], ids=["read", "unread"])
@pytest.mark.parametrize("path", ["big", "build/product", ".git/objects/ab/cdef"])
def test_a_change_in_place_of_the_same_size_with_its_time_put_back_is_found(
    tmp_path: Path, path: str, limits: Limits
) -> None:
    lab = Lab(tmp_path, limits)
    file = lab.write(path, b"good" * 1000)
    changes = lab.call(lambda: overwrite(file, b"EVIL"))
    assert paths_of(changes) == [path]
    assert changes[0].lost == IN_PLACE
    assert reasons_of(lab.restore(changes)) == {path: IN_PLACE}
    assert file.read_bytes()[:4] == b"EVIL"
    assert lab.call("true") == [], "it is found once"


def test_a_file_of_git_s_that_was_overwritten_in_the_same_size_is_found(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write(".git/objects/ab/cdef", b"good" * 1000, 0o444)
    changes = lab.call("chmod u+w .git/objects/ab/*; printf EVIL | dd of=.git/objects/ab/cdef conv=notrunc")
    assert [(change.path, change.lost) for change in changes] == [(".git/objects/ab/cdef", IN_PLACE)]


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
    "touched": "touch build/p",
    "touched long ago": "touch -d 2001-01-01 build/p",
    "mode changed": "chmod 600 build/p",
    "owner changed": "chown 1234:1234 build/p",
    "replaced": "cp build/p q; mv q build/p",
    "touched and removed": "touch -d 2001-01-01 build/p; rm build/p",
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


def test_a_link_is_not_taken_for_whole_after_a_restart(tmp_path: Path) -> None:
    lab = Lab(tmp_path, LINKS)
    file = lab.write("build/p", b"good" * 1000)
    changes = lab.call(file.unlink)
    kept = next((lab.store / "links").rglob("*-*"))
    overwrite(kept, b"EVIL")
    lab.snapshots = lab.another()
    assert reasons_of(lab.restore(changes)) == {"build/p": IN_PLACE}
    assert changes[0].before is not None
    assert lab.snapshots.content(changes[0].before.sha256) is None


def test_every_linked_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
