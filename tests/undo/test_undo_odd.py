"""FIFOs, links planted in the way, crashes, folders without permission."""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from undo_kit import Lab, paths_of, reasons_of

from lmagent.core.changes import Change, PathState
from lmagent.undo import UndoLimits
from lmagent.undo.put import TEMPORARY

SECRET = hashlib.sha256(b"outside").hexdigest()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a").write_text("outside")
    return folder


def test_special_files_are_listed_and_neither_opened_nor_restored(lab: Lab) -> None:
    os.mkfifo(lab.workspace / "old")
    lab.before()

    def make() -> None:
        os.mkfifo(lab.workspace / "fifo")
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(lab.workspace / "socket"))
        os.unlink(lab.workspace / "old")

    make()
    changes = lab.after()
    assert [(change.path, change.after and change.after.kind) for change in changes] == [
        ("fifo", "other"),
        ("old", None),
        ("socket", "other"),
    ]
    assert set(reasons_of(lab.restore(changes)).values()) == {"a FIFO, socket or device is not restored"}
    assert sorted(lab.picture()) == ["fifo", "socket"]


def test_a_fifo_that_took_the_place_of_a_file_is_not_opened(lab: Lab) -> None:
    lab.write("a", "one")
    changes = lab.call("echo two > a")
    lab.do("rm a; mkfifo a")
    assert "by you or another program" in reasons_of(lab.restore(changes))["a"]
    assert list(reasons_of(lab.restore(lab.call("rm a; echo > a")))) == ["a"]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_link_planted_in_a_parent_never_leads_a_restore_outside(lab: Lab, outside: Path, kind: str) -> None:
    lab.write("d/e/a", "one")
    lab.write("d/e/b", "one")
    changes = lab.call("rm -r d/e/b; echo two > d/e/a")
    lab.do("mv d/e hidden")
    if kind == "link":
        (lab.workspace / "d/e").symlink_to(outside)
    else:
        lab.write("d/e", "mine")
    restored = lab.restore(changes)
    assert restored.paths == ()
    assert sorted(reasons_of(restored)) == ["d/e/a", "d/e/b"]
    assert [path.name for path in outside.iterdir()] == ["a"]
    assert (outside / "a").read_text() == "outside"


def test_a_link_planted_in_a_parent_never_makes_a_restore_remove_something_outside(lab: Lab, outside: Path) -> None:
    changes = lab.call("mkdir d; printf outside > d/a")
    lab.do("rm -r d")
    (lab.workspace / "d").symlink_to(outside)
    lab.restore(changes)
    assert (outside / "a").read_text() == "outside"


def test_a_link_planted_in_place_of_the_file_is_not_followed(lab: Lab, outside: Path) -> None:
    lab.write("a", "one")
    changes = lab.call("printf outside > a")
    lab.do("rm a")
    (lab.workspace / "a").symlink_to(outside / "a")
    assert list(reasons_of(lab.restore(changes))) == ["a"]
    assert (outside / "a").read_text() == "outside"


def test_links_that_are_swapped_all_the_time_never_lead_outside(lab: Lab, outside: Path) -> None:
    for number in range(20):
        lab.write(f"d/e/f{number}", "inside")
    changes = lab.call("echo more | tee d/e/* > /dev/null")
    stop = threading.Event()

    def swap() -> None:
        real, hidden, link = (lab.workspace / name for name in ("d", "hidden", "link"))
        (outside / "e").mkdir()
        link.symlink_to(outside)
        while not stop.is_set():
            os.rename(real, hidden)
            os.rename(link, real)
            os.rename(real, link)
            os.rename(hidden, real)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(30):
            lab.before()
            assert not any(SECRET in str(change) for change in lab.after())
            lab.restore(changes)
            lab.restore(changes, "after")
    finally:
        stop.set()
        swapping.join()
    assert sorted(path.name for path in outside.iterdir()) == ["a", "e"]
    assert list((outside / "e").iterdir()) == []


def test_files_that_come_and_go_during_a_walk_are_no_error(lab: Lab) -> None:
    stop = threading.Event()

    def churn() -> None:
        folder = lab.workspace / "churn"
        while not stop.is_set():
            folder.mkdir()
            for number in range(20):
                (folder / f"f{number}").write_text("x" * number)
            for number in range(20):
                (folder / f"f{number}").unlink()
            folder.rmdir()
            folder.write_text("now a file")
            folder.unlink()

    lab.write("a", "one")
    churning = threading.Thread(target=churn)
    churning.start()
    try:
        for _ in range(100):
            lab.before()
            lab.after()
    finally:
        stop.set()
        churning.join()
    assert paths_of(lab.call("rm a")) == ["a"]


def test_a_restore_that_was_cut_off_is_completed_by_another(lab: Lab) -> None:
    """Cut off at every step: a child process stops itself dead after so many changes of the file system."""
    for number in range(3):
        lab.write(f"d/f{number}", f"{number}", 0o640)
    lab.write("typed", "a file")
    lab.write("locked/in", "in")
    (lab.workspace / "locked").chmod(0o555)
    (lab.workspace / "d").chmod(0o711)
    first = lab.picture()
    changes = lab.call(
        "rm -r d; rm typed; mkdir -p typed/deep; echo > typed/deep/x; rm -rf locked; echo > locked; >n; chmod 600 n"
    )
    second = lab.picture()
    for steps in range(60):
        done = dying_after(steps, lambda: lab.restore(changes))
        assert lab.restore(changes).refused == (), steps
        assert lab.picture() == first, steps
        again = dying_after(steps, lambda: lab.restore(changes, "after"))
        assert lab.restore(changes, "after").refused == (), steps
        assert lab.picture() == second, steps
        if done and again:
            return
    raise AssertionError("the restore has more steps than were cut")


