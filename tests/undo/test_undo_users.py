"""What the user did is never touched, and is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from undo_kit import Lab, paths_of, reasons_of

from lmagent.core.changes import Change


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_file_that_the_user_changed_since_is_kept(lab: Lab) -> None:
    lab.write("a", "one")
    lab.write("b", "one")
    changes = lab.call("echo two > a; echo two > b")
    lab.write("a", "mine")
    restored = lab.restore(changes)
    assert restored.paths == ("b",)
    assert "by you or another program" in reasons_of(restored)["a"]
    assert (lab.read("a"), lab.read("b")) == ("mine", "one")


def test_a_same_sized_change_of_the_user_is_noticed_though_its_time_was_put_back(lab: Lab) -> None:
    file = lab.write("a", "one")
    changes = lab.call("echo two > a")
    found = file.stat()
    file.write_text("TWO\n")
    os.utime(file, ns=(found.st_mtime_ns, found.st_mtime_ns))
    assert list(reasons_of(lab.restore(changes))) == ["a"]
    assert lab.read("a") == "TWO\n"


def test_a_file_that_the_user_only_touched_is_restored(lab: Lab) -> None:
    lab.write("a", "one")
    first = lab.picture()
    changes = lab.call("echo two > a")
    os.utime(lab.workspace / "a")
    assert not lab.restore(changes).refused
    assert lab.picture() == first


def test_a_mode_that_the_user_changed_since_is_kept(lab: Lab) -> None:
    lab.write("a", "one")
    changes = lab.call("echo two > a")
    (lab.workspace / "a").chmod(0o600)
    assert list(reasons_of(lab.restore(changes))) == ["a"]


def test_a_link_that_the_user_pointed_elsewhere_is_kept(lab: Lab) -> None:
    (lab.workspace / "l").symlink_to("one")
    changes = lab.call("ln -sfn two l")
    lab.do("ln -sfn three l")
    assert list(reasons_of(lab.restore(changes))) == ["l"]
    assert os.readlink(lab.workspace / "l") == "three"


def test_what_the_user_does_between_two_calls_is_nobody_s_change(lab: Lab) -> None:
    lab.write("a", "one")
    assert paths_of(lab.call("echo two > b")) == ["b"]
    lab.write("a", "mine")
    lab.write("c", "mine")
    assert paths_of(lab.call("echo three > b")) == ["b"]


def test_what_the_user_did_between_two_changes_of_one_file_is_kept(lab: Lab) -> None:
    lab.write("a", "one")
    changes = lab.call("echo two > a")
    lab.write("a", "mine")
    changes += lab.call("echo four >> a")
    restored = lab.restore(changes)
    assert lab.read("a") == "mine"
    assert restored.paths == ("a",)
    assert "between two changes" in reasons_of(restored)["a"]


def test_redo_stops_where_the_user_came_in_between(lab: Lab) -> None:
    lab.write("a", "one")
    changes = lab.call("echo two > a")
    lab.write("a", "mine")
    changes += lab.call("echo four >> a")
    lab.write("a", "one")
    restored = lab.restore(changes, "after")
    assert lab.read("a") == "two\n"
    assert "a" in reasons_of(restored)


def test_a_file_that_the_user_put_into_a_new_folder_is_kept_with_the_folder(lab: Lab) -> None:
    changes = lab.call("mkdir -p new/inner; echo x > new/inner/x; echo y > new/y")
    lab.write("new/mine", "mine")
    restored = lab.restore(changes)
    assert sorted(lab.picture()) == ["new", "new/mine"]
    assert reasons_of(restored) == {"new": "the folder holds something that is kept"}


def test_a_file_is_not_put_where_the_user_put_another(lab: Lab) -> None:
    lab.write("d/a", "one")
    changes = lab.call("rm -r d")
    lab.write("d", "mine")
    assert list(reasons_of(lab.restore(changes))) == ["d", "d/a"]
    assert lab.read("d") == "mine"


def test_a_folder_that_the_user_made_again_is_filled(lab: Lab) -> None:
    lab.write("d/a", "one")
    lab.write("d/b", "one")
    changes = lab.call("rm -r d")
    lab.write("d/b", "mine")
    restored = lab.restore(changes)
    assert lab.read("d/a") == "one"
    assert lab.read("d/b") == "mine"
    assert list(reasons_of(restored)) == ["d/b"]


def test_a_file_is_not_put_into_a_folder_that_the_user_removed(lab: Lab) -> None:
    lab.write("d/a", "one")
    changes = lab.call("rm d/a")
    lab.do("rmdir d")
    assert reasons_of(lab.restore(changes)) == {"d/a": "the folder that it was in is gone"}


def test_a_file_that_the_user_removed_is_not_put_back(lab: Lab) -> None:
    lab.write("a", "one")
    changes = lab.call("echo two > a")
    lab.do("rm a")
    assert list(reasons_of(lab.restore(changes))) == ["a"]
    assert lab.picture() == {}


def test_a_new_file_that_the_user_removed_himself_counts_as_done(lab: Lab) -> None:
    changes = lab.call("echo x > a")
    lab.do("rm a")
    restored = lab.restore(changes)
    assert restored.paths == ("a",)
    assert not restored.refused


def test_what_was_made_and_removed_again_leaves_a_later_file_of_the_user_alone(lab: Lab) -> None:
    changes = lab.call("echo x > a") + lab.call("rm a")
    lab.write("a", "mine")
    restored = lab.restore(changes)
    assert restored.refused == restored.paths == ()
    assert lab.read("a") == "mine"


def test_only_what_a_call_changed_is_listed_in_path_order(lab: Lab) -> None:
    lab.write("z", "one")
    lab.write("same", "one")
    changes = lab.call("echo two > z; mkdir m; echo x > m/n; cat same > /dev/null; cp same copy; rm copy")
    assert paths_of(changes) == ["m", "m/n", "z"]
    assert changes[0] == Change("m", None, changes[0].after)


def test_a_call_that_changes_nothing_has_no_changes(lab: Lab) -> None:
    lab.write("a", "one")
    assert lab.call("cat a; mv a b; mv b a") == []


def test_undo_n_calls_one_after_the_other(lab: Lab) -> None:
    pictures, calls = [], []
    lab.write("a", "0")
    for number in range(5):
        pictures.append(lab.picture())
        calls.append(lab.call(f"echo {number} >> a; mkdir d{number}; echo x > d{number}/x; rm -rf d{number - 1}"))
    for changes, wanted in zip(reversed(calls), reversed(pictures), strict=True):
        assert not lab.restore(changes).refused
        assert lab.picture() == wanted
