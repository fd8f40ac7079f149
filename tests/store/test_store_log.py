"""The log: what is appended is there, whole, in order, and nowhere else."""

from __future__ import annotations

import stat
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
from store_kit import NOW, SESSION, a_session, a_turn, created, path_of, run, store_in, write_all

from lmagent.core import events as ev
from lmagent.core.errors import SessionNotFound, StoreError
from lmagent.core.messages import user
from lmagent.store.jsonl import JsonlLog


def test_creating_a_session_touches_nothing_until_the_first_append(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(SESSION)
    assert list(tmp_path.iterdir()) == []
    assert list(log.events()) == []
    assert list(log.damage) == []
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_events_come_back_as_they_were_appended(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    written = a_session(store)
    log = store.open(SESSION)
    assert list(log.events()) == written
    assert list(log.events()) == written  # asked again, the file is read again
    assert list(log.damage) == []
    log.close()
    assert list(store.read(SESSION)) == written
    assert list(store.read(SESSION, after=5)) == written[5:]


def test_an_append_stamps_id_seq_and_time(tmp_path: Path) -> None:
    written = a_session(store_in(tmp_path))
    assert [event.seq for event in written] == list(range(1, 14))
    assert len({event.id for event in written}) == 13
    assert written[0].ts == NOW + 1


def test_an_imported_event_keeps_its_id_and_time(tmp_path: Path) -> None:
    log = store_in(tmp_path).create(SESSION)
    (stored,) = write_all(log, [ev.SessionRenamed(title="old", id="theirs", ts=5.0)])
    log.close()
    assert (stored.id, stored.ts, stored.seq) == ("theirs", 5.0, 1)


def test_seq_goes_on_where_the_log_ended(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    log = store.open(SESSION)
    (stored,) = write_all(log, [ev.SessionRenamed(title="new")])
    log.close()
    assert stored.seq == 14
    assert list(store.read(SESSION))[-1] == stored


def test_everything_is_private_and_kept_out_of_git(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(SESSION)
    write_all(log, [created()])
    sha256 = run(log.put_blob, b"big")
    log.close()
    home = tmp_path / ".lmagent"
    for folder in (home, store.root, store.root / SESSION, store.root / SESSION / "blobs"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("events.jsonl", "lock", f"blobs/{sha256}"):
        assert stat.S_IMODE((store.root / SESSION / name).stat().st_mode) == 0o600
    assert (home / ".gitignore").read_text() == "*\n"


def test_a_gitignore_of_the_user_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".lmagent").mkdir()
    (tmp_path / ".lmagent" / ".gitignore").write_text("mine")
    a_session(store_in(tmp_path))
    assert (tmp_path / ".lmagent" / ".gitignore").read_text() == "mine"


def test_tasks_that_append_at_once_leave_file_order_and_seq_in_step(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(SESSION)

    async def many() -> None:
        await log.append(created())
        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(one, number)

    async def one(number: int) -> None:
        await anyio.lowlevel.checkpoint()
        await log.append(ev.SessionRenamed(title=str(number)), sync=number % 2 == 0)

    run(many)
    log.close()
    assert [event.seq for event in store.read(SESSION)] == list(range(1, 42))
    lines = path_of(store).read_bytes().splitlines()
    assert [msgspec.json.decode(line)["seq"] for line in lines] == list(range(1, 42))


def test_a_torn_last_line_is_cut_off_and_reported(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    written = a_session(store)
    path = path_of(store)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"notice","level":"in')
    assert list(store.read(SESSION)) == written
    log = store.open(SESSION)
    (damage,) = log.damage
    assert (damage.line, damage.torn, damage.size) == (14, True, 28)
    assert list(log.events()) == written
    (stored,) = write_all(log, [ev.SessionRenamed(title="on")])
    log.close()
    assert stored.seq == 14
    assert path.read_bytes().startswith(whole)
    assert list(store.read(SESSION)) == [*written, stored]


def test_a_last_line_of_rubbish_with_a_line_end_is_cut_off_too(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    path = path_of(store)
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 500 + b"\n")
    log = store.open(SESSION)
    log.close()
    assert [(item.torn, item.size) for item in log.damage] == [(True, 501)]
    assert path.read_bytes() == whole


def test_a_whole_last_event_without_its_line_end_is_kept(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    written = a_session(store)
    path = path_of(store)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    log = store.open(SESSION)
    assert list(log.events()) == written
    assert list(log.damage) == []
    write_all(log, [ev.SessionRenamed(title="on")])
    log.close()
    assert len(list(store.read(SESSION))) == 14


def test_a_damaged_line_in_the_middle_is_skipped_reported_and_kept_in_the_file(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    written = a_session(store)
    path = path_of(store)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = b"{broken}\n"
    path.write_bytes(b"".join(lines))
    log = store.open(SESSION)
    assert [event.seq for event in log.events()] == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13]
    assert [(item.line, item.torn, item.size) for item in log.damage] == [(5, False, 9)]
    assert list(store.read(SESSION)) == [event for event in written if event.seq != 5]
    (stored,) = write_all(log, [ev.SessionRenamed(title="on")])
    log.close()
    assert stored.seq == 14
    assert b"{broken}\n" in path.read_bytes()


def test_events_of_a_newer_version_are_skipped_reported_and_kept(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    path = path_of(store)
    newer = [
        b'{"type":"todo.changed","v":1,"id":"x","seq":14,"ts":1.0,"turn":0}\n',
        b'{"type":"session.renamed","title":"t","v":2,"id":"y","seq":15,"ts":1.0,"turn":0}\n',
    ]
    path.write_bytes(path.read_bytes() + b"".join(newer))
    before = path.read_bytes()
    log = store.open(SESSION)
    assert [item.line for item in log.damage] == [14, 15]
    assert all("written by a newer version" in item.reason and not item.torn for item in log.damage)
    (stored,) = write_all(log, [ev.SessionRenamed(title="on")])
    log.close()
    assert stored.seq == 16
    assert path.read_bytes().startswith(before)


def test_a_repeated_line_is_reported_and_skipped(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    written = a_session(store)
    path = path_of(store)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:7], lines[2], *lines[7:], lines[12]]))
    log = store.open(SESSION)
    log.close()
    assert list(log.events()) == written
    assert [item.line for item in log.damage] == [8, 15]
    assert all("does not follow" in item.reason for item in log.damage)


def test_one_absurd_seq_does_not_cost_the_events_behind_it(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    path = path_of(store)
    path.write_bytes(path.read_bytes().replace(b'"seq":5,', b'"seq":9995,'))
    log = store.open(SESSION)
    assert [event.seq for event in log.events()] == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13]
    assert [item.line for item in log.damage] == [5]
    (stored,) = write_all(log, [ev.SessionRenamed(title="on")])
    log.close()
    assert stored.seq == 14


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_log_opens_and_says_so(tmp_path: Path, content: bytes) -> None:
    store = store_in(tmp_path)
    a_session(store)
    path_of(store).write_bytes(content)
    log = store.open(SESSION)
    assert list(log.events()) == []
    assert "holds no event" in log.damage[0].reason
    (stored,) = write_all(log, [created()])
    log.close()
    assert stored.seq == 1
    assert list(store.read(SESSION)) == [stored]


def test_a_log_without_its_beginning_opens_and_says_so(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    written = a_session(store)
    path = path_of(store)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    log = store.open(SESSION)
    log.close()
    assert list(log.events()) == written[1:]
    assert "does not begin with session.created" in log.damage[0].reason


def test_half_characters_and_odd_values_do_not_stop_the_log(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(SESSION)
    odd = {"path": "caf\udce9", "where": Path("a"), "n": [float("nan"), {1: "\ud800"}]}
    event = ev.ToolFinished(call_id="c", tool="read", status="ok", content="x\udcff", data=odd)
    _, stored = write_all(log, [created(), event])
    log.close()
    assert list(store.read(SESSION))[1] == stored
    assert isinstance(stored, ev.ToolFinished)
    assert "\udcff" not in stored.content
    assert stored.data["where"] == "a"


def test_a_closed_log_takes_nothing_more(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(SESSION)
    write_all(log, [created()])
    log.close()
    log.close()
    with pytest.raises(StoreError, match="closed"):
        write_all(log, a_turn())
    assert len(list(store.read(SESSION))) == 1


def test_a_log_that_was_deleted_under_the_writer_is_noticed_at_the_next_sync(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    log = store.create(SESSION)
    write_all(log, [created()])
    path_of(store).unlink()

    async def synced() -> None:
        await log.append(ev.InputReceived(message=user("hi"), delivery="submit"), sync=True)

    with pytest.raises(StoreError, match="deleted while the session was open"):
        run(synced)
    log.close()


def test_a_link_in_the_place_of_a_log_is_refused(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    elsewhere = tmp_path / "elsewhere.txt"
    path_of(store).rename(elsewhere)
    path_of(store).symlink_to(elsewhere)
    with pytest.raises(StoreError):
        store.open(SESSION)


def test_opening_an_unknown_session_says_so(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for name in ("nothing", "../etc", ""):
        with pytest.raises(SessionNotFound, match="there is no session"):
            store.open(name)
        with pytest.raises(SessionNotFound):
            store.read(name)


def test_a_session_id_is_used_once(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    late = store.create(SESSION)
    a_session(store)
    with pytest.raises(StoreError, match="already"):
        store.create(SESSION)
    with pytest.raises(StoreError, match="already"):
        write_all(late, [created()])
    with pytest.raises(StoreError, match="cannot be the id"):
        store.create("../evil")
    assert isinstance(late, JsonlLog)
    assert len(list(store.read(SESSION))) == 13