def dying_after(steps: int, act: Callable[[], object]) -> bool:
    """Run in a child that dies at its next change of the file system after so many; whether it came to the end."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left = steps

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            if left <= 0:
                os._exit(9)
            left -= 1
            return real(*arguments, **options)

        setattr(os, name, call)

    for name in ("rename", "unlink", "rmdir", "mkdir", "utime", "fchmod", "write", "symlink", "link"):
        counted(name)
    act()
    os._exit(0)


def test_what_a_crash_left_beside_a_file_is_replaced(lab: Lab) -> None:
    lab.write("a", "one")
    lab.write("b", "one")
    changes = lab.call("echo two > a; rm b")
    dying_after(3, lambda: lab.restore(changes))
    assert any(path.startswith(TEMPORARY) for path in lab.picture())
    lab.restore(changes)
    assert sorted(lab.picture()) == ["a", "b"]


def test_a_state_of_the_far_future_or_past_is_kept(lab: Lab) -> None:
    for name, moment in (("past", -(10**18)), ("future", 2**33 * 10**9), ("zero", 0)):
        file = lab.write(name, "one")
        os.utime(file, ns=(moment, moment))
    first = lab.picture()
    changes = lab.call("rm past future zero")
    lab.restore(changes)
    assert lab.picture() == first


def test_set_user_id_and_sticky_bits_come_back(lab: Lab) -> None:
    lab.write("a", "one", 0o4755)
    lab.do("mkdir d; chmod 3775 d")
    first = lab.picture()
    changes = lab.call("rm -r a d")
    lab.restore(changes)
    assert lab.picture() == first


def as_nobody(act: Callable[[Lab], None], limits: UndoLimits | None = None) -> None:
    """Run in a child without rights: root is refused nothing."""
    if os.geteuid() != 0:
        pytest.skip("root alone can become somebody else and clean up behind him")
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, 65534, 65534)
        child = os.fork()
        if not child:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                act(Lab(Path(name), limits))
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the child must not come back into the test
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


FORBIDDEN = {
    "read-only folder removed": "chmod -R 755 ro; rm -r ro",
    "nested read-only folders": "chmod -R u+w ro; rm -rf ro/deep; echo > ro/x; chmod 501 ro",
    "file closed": "chmod 000 open/a",
    "file written and closed": "echo more >> open/a; chmod 000 open/a",
    "closed file removed": "rm -f closed",
    "closed file replaced": "rm -f closed; echo open > closed",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_an_ordinary_user_gets_back_what_is_closed_to_him(lab: Lab, name: str) -> None:
    def act(lab: Lab) -> None:
        lab.write("ro/a", "one", 0o444)
        lab.write("ro/deep/b", "two", 0o400)
        lab.write("open/a", "three")
        lab.write("closed", "four")
        (lab.workspace / "ro/deep").chmod(0o500)
        (lab.workspace / "ro").chmod(0o555)
        first = visible(lab)
        (lab.workspace / "closed").chmod(0)
        lab.before()
        lab.do(FORBIDDEN[name])
        changes = lab.after()
        restored = lab.restore(changes)
        assert not restored.refused, restored
        assert (lab.workspace / "closed").stat().st_mode & 0o777 == 0
        assert visible(lab) == first
        restored = lab.restore(changes, "after")
        assert not restored.refused, restored
        assert not lab.restore(changes).refused
        assert visible(lab) == first

    as_nobody(act)


def visible(lab: Lab) -> object:
    """The picture, with the closed file opened for the look."""
    closed = lab.workspace / "closed"
    mode = closed.stat().st_mode & 0o777
    closed.chmod(0o644)
    try:
        return lab.picture()
    finally:
        closed.chmod(mode)


def test_a_folder_that_cannot_be_read_is_said_and_what_is_in_it_left_alone(lab: Lab) -> None:
    def act(lab: Lab) -> None:
        lab.write("shut/a", "one")
        (lab.workspace / "shut").chmod(0)
        assert [refusal.path for refusal in lab.before()] == ["shut"]
        assert lab.after() == []
        (lab.workspace / "shut").chmod(0o700)
        assert [change.path for change in lab.after()] == ["shut"]

    as_nobody(act)


def test_a_folder_that_a_call_closed_is_opened_again_and_its_unseen_changes_are_told(lab: Lab) -> None:
    def act(lab: Lab) -> None:
        lab.write("d/a", "one")
        restored = lab.restore(lab.call("rm d/a; chmod 000 d"))
        assert "its contents were not kept" in reasons_of(restored)["d"]
        assert (lab.workspace / "d").stat().st_mode & 0o777 == 0o755

    as_nobody(act)


def test_a_change_of_nothing_is_nothing(lab: Lab) -> None:
    same = PathState("file", 0o644, "0" * 64, 1, 1)
    assert lab.restore([Change("a", same, same)]).refused == ()
    assert lab.restore([]).paths == ()
