"""The lock: one owner, a dead one counts for nothing, also where the file system knows no locks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from lmagent.core.errors import SessionBusy, StoreError
from lmagent.store.lock import Owner, hold, is_alive, is_held, locked, read_owner, this_process


def _no_kernel_locks(fd: int) -> bool:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def _dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_one_process_cannot_take_a_lock_twice(tmp_path: Path) -> None:
    lock = hold(tmp_path / "lock", "s")
    with pytest.raises(SessionBusy, match="already open in this process"):
        hold(tmp_path / "lock", "s")
    lock.release()
    lock.release()
    hold(tmp_path / "lock", "s").release()


def test_a_lock_that_is_held_is_waited_for_so_long_and_then_refused_with_the_callers_reason(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with (
        locked(path, "a reflection is running", patience=0),
        pytest.raises(StoreError, match="a reflection is running"),
        locked(path, "a reflection is running", patience=0),
    ):
        pass
    holder = hold(path, "s")
    with ThreadPoolExecutor() as beside:
        beside.submit(lambda: (time.sleep(0.2), holder.release()))
        with locked(path, "it is busy"):
            assert is_held(path)
    assert not is_held(path)


def test_the_lock_file_names_its_owner_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    lock = hold(path, "s")
    owner = read_owner(path)
    assert owner is not None
    assert owner == this_process()
    assert owner.pid == os.getpid()
    assert is_held(path)
    lock.release()
    assert read_owner(path) is None
    assert not is_held(path)


def test_the_lock_is_closed_on_exec(tmp_path: Path) -> None:
    lock = hold(tmp_path / "lock", "s")
    assert not os.get_inheritable(lock.fd)
    lock.release()


def test_the_note_of_a_dead_owner_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(msgspec.json.encode(Owner(_dead_pid(), 1, this_process().host)))
    assert not is_held(path)
    hold(path, "s").release()
    path.write_bytes(b"rubbish")
    hold(path, "s").release()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_another_process_with_the_number_of_a_dead_owner_is_not_taken_for_it() -> None:
    own = this_process()
    assert is_alive(own)
    assert not is_alive(Owner(own.pid, own.started - 1, own.host))


def test_without_kernel_locks_a_living_owner_keeps_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = hold(path, "s", kernel_lock=_no_kernel_locks)
    with pytest.raises(SessionBusy):
        hold(path, "s", kernel_lock=_no_kernel_locks)
    lock.release()
    hold(path, "s", kernel_lock=_no_kernel_locks).release()


def test_without_kernel_locks_a_dead_owner_is_noticed_too(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(msgspec.json.encode(Owner(_dead_pid(), 1, this_process().host)))
    hold(path, "s", kernel_lock=_no_kernel_locks).release()


def test_an_owner_on_another_machine_is_named_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(msgspec.json.encode(Owner(4711, 1, "elsewhere")))
    with pytest.raises(SessionBusy, match="process 4711 on elsewhere"):
        hold(path, "s", kernel_lock=_no_kernel_locks)
    assert not is_held(path)  # here the kernel knows: nobody has it
