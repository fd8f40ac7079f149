"""The store in PostgreSQL: its port's suite, and one writer over many processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import anyio
import psycopg
import pytest
from cluster_kit import Cluster, cluster, until

from lmagent.cluster.database import Connection, Database
from lmagent.cluster.store import ClusterStore
from lmagent.core.errors import SessionBusy, SessionNotFound, SessionTaken, StoreError
from lmagent.core.events import InputReceived
from lmagent.core.ports import EventStore
from lmagent.testing.conformance import EventStoreConformance
from lmagent.testing.conformance.store import OTHER, SESSION, opening, said

T = TypeVar("T")
pytestmark = pytest.mark.anyio


def numbers(store: ClusterStore, session: str = SESSION) -> list[int]:
    return [event.seq for event in store.read(session)]


class TestClusterStore(EventStoreConformance):
    @pytest.fixture(autouse=True)
    def _database(self) -> Iterator[None]:
        with cluster() as self.cluster:
            yield

    def make(self) -> EventStore:
        return self.cluster.store()

    def again(self, store: EventStore) -> EventStore:
        return self.cluster.store()


def text_of(store: ClusterStore, session: str = SESSION) -> list[str]:
    return [event.message.text for event in store.read(session) if isinstance(event, InputReceived)]


# --- one writer -------------------------------------------------------------------------------------------------------


async def test_a_session_without_a_heartbeat_is_taken_over_and_its_stopped_writer_says_by_whom(known: Cluster) -> None:
    first, second = known.store(beat=3600), known.store()
    stopped = first.create(SESSION)
    await stopped.append(opening())
    with pytest.raises(SessionBusy, match=first.presence.name):
        second.open(SESSION)
    known.age()
    log = second.open(SESSION)
    assert (await log.append(said("mine"))).seq == 2
    with pytest.raises(SessionTaken, match=f"taken over by process {second.presence.name}"):
        await stopped.append(said("late"))
    with pytest.raises(SessionTaken):
        await stopped.append(said("later"))
    stopped.close()
    assert text_of(first) == ["mine"]
    await until(lambda: second.is_running(SESSION))  # closing the old log released nothing
    log.close()


async def test_a_session_that_was_taken_and_released_again_stays_closed_to_the_stopped_writer(known: Cluster) -> None:
    first = known.store(beat=3600)
    stopped = first.create(SESSION)
    await stopped.append(opening())
    known.age()
    known.store().open(SESSION).close()
    with pytest.raises(SessionTaken, match="another process"):
        await stopped.append(said("late"))


async def test_a_session_stays_with_its_process_while_that_beats(known: Cluster) -> None:
    first, second = known.store(beat=0.05), known.store()
    log = first.create(SESSION)
    await log.append(opening())
    known.sql("UPDATE process SET beat = beat - interval '1 minute'")
    await until(lambda: known.sql("SELECT beat > clock_timestamp() - interval '1 second' FROM process LIMIT 1") == "t")
    with pytest.raises(SessionBusy):
        second.open(SESSION)
    await log.append(said("still mine"))


async def test_a_process_that_ends_cleanly_leaves_its_sessions_free(known: Cluster) -> None:
    first = known.store()
    await first.create(SESSION).append(opening())
    first.presence.close()
    known.store().open(SESSION).close()
    assert not first.is_running(SESSION)


async def test_a_process_whose_row_was_deleted_joins_anew_and_its_sessions_are_closed_to_it(known: Cluster) -> None:
    first = known.store(beat=0.05)
    log = first.create(SESSION)
    await log.append(opening())
    before = first.presence.joined
    known.sql("DELETE FROM process")
    await until(lambda: first.presence.joined != before)
    with pytest.raises(SessionTaken):
        await log.append(said("late"))
    log.close()
    first.open(SESSION).close()


async def test_a_process_that_joins_deletes_the_rows_of_those_that_are_dead_for_a_day(known: Cluster) -> None:
    known.sql("INSERT INTO process (kind, name, version, beat) VALUES ('worker', 'dead', '1', '2020-01-01')")
    assert known.sql(f"SELECT count(*) FROM process WHERE id <> {known.store().presence.id}") == "0"


async def test_an_event_that_was_committed_without_an_answer_is_not_written_again(known: Cluster) -> None:
    store = known.store()
    log = store.create(SESSION)
    cut_after_commits(store.database)
    for number, event in enumerate((opening(), said("one")), 1):
        assert (await log.append(event)).seq == number
    log.close()
    assert numbers(store) == [1, 2]


async def test_a_deletion_that_was_committed_without_an_answer_is_no_error_when_it_is_repeated(known: Cluster) -> None:
    store = known.store()
    for session in (SESSION, OTHER):
        log = store.create(session)
        await log.append(opening(session))
        log.close()
    cut_after_commits(store.database)
    store.delete(SESSION)
    assert store.sessions() == [OTHER]
    with pytest.raises(SessionNotFound):
        store.delete(SESSION)


async def test_a_session_begins_anew_once_when_the_answer_of_the_commit_was_lost(known: Cluster) -> None:
    store = known.store()
    log = store.create(SESSION)
    await log.append(opening())
    await log.append(said("one"))
    log.close()
    cut_after_commits(store.database)
    store.begin_anew(SESSION, OTHER, opening())
    assert (numbers(store), numbers(store, OTHER)) == ([3], [1, 2, 3])
    with pytest.raises(StoreError, match="there is a session"):
        store.begin_anew(SESSION, OTHER, opening())


async def test_a_session_deleted_while_it_is_open_takes_no_more_events(known: Cluster) -> None:
    log = known.store().create(SESSION)
    await log.append(opening())
    known.sql("DELETE FROM session")
    with pytest.raises(SessionTaken, match="deleted while it was open"):
        await log.append(said("late"))


async def test_a_session_of_the_same_id_in_another_workspace_is_another_session(known: Cluster) -> None:
    one, two = known.store("one"), known.store("two")
    for store in (one, two):
        log = store.create(SESSION)
        await log.append(opening())
        await log.append(said(store.workspace))
        log.close()
    one.delete(SESSION)
    assert (one.count(), text_of(two)) == (0, ["two"])


async def test_two_processes_that_create_a_session_at_once_make_it_once(known: Cluster) -> None:
    logs = [known.store().create(SESSION) for _ in range(2)]
    await logs[0].append(opening())
    with pytest.raises(StoreError, match="there is a session"):
        await logs[1].append(opening())
    logs[1].close()
    await logs[0].append(said("goes on"))


@pytest.mark.parametrize("native", [False, True])
async def test_a_cancelled_append_has_written_its_event_and_says_so(known: Cluster, native: bool) -> None:
    store = known.store()
    log = store.create(SESSION)
    await log.append(opening())
    known.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END'"
    )
    known.sql("CREATE TRIGGER slow BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION slow()")
    returned: list[int] = []

    async def work() -> None:
        returned.append((await log.append(said("one"))).seq)
        await anyio.sleep(10)
        returned.append(0)

    if native:
        task = asyncio.create_task(work())  # noqa: TID251 - a task that asyncio itself cancels
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        with anyio.move_on_after(0.1):
            await work()
    assert (returned, numbers(store)) == ([2], [1, 2])


# --- copies -----------------------------------------------------------------------------------------------------------


async def test_a_fork_has_the_events_up_to_a_number_and_the_blobs_that_they_name(known: Cluster) -> None:
    store = known.store()
    log = store.create(SESSION)
    await log.append(opening())
    names = [await log.put_blob(content) for content in (b"first", b"second")]
    for name in names:
        await log.append(said(f"artifact:{name[:12]}"))
    forked = await store.fork(SESSION, OTHER, 2)
    assert (forked.seq, forked.at_seq, forked.parent) == (3, 2, SESSION)
    assert numbers(store, OTHER) == [1, 2, 3]
    assert store.get_blob(OTHER, names[0]) == b"first"
    with pytest.raises(StoreError, match="there is no artifact"):
        store.get_blob(OTHER, names[1])
    with pytest.raises(StoreError, match="there is a session"):
        await store.fork(SESSION, OTHER)
    with pytest.raises(SessionNotFound):
        await store.fork("missing", "20260103_000000_abc123")
    with pytest.raises(StoreError, match="nothing to copy"):
        await store.fork(SESSION, "20260103_000000_abc123", 0)
    copy = store.open(OTHER)
    assert (await copy.append(said("more"))).seq == 4


async def test_a_session_that_begins_anew_continues_the_numbers_and_its_log_is_kept_aside(known: Cluster) -> None:
    store = known.store()
    log = store.create(SESSION)
    await log.append(opening())
    name = await log.put_blob(b"content")
    with pytest.raises(SessionBusy):
        store.begin_anew(SESSION, OTHER, opening())
    log.close()
    store.begin_anew(SESSION, OTHER, opening())
    assert (numbers(store), numbers(store, OTHER)) == ([2], [1, 2])
    assert store.get_blob(OTHER, name) == b"content"
    anew = store.open(SESSION)
    assert (await anew.append(said("one"))).seq == 3


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_follower_continues_after_its_listening_connection_was_ended(known: Cluster) -> None:
    store, watcher = known.store(), known.store()
    log = store.create(SESSION)
    await log.append(opening())
    seen: list[int] = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                async for event in watcher.follow(SESSION):
                    seen.append(event.seq)
                    if event.seq == 4:
                        return

            tasks.start_soon(watch)
            await until(lambda: seen == [1])
            await until(lambda: known.sql(f"SELECT {END} FROM pg_stat_activity WHERE {LISTENS}") == "1")
            for number in range(3):
                await log.append(said(str(number)))
    assert seen == [1, 2, 3, 4]


async def test_a_long_log_is_read_whole_and_from_the_middle(known: Cluster) -> None:
    store = known.store()
    log = store.create(SESSION)
    await log.append(opening())
    known.sql(
        "INSERT INTO event SELECT session, n, 1, regexp_replace(convert_from(line, 'UTF8'), '\"seq\":1', "
        "'\"seq\":' || n)::bytea FROM event, generate_series(2, 1300) n; UPDATE session SET seq = 1300"
    )
    log.close()
    assert numbers(store) == list(range(1, 1301))
    assert [event.seq for event in store.read(SESSION, after=1298)] == [1299, 1300]


async def test_a_line_of_a_newer_version_is_skipped_and_reported(known: Cluster) -> None:
    store = known.store()
    log = store.create(SESSION)
    await log.append(opening())
    await log.append(said("one"))
    log.close()
    known.sql('UPDATE event SET line = \'{"v":1,"type":"later","seq":2}\' WHERE seq = 2')
    assert numbers(store) == [1]
    again = store.open(SESSION)
    assert [(damage.line, damage.torn) for damage in again.damage] == [(2, False)]
    assert (await again.append(said("two"))).seq == 3


async def test_names_are_resolved_as_in_a_folder(known: Cluster) -> None:
    store = known.store()
    with pytest.raises(SessionNotFound, match="the workspace project has no sessions"):
        store.resolve("last")
    for session in (SESSION, OTHER):
        log = store.create(session)
        await log.append(opening(session))
        log.close()
    assert (store.resolve("last"), store.resolve(SESSION[:8]), store.resolve(SESSION)) == (OTHER, SESSION, SESSION)
    assert (store.count(), store.latest(), store.last_seq(SESSION), store.last_seq("none")) == (2, OTHER, 1, 0)
    with pytest.raises(SessionNotFound, match="2 sessions begin with 2026"):
        store.resolve("2026")


async def test_a_file_is_adopted_as_a_blob(known: Cluster, tmp_path: Path) -> None:
    log = known.store().create(SESSION)
    await log.append(opening())
    file = tmp_path / "large"
    file.write_bytes(b"x" * 3_000_000)
    name = await log.adopt_blob(file)
    assert not file.exists()
    assert log.get_blob(name) == b"x" * 3_000_000
    with pytest.raises(StoreError, match="could not be kept"):
        await log.adopt_blob(tmp_path / "missing")


async def test_a_blob_whose_content_was_changed_is_reported(known: Cluster) -> None:
    log = known.store().create(SESSION)
    await log.append(opening())
    name = await log.put_blob(b"content")
    known.sql("UPDATE blob SET content = 'other'")
    with pytest.raises(StoreError, match="is damaged"):
        log.get_blob(name)


END = "count(pg_terminate_backend(pid))"
LISTENS = "query LIKE 'LISTEN%' AND datname = current_database()"


def cut_after_commits(database: Database) -> None:
    """From now on, let the connection break after the commit of each piece of work, once, and before its answer."""
    run = database.run

    def cut(work: Callable[[Connection], T], **options: float) -> T:
        attempts: list[T] = []

        def broken(connection: Connection) -> T:
            attempts.append(work(connection))
            if len(attempts) == 1:
                raise psycopg.OperationalError("the connection was cut")
            return attempts[-1]

        return run(broken, **options)

    database.run = cut


async def test_sessions_that_hold_a_text_are_found_in_their_events_and_blobs(known: Cluster) -> None:
    store = known.store()
    for name in ("a", "b", "c"):
        log = store.create(name)
        await log.append(opening(name))
        await log.append(said("the heron" if name == "a" else "nothing"))
        if name == "b":
            await log.put_blob(b"x" * 1000 + b"the heron")
        log.close()
    assert store.holding(lambda content: b"heron" in content) == ["b", "a"]
    assert known.store("elsewhere").holding(lambda content: b"heron" in content) == []
