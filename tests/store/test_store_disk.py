"""Full disks, short writes, read-only file systems: what cannot be recorded is said, and nothing is half-written."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from store_kit import SESSION, a_session, created, finish, path_of, run, start, store_in, write_all

from lmagent.core import events as ev
from lmagent.core.errors import StoreError
from lmagent.store.jsonl import JsonlLog


@contextmanager
def _small_disk(folder: Path, size: str = "64k") -> Iterator[Path]:
    """A file system of its own."""
    folder.mkdir()
    made = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)],
            check=False,
            capture_output=True,
        ).returncode
    )
    if not made:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def _until_full(log: JsonlLog) -> tuple[list[ev.DurableEvent], StoreError]:
    """Append until the disk is full."""
    written: list[ev.DurableEvent] = []
    while True:
        try:
            written += write_all(log, [ev.ToolFinished(call_id="c", tool="t", status="ok", content="x" * 5000)])
        except StoreError as failure:
            return written, failure


def test_a_full_disk_is_an_error_and_leaves_the_log_whole(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk") as disk:
        store = store_in(disk)
        log = store.create(SESSION)
        acknowledged = write_all(log, [created()])
        more, failure = _until_full(log)
        acknowledged += more
        assert "the disk is full" in failure.message
        assert "kB free" in failure.message
        assert str(log.path) in failure.message
        assert "free some space" in failure.fix
        with pytest.raises(StoreError, match="nothing more is recorded"):
            write_all(log, [ev.SessionRenamed(title="small")])
        assert list(store.read(SESSION)) == acknowledged
        assert path_of(store).read_bytes().endswith(b"\n")
        with pytest.raises(StoreError, match="the disk is full"):
            run(log.put_blob, b"x" * 70_000)
        assert list((store.root / SESSION / "blobs").glob("*")) == []
        log.close()
        again = store.open(SESSION)
        assert list(again.events()) == acknowledged
        assert list(again.damage) == []
        again.close()


def test_a_disk_that_is_full_from_the_start_leaves_no_empty_session(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk") as disk:
        with (disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(b"x" * 4096)
        store = store_in(disk)
        log = store.create(SESSION)
        with pytest.raises(StoreError, match="the disk is full"):
            write_all(log, [created()])
        log.close()
        assert list(store.sessions()) == []


def test_a_read_only_workspace_can_be_read_and_says_why_it_cannot_be_written(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk", "1m") as disk:
        store = store_in(disk)
        written = a_session(store)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert list(store.read(SESSION)) == written
        with pytest.raises(StoreError, match="read-only"):
            store.open(SESSION)
        with pytest.raises(StoreError, match="read-only"):
            write_all(store.create("other"), [created("other")])
        with store.index() as index:
            index.refresh()
            assert [row.id for row in index.list()] == [SESSION]


def test_a_short_write_is_taken_back(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    script = """
sys.dont_write_bytecode = True  # a limited module file would be cut, and be loaded by every other test
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
async def main():
    log = store.create(session)
    n = 0
    try:
        while True:
            n += 1
            await log.append(ev.ToolFinished(call_id=str(n), tool="t", status="ok", content="x" * 700))
    except StoreError as error:
        say(n - 1, os.path.getsize(log.path), error.message)
anyio.run(main)
"""
    out, err = finish(start(script, store))
    assert err == ""
    count, size, message = out.split(" ", 2)
    assert "limit on the size of files" in message
    assert len(list(store.read(SESSION))) == int(count)
    assert int(size) == path_of(store).stat().st_size < 20_000
    assert path_of(store).read_bytes().endswith(b"\n")
