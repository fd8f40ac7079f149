"""Blobs: whole or not at all, and never wrong content under a right name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from store_kit import SESSION, created, run, store_in, write_all

from lmagent.core.errors import StoreError
from lmagent.store.blobs import Blobs


def test_a_blob_is_found_by_its_hash_and_by_a_unique_prefix(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    sha256 = blobs.put(b"content")
    assert sha256 == hashlib.sha256(b"content").hexdigest()
    assert blobs.get(sha256) == blobs.get(sha256[:8]) == blobs.get(sha256[:12].upper()) == b"content"


def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    assert blobs.put(b"content") == blobs.put(b"content")
    assert len(list((tmp_path / "blobs").iterdir())) == 1


@pytest.mark.parametrize("handle", ["", "abc", "zzzzzzzzzz", "../../../../etc/passwd", "0" * 65])
def test_what_is_no_handle_finds_nothing(tmp_path: Path, handle: str) -> None:
    blobs = Blobs(tmp_path / "blobs")
    blobs.put(b"content")
    with pytest.raises(StoreError):
        blobs.get(handle)


def test_an_ambiguous_prefix_is_refused(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    sha256 = blobs.put(b"content")
    (tmp_path / "blobs" / (sha256[:8] + "0" * 56)).write_bytes(b"other")
    with pytest.raises(StoreError, match="2 artifacts begin with"):
        blobs.get(sha256[:8])
    assert blobs.get(sha256) == b"content"


def test_a_damaged_blob_is_an_error_and_is_mended_by_the_same_content(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    sha256 = blobs.put(b"content")
    (tmp_path / "blobs" / sha256).write_bytes(b"cantent")
    with pytest.raises(StoreError, match="no longer matches"):
        blobs.get(sha256)
    blobs.put(b"content")
    assert blobs.get(sha256) == b"content"


def test_a_blob_is_on_the_disk_with_the_next_synced_event(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(SESSION)

    async def both() -> str:
        sha256 = await log.put_blob(b"content")
        await log.append(created(), sync=True)
        return sha256

    sha256 = run(both)
    assert log.get_blob(sha256) == b"content"
    log.close()
    assert store.get_blob(SESSION, sha256) == b"content"
    assert write_all(store.create("other"), [created("other")])
