"""Listing, naming and deleting sessions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from store_kit import a_session, created, path_of, run, store_in, write_all

from lmagent.core.errors import SessionBusy, SessionNotFound

OLD, MIDDLE, NEW = "20250101_000000_aaaaaa", "20250601_120000_bbbbbb", "20260101_000000_aaaccc"


def test_sessions_are_listed_oldest_first_with_other_ids_at_the_end(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert list(store.sessions()) == []
    for session in (NEW, "my-session", OLD, MIDDLE):
        a_session(store, session)
    assert list(store.sessions()) == [OLD, MIDDLE, NEW, "my-session"]


def test_what_is_no_session_is_not_listed(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, OLD)
    (store.root / "empty").mkdir()
    (store.root / "20250101_000000_ffffff.json").write_text("{}")
    (store.root / ".hidden").mkdir()
    (store.root / "link").symlink_to(store.root / OLD)
    assert list(store.sessions()) == [OLD]


def test_a_unique_prefix_names_a_session(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for session in (OLD, MIDDLE, NEW):
        a_session(store, session)
    assert store.resolve(OLD) == OLD
    assert store.resolve("2026") == NEW
    with pytest.raises(SessionNotFound, match=f"2 sessions begin with 2025: {MIDDLE}, {OLD}"):
        store.resolve("2025")
    with pytest.raises(SessionNotFound, match=f"no session 1999; the newest are {NEW}"):
        store.resolve("1999")
    with pytest.raises(SessionNotFound):
        store.resolve("")


def test_last_names_the_session_that_was_written_to_last(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with pytest.raises(SessionNotFound, match="has no sessions"):
        store.resolve("last")
    assert store.latest() is None
    for session in (OLD, NEW):
        a_session(store, session)
    os.utime(path_of(store, NEW), (1_740_000_000, 1_740_000_000))
    assert store.latest() == OLD
    assert store.resolve("last") == store.resolve("latest") == OLD


def test_a_deleted_session_is_gone_with_its_blobs(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(OLD)
    write_all(log, [created(OLD)])
    run(log.put_blob, b"big")
    with pytest.raises(SessionBusy):
        store.delete(OLD)
    log.close()
    store.delete(OLD)
    assert list(store.sessions()) == []
    assert not (store.root / OLD).exists()
    with pytest.raises(SessionNotFound):
        store.delete(OLD)


def test_a_session_that_takes_the_name_of_a_deleted_one_begins_at_one(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for _ in range(2):
        a_session(store, OLD)
        assert next(event.seq for event in store.read(OLD)) == 1
        store.delete(OLD)


def test_a_pipe_in_the_place_of_a_lock_holds_nobody_up(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, OLD)
    lock = store.root / OLD / "lock"
    lock.unlink()
    os.mkfifo(lock)
    other = os.open(lock, os.O_RDWR)  # as who holds it has it open
    assert not store.is_running(OLD)
    store.delete(OLD)
    log = store.create(OLD)
    assert write_all(log, [created(OLD)])[0].seq == 1
    log.close()
    os.close(other)
