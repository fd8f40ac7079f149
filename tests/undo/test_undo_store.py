"""The store: private, bounded, whole after anything that can happen to it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest
from undo_kit import Lab, paths_of, reasons_of

from lmagent.core.errors import StoreError, WorkspaceError
from lmagent.undo import UndoLimits, WorkspaceSnapshots

LINKS = UndoLimits(small_copies=0)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def objects(lab: Lab) -> list[Path]:
    return sorted(path for path in (lab.store / "objects").rglob("*") if path.is_file())


def links(lab: Lab) -> list[Path]:
    return sorted(path for path in (lab.store / "links").rglob("*") if path.is_file())


def collect(lab: Lab, keep: set[str] | None = None) -> int:
    return anyio.run(lab.snapshots.collect, keep or set())


def test_the_store_is_made_on_first_use_for_the_user_alone(lab: Lab) -> None:
    assert not lab.store.exists()
    lab.write("a", "secret", 0o644)
    lab.before()
    assert lab.store.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in objects(lab)] == [0o600]


def test_equal_contents_are_kept_once(lab: Lab) -> None:
    for number in range(5):
        lab.write(f"f{number}", "the same")
    lab.before()
    lab.before()
    assert len(objects(lab)) == 1


def test_a_content_is_found_by_its_hash(lab: Lab) -> None:
    lab.write("a", "one")
    changes = lab.call("echo two > a")
    assert changes[0].before is not None
    assert changes[0].before.sha256 == hashlib.sha256(b"one").hexdigest()
    assert lab.snapshots.content(changes[0].before.sha256) == b"one"
    assert lab.snapshots.content("0" * 64) is None


def test_a_content_that_is_kept_by_a_link_is_found_by_its_id(tmp_path: Path) -> None:
    lab = Lab(tmp_path, LINKS)
    lab.write("node_modules/a", "one")
    changes = lab.call("rm node_modules/a")
    assert changes[0].before is not None
    assert changes[0].before.sha256.startswith("link:")
    assert lab.snapshots.content(changes[0].before.sha256) == b"one"


def test_a_damaged_content_is_refused_and_never_written(lab: Lab) -> None:
    lab.write("a", "one")
    changes = lab.call("rm a")
    objects(lab)[0].write_text("two")
    assert reasons_of(lab.restore(changes)) == {"a": "its kept content is damaged"}
    assert lab.picture() == {}
    assert lab.snapshots.content(changes[0].before.sha256) is None  # type: ignore[union-attr]


def test_a_torn_content_is_found_when_the_store_is_opened_and_kept_again(lab: Lab) -> None:
    lab.write("a", "one")
    lab.before()
    objects(lab)[0].write_text("")
    lab.snapshots = lab.another()
    changes = lab.call("rm a")
    assert not lab.restore(changes).refused
    assert lab.read("a") == "one"


def test_a_content_that_is_gone_is_kept_again(lab: Lab) -> None:
    lab.write("a", "one")
    lab.write("node_modules/big", b"x" * 100_000)
    lab.before()
    for path in [*objects(lab), *links(lab)]:
        path.unlink()
    lab.snapshots = lab.another()
    changes = lab.call("rm -r a node_modules")
    assert not lab.restore(changes).refused


def test_a_content_that_is_gone_for_good_is_refused(lab: Lab) -> None:
    lab.write("a", "one")
    changes = lab.call("rm a")
    objects(lab)[0].unlink()
    assert "kept" in reasons_of(lab.restore(changes))["a"]


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b"torn", None])
def test_a_damaged_manifest_is_made_anew(lab: Lab, damage: bytes | None) -> None:
    lab.write("a", "one")
    lab.before()
    manifest = lab.store / "manifest"
    manifest.write_bytes(manifest.read_bytes()[:-3] if damage is None else damage)
    lab.snapshots = lab.another()
    changes = lab.call("rm a")
    assert paths_of(changes) == ["a"]
    assert not lab.restore(changes).refused


def test_an_unchanged_file_is_not_read_again(lab: Lab) -> None:
    lab.write("a", "one")
    time.sleep(0.05)
    lab.before()
    objects(lab)[0].unlink()  # whoever read the file would put it back
    lab.before()
    assert objects(lab) == []


def test_a_file_that_was_recorded_in_the_instant_of_its_change_is_read_again(lab: Lab) -> None:
    """The racy-git problem: the second write may leave size and all times as they were."""
    for number in range(50):
        file = lab.workspace / "a"
        file.write_text(f"{number:04}-one")
        lab.before()
        file.write_text(f"{number:04}-two")
        found = file.stat()
        changes = lab.after()
        assert paths_of(changes) == ["a"], (number, found)


def test_a_change_in_place_of_a_linked_file_is_said_to_be_lost(tmp_path: Path) -> None:
    lab = Lab(tmp_path, LINKS)
    lab.write("node_modules/a", "one")
    changes = lab.call("echo two >> node_modules/a")
    assert "in place" in changes[0].lost
    restored = lab.restore(changes)
    assert reasons_of(restored) == {"node_modules/a": changes[0].lost}
    assert lab.read("node_modules/a") == "onetwo\n"
    assert lab.call("rm node_modules/a")[0].lost == ""


def test_restoring_never_writes_through_a_stored_link(tmp_path: Path) -> None:
    lab = Lab(tmp_path, LINKS)
    lab.write("node_modules/a", "one")
    changes = lab.call("rm node_modules/a")
    lab.restore(changes)
    lab.call("echo two >> node_modules/a")
    lab.do("rm node_modules/a")
    assert "a" in reasons_of(lab.restore(changes)) or lab.snapshots.content(changes[0].before.sha256) is None  # type: ignore[union-attr]


def test_names_of_one_file_all_get_their_content_back(lab: Lab) -> None:
    one = lab.write("one", "x")
    os.link(one, lab.workspace / "two")
    first = lab.picture()
    changes = lab.call("echo more >> one; chmod 600 two")
    assert paths_of(changes) == ["one", "two"]
    assert not lab.restore(changes).refused
    assert lab.picture() == first


def test_a_mode_is_put_back_without_touching_a_name_outside(lab: Lab) -> None:
    outside = lab.workspace.parent / "outside"
    os.link(lab.write("a", "one"), outside)
    changes = lab.call("chmod 600 a")
    lab.restore(changes)
    assert (lab.workspace / "a").stat().st_mode & 0o777 == 0o644
    assert outside.stat().st_mode & 0o777 == 0o600


def test_a_name_of_the_same_file_outside_the_workspace_is_left_alone(lab: Lab) -> None:
    outside = lab.workspace.parent / "outside"
    os.link(lab.write("a", "one"), outside)
    changes = lab.call("echo two >> a")
    lab.restore(changes)
    assert lab.read("a") == "one"
    assert outside.read_text() == "onetwo\n"


def test_large_files_are_linked_and_come_back(tmp_path: Path) -> None:
    lab = Lab(tmp_path, UndoLimits(copy_max=1000))
    lab.write("big", b"x" * 5000)
    first = lab.picture()
    changes = lab.call("rm big")
    assert objects(lab) == []
    assert not lab.restore(changes).refused
    assert lab.picture() == first


def test_collecting_drops_the_oldest_contents_above_the_limit(lab: Lab) -> None:
    changes = []
    for number in range(8):
        lab.write("a", bytes([number]) * 8192)
        changes += lab.call(lambda number=number: lab.write("a", bytes([number + 100]) * 8192))
        time.sleep(0.02)
    lab.snapshots.close()
    lab.limits = UndoLimits(total_max=3 * 8192)
    lab.snapshots = lab.another()
    assert len(objects(lab)) == 16
    kept, last = changes[0].before.sha256, changes[-1]
    assert collect(lab, {kept}) == 13 * 8192
    assert lab.snapshots.content(kept) is not None
    assert lab.snapshots.content(last.after.sha256) is not None, "what the workspace holds stays"
    assert lab.snapshots.content(last.before.sha256) is not None, "the oldest go first"
    assert len(objects(lab)) == 3


def test_below_the_limit_nothing_is_dropped(lab: Lab) -> None:
    lab.write("a", "one")
    changes = lab.call("echo two > a")
    lab.call("rm a")
    assert collect(lab) == 0
    assert lab.snapshots.content(changes[0].before.sha256) == b"one"  # type: ignore[union-attr]


def test_a_link_to_a_large_file_that_nobody_can_ask_for_is_dropped(tmp_path: Path) -> None:
    lab = Lab(tmp_path, UndoLimits(copy_max=1000, total_max=10_000))
    lab.write("big", b"x" * 50_000)
    changes = lab.call("rm big")
    lab.before()
    assert collect(lab, {changes[0].before.sha256}) == 0  # type: ignore[union-attr]
    assert collect(lab) >= 50_000
    assert links(lab) == []
    assert list(reasons_of(lab.restore(changes))) == ["big"]


def test_half_written_files_of_a_crash_are_swept_away(lab: Lab) -> None:
    lab.before()
    (lab.store / "tmp").mkdir(exist_ok=True)
    (lab.store / "tmp" / "abc").write_text("half")
    (lab.store / "manifest.abc.new").write_text("half")
    assert collect(lab) == 8
    assert os.listdir(lab.store / "tmp") == []
    assert not (lab.store / "manifest.abc.new").exists()


def test_nothing_is_dropped_while_another_process_uses_the_store(tmp_path: Path) -> None:
    lab = Lab(tmp_path, UndoLimits(total_max=0))
    lab.limits = UndoLimits(total_max=1 << 30)
    lab.write("a", "one")
    script = (
        "import sys, anyio; from pathlib import Path; from lmagent.undo import WorkspaceSnapshots\n"
        "undo = WorkspaceSnapshots(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "anyio.run(undo.before); print('kept', flush=True); sys.stdin.readline()\n"
        "changes = anyio.run(undo.after); print(anyio.run(undo.restore, changes, 'before').paths)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(lab.workspace), str(lab.store)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "kept\n"
    lab.do("rm a")
    lab.before()
    assert collect(lab) == 0
    out, _ = other.communicate("go on\n", timeout=30)
    assert out == "('a',)\n"
    assert lab.read("a") == "one"
    lab.do("rm a")
    lab.before()
    assert collect(lab) > 0


def test_two_users_of_one_workspace_do_not_get_in_each_other_s_way(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for number in range(100):
        lab.write(f"f{number}", f"{number}")
    failed = list[Exception]()

    def work() -> None:
        try:
            mine = WorkspaceSnapshots(lab.workspace, lab.store)
            for _ in range(15):
                anyio.run(mine.before)
                anyio.run(mine.after)
        except Exception as error:  # noqa: BLE001 - a thread's failure is told below
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        lab.write(f"f{turn}", f"turn {turn}")
    for thread in threads:
        thread.join()
    assert not failed
    changes = lab.call("rm f*")
    assert len(changes) == 100
    assert not lab.restore(changes).refused


def test_a_cancelled_snapshot_keeps_no_state_and_the_next_is_whole(lab: Lab) -> None:
    for number in range(300):
        lab.write(f"d{number}/f", f"{number}")

    async def impatient() -> bool:
        with anyio.move_on_after(0.005) as scope:
            await lab.snapshots.before()
        return scope.cancelled_caught

    assert anyio.run(impatient)
    assert not (lab.store / "manifest").exists()
    assert not os.listdir(lab.store / "tmp") if (lab.store / "tmp").exists() else True
    assert len(lab.call("rm -r d*")) == 600


def test_a_workspace_that_is_gone_is_an_error_that_says_so(lab: Lab) -> None:
    lab.do("rmdir ../workspace")
    with pytest.raises(WorkspaceError, match="cannot be opened"):
        lab.before()


def test_a_store_that_cannot_be_made_stops_the_call(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(StoreError, match="could not be kept"):
        lab.before()
