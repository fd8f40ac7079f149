"""The index: what the logs say, no more, and rebuilt from them whenever it has to be."""

from __future__ import annotations

import os
import sqlite3
import stat
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest
from store_kit import SESSION, StepClock, a_session, a_turn, created, path_of, run, start, store_in, write_all

from lmagent.core import events as ev
from lmagent.core.ids import InputOrigin
from lmagent.core.messages import user
from lmagent.core.work import Parent
from lmagent.schedule.turns import unattended
from lmagent.store.index import Unattended
from lmagent.store.jsonl import JsonlStore
from lmagent.store.log import stamp
from lmagent.store.tally import SessionRow


def _rows(store: JsonlStore, search: str = "", limit: int = 20) -> list[SessionRow]:
    with store.index() as index:
        index.refresh()
        return index.list(limit, search)


def _ids(store: JsonlStore, search: str = "") -> list[str]:
    return [row.id for row in _rows(store, search)]


def test_a_row_says_what_the_log_says(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    written = a_session(store)
    (row,) = _rows(store)
    assert row == SessionRow(
        id=SESSION,
        title="what is in a.txt?",
        created=written[0].ts,
        updated=written[-1].ts,
        model="tiny-q4",
        status="done",
        turns=1,
        steps=2,
        prompt_tokens=200,
        completion_tokens=20,
        cached_tokens=180,
        parent="",
        agent="lmagent",
    )


def test_a_title_given_by_a_person_wins(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, SESSION, *a_turn(), ev.SessionRenamed(title="my title"))
    assert _rows(store)[0].title == "my title"
    a_session(store, "other", ev.SessionRenamed(title="named first"), *a_turn())
    assert {row.title for row in _rows(store)} == {"my title", "named first"}


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    with store.index() as index:
        index.refresh()
        # Rubbish over what has been read: it would show if it were read again.
        size = path_of(store).stat().st_size
        with path_of(store).open("r+b") as stream:
            stream.write(b"#" * (size - 1))
        log = store.create("unrelated")
        write_all(log, [created("unrelated")])
        log.close()
        line = ev.encode(ev.SessionRenamed(title="added", id="x", seq=14, ts=2e9)) + b"\n"
        with path_of(store).open("ab") as stream:
            stream.write(line + b'{"half')
        index.refresh()
        row = next(row for row in index.list() if row.id == SESSION)
        assert (row.title, row.turns, row.steps, row.updated) == ("added", 1, 2, 2e9)


def test_a_log_that_shrank_is_read_anew(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, SESSION, *a_turn(), *a_turn("second thing", "zebra"))
    assert _rows(store)[0].turns == 2
    assert _ids(store, "zebra") == [SESSION]
    lines = path_of(store).read_bytes().splitlines(keepends=True)
    path_of(store).write_bytes(b"".join(lines[:13]))
    assert _rows(store)[0].turns == 1
    assert _ids(store, "zebra") == []


def test_a_deleted_session_leaves_the_list_and_the_search(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    assert _ids(store, "txt") == [SESSION]
    store.delete(SESSION)
    assert _rows(store) == []
    with store.index() as index:
        assert index.list(search="txt") == []


def test_the_newest_session_comes_first_and_the_limit_holds(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for session in ("first", "second", "third"):
        a_session(store, session)
    assert _ids(store) == ["third", "second", "first"]
    assert [row.id for row in _rows(store, limit=2)] == ["third", "second"]


@pytest.mark.parametrize("limit", [1, 2])
def test_the_limit_counts_what_fits_the_search(tmp_path: Path, limit: int) -> None:
    store = store_in(tmp_path)
    a_session(store, "first", *a_turn("about ducks"))
    a_session(store, "second", *a_turn("about geese"))
    a_session(store, "third", *a_turn("about ducks"))
    assert [row.id for row in _rows(store, "ducks", limit)] == ["third", "first"][:limit]


def test_status_comes_from_the_last_turn_and_from_the_lock(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, "idle", ev.SessionRenamed(title="x"))
    a_session(store, "asked", *a_turn()[:-1], ev.TurnFinished(outcome="question"))
    a_session(store, "broken", *a_turn()[:4])
    a_session(store, "unheard", ev.InputReceived(message=user("hello"), delivery="submit"))
    log = store.create("busy")
    write_all(log, [created("busy"), *a_turn()[:4]])
    status = {row.id: row.status for row in _rows(store)}
    log.close()
    expected = {
        "idle": "idle",
        "asked": "question",
        "broken": "interrupted",
        "unheard": "interrupted",
        "busy": "running",
    }
    assert status == expected
    assert {row.id: row.status for row in _rows(store)}["busy"] == "interrupted"


@pytest.mark.crash
def test_a_running_session_of_another_process_is_shown_as_running_until_it_dies(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, SESSION, *a_turn()[:4])
    process = start("log = store.open(session)\nsay('open')\nsys.stdin.read()", store)
    assert process.stdout is not None
    process.stdout.readline()
    assert _rows(store)[0].status == "running"
    process.kill()
    process.communicate(timeout=30)
    assert _rows(store)[0].status == "interrupted"


def test_a_fork_names_its_parent(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    run(store.fork, SESSION, "copy", 8)
    row = next(row for row in _rows(store) if row.id == "copy")
    assert (row.parent, row.title, row.status) == (SESSION, "what is in a.txt?", "interrupted")


def test_search_finds_what_was_said_by_either_side(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, "one", *a_turn("Where is the café?", "At the corner of Elm Street."))
    a_session(store, "two", *a_turn("Sum the columns", "It is 42."))
    assert _ids(store, "elm street") == ["one"]
    assert _ids(store, "CAFE") == ["one"]
    assert _ids(store, "col") == ["two"]  # the beginning of a word is enough
    assert _ids(store, "columns elm") == []
    assert _ids(store, "café corner") == ["one"]  # in different messages of one session
    assert _ids(store, "sum") == ["two"]


@pytest.mark.parametrize(
    "query",
    ["what is w1?", "w1.", "don't w1", '"', "a AND (b", "NEAR(", "x*", "-", "", "  ", "col:umn", "^a", "’“", "\0"],
)
def test_any_punctuation_can_be_searched_for(tmp_path: Path, query: str) -> None:
    store = store_in(tmp_path)
    a_session(store, SESSION, *a_turn("Tell me what w1 is: don't guess."))
    with store.index() as index:
        index.refresh()
        assert len(index.list(search=query)) <= 1


@pytest.mark.parametrize("query", ["what is w1?", "w1.", "don't w1"])
def test_a_question_finds_its_words(tmp_path: Path, query: str) -> None:
    store = store_in(tmp_path)
    a_session(store, SESSION, *a_turn("Tell me what w1 is: don't guess."))
    assert _ids(store, query) == [SESSION]


def test_deleting_the_database_loses_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    before = _rows(store)
    path = tmp_path / ".lmagent" / "state.db"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for file in path.parent.glob("state.db*"):
        file.unlink()
    assert _rows(store) == before


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_database_is_moved_aside_and_rebuilt(tmp_path: Path, content: bytes) -> None:
    store = store_in(tmp_path)
    a_session(store)
    before = _rows(store)
    path = tmp_path / ".lmagent" / "state.db"
    for file in path.parent.glob("state.db*"):
        file.unlink()
    path.write_bytes(content)
    assert _rows(store) == before
    (aside,) = path.parent.glob("state.db.damaged-*")
    assert aside.read_bytes() == content
    assert _rows(store) == before


def test_pages_damaged_inside_are_noticed_while_it_is_used(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for number in range(30):
        a_session(store, f"s{number}", *a_turn(f"words {number} " * 50))
    before = _rows(store, limit=50)
    path = tmp_path / ".lmagent" / "state.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(os.urandom(path.stat().st_size - 4096))
    assert _rows(store, limit=50) == before


def test_a_database_of_a_newer_version_is_left_as_it_is(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    before = _rows(store)
    path = tmp_path / ".lmagent" / "state.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.commit()
    connection.close()
    assert _rows(store) == before
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (999,)
    connection.close()
    assert list(path.parent.glob("state.db.damaged-*")) == []


def test_where_no_database_can_be_written_the_index_is_kept_in_memory(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    (tmp_path / ".lmagent" / "state.db").mkdir()
    assert _ids(store) == [SESSION]


def test_looking_at_a_workspace_without_sessions_leaves_no_trace(tmp_path: Path) -> None:
    assert _rows(store_in(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_two_readers_at_once_agree(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    with store.index() as one, store.index() as two:
        one.refresh()
        log = store.open(SESSION)
        write_all(log, a_turn("second thing", "zebra"))
        log.close()
        two.refresh()
        one.refresh()
        assert one.list() == two.list()
        assert [row.id for row in one.list(search="zebra")] == [row.id for row in two.list(search="zebra")] == [SESSION]


def test_a_damaged_line_does_not_stop_the_index(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store)
    path = path_of(store)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], b"\xff\xfe rubbish\n", *lines[5:]]))
    assert _rows(store)[0].turns == 1


def _unattended(store: JsonlStore) -> list[Unattended]:
    with store.index() as index:
        index.refresh()
        return index.unattended()


def test_a_session_that_waits_is_listed_until_it_goes_on(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    wait = ev.TurnFinished(outcome="waiting", until=2e9, id="wait1")
    a_session(store, SESSION, *a_turn(), ev.TurnStarted(turn=2), wait)
    assert _unattended(store) == [Unattended(SESSION, 2e9, "wait1", InputOrigin(), "test")]
    log = store.open(SESSION)
    write_all(log, [ev.TurnStarted(turn=3)])
    log.close()
    assert _unattended(store) == []


def test_left_work_is_free_only_while_no_process_has_its_session_open(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    wait = ev.TurnFinished(outcome="waiting", until=2e9, id="wait1")
    a_session(store, SESSION, *a_turn(), ev.TurnStarted(turn=2), wait)
    log = store.open(SESSION)
    assert [row.session for row in unattended(store)] == [SESSION]
    assert unattended(store, free=True) == []
    log.close()
    assert [row.session for row in unattended(store, free=True)] == [SESSION]


def test_a_copy_and_a_sub_agent_do_not_wait_by_themselves(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    wait = ev.TurnFinished(outcome="waiting", until=2e9, id="wait1")
    a_session(store, SESSION, *a_turn(), ev.TurnStarted(turn=2), wait)
    run(store.fork, SESSION, "copy")
    log = store.create("child")
    write_all(log, [msgspec.structs.replace(created("child"), parent=Parent(SESSION, "c1")), wait])
    log.close()
    assert [row.session for row in _unattended(store)] == [SESSION]


def test_a_turn_of_a_job_that_was_cut_off_is_listed_and_one_of_a_person_is_not(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    asked = ev.InputReceived(message=user("do it"), delivery="submit", origin=InputOrigin("inbox", "a"))
    added = ev.InputReceived(message=user("and this"), delivery="steer")
    for session, events in {
        "accepted": (asked,),
        "begun": (asked, ev.TurnStarted(turn=1)),
        "steered": (asked, ev.TurnStarted(turn=1), added),
        "ended": (asked, ev.TurnStarted(turn=1), ev.MessageAdded(message=user("do it"), origin="input", input="i")),
        "person": (ev.InputReceived(message=user("do it"), delivery="submit"), ev.TurnStarted(turn=1)),
    }.items():
        log = store.create(session)
        write_all(log, [created(session), *events])
        if session == "ended":
            write_all(log, [ev.TurnFinished(outcome="done")])
        log.close()
    assert [(row.session, str(row.origin)) for row in _unattended(store)] == [
        (name, "inbox:a") for name in ("accepted", "begun", "steered")
    ]


def test_an_index_of_an_older_version_is_filled_anew(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    wait = ev.TurnFinished(outcome="waiting", until=2e9, id="wait1")
    a_session(store, SESSION, *a_turn(), ev.TurnStarted(turn=2), wait)
    script = files("lmagent.store.migrations").joinpath("0001_sessions.sql").read_text()
    db = sqlite3.connect(store.root.parent / "state.db")
    db.executescript(script)
    db.execute("INSERT INTO session (id, title, read_to) VALUES (?, 'old', 1)", (SESSION,))
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    assert [row.session for row in _unattended(store)] == [SESSION]
    assert _rows(store)[0].title != "old"


def test_what_a_page_sends_while_a_job_runs_does_not_take_its_turn_over_and_is_next(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    asked = ev.InputReceived(message=user("do it"), delivery="submit", origin=InputOrigin("cron", "a:1"))
    sent = ev.InputReceived(message=user("and this"), delivery="queue", origin=InputOrigin("web", "x"), by="web")
    a_session(store, SESSION, asked, ev.TurnStarted(turn=1), sent)
    assert [(str(row.origin), row.surface) for row in _unattended(store)] == [("cron:a:1", "web")]
    log = store.open(SESSION)
    write_all(log, [ev.TurnFinished(outcome="done"), ev.TurnStarted(turn=2)])
    log.close()
    assert [str(row.origin) for row in _unattended(store)] == ["web:x"]


def test_every_event_has_a_number_that_it_keeps(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, SESSION, *a_turn())
    with store.index() as index:
        index.refresh()
        mark, last = index.numbering()
        first = index.numbered(0, 1000)
        assert [one.seq for one in first] == [event.seq for event in store.read(SESSION)]
        assert last == first[-1].number
    path = store.root / SESSION / "events.jsonl"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)  # another file now: its log is read anew
    with store.index() as index:
        index.refresh()
        assert index.numbering()[0] == mark
        assert index.numbered(0, 1000) == first
        assert index.numbered(last, 1000) == []
    store.delete(SESSION)
    (tmp_path / "state.db").unlink(missing_ok=True)
    with store.index() as index:
        index.refresh()
        assert index.numbered(0, 1000) == []


def test_another_log_under_the_number_of_the_old_file_is_told_by_its_events(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    a_session(store, SESSION, ev.SessionRenamed(title="old"))
    assert _rows(store)[0].title == "old"
    events = [created(), ev.SessionRenamed(title="new"), ev.InputReceived(message=user("x"), delivery="submit", by="t")]
    made = b"".join(stamp(event, seq, StepClock())[1] for seq, event in enumerate(events, 3))
    path_of(store).write_bytes(made)
    assert _rows(store)[0].title == "new"
