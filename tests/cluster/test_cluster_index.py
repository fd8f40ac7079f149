"""The index of the sessions over the tables: new events, replaced and deleted sessions, and events by place; and tails,
which miss no event that they wait for."""

from __future__ import annotations

import anyio
import psycopg
import pytest
from cluster_kit import Cluster

from lmagent.cluster.listening import EVENTS
from lmagent.cluster.store import ClusterStore
from lmagent.cluster.tail import LOOK, ClusterTail
from lmagent.core.events import InputReceived
from lmagent.core.ids import InputOrigin
from lmagent.core.messages import user
from lmagent.schedule.turns import unattended
from lmagent.testing.conformance.store import OTHER, SESSION, opening, said

pytestmark = pytest.mark.anyio


async def begin(store: ClusterStore, *texts: str, session: str = SESSION) -> None:
    log = store.create(session)
    await log.append(opening(session))
    for text in texts:
        await log.append(said(text))
    log.close()


def titles(store: ClusterStore, search: str = "") -> list[str]:
    with store.index() as index:
        index.refresh()
        return [row.title for row in index.list(search=search)]


async def test_events_are_read_once_and_new_ones_are_added(known: Cluster) -> None:
    store = known.store()
    await begin(store, "the heron")
    assert titles(store) == ["the heron"]
    log = store.open(SESSION)
    await log.append(said("an egret"))
    assert titles(store, "egret") == titles(store, "heron") == ["the heron"]
    assert titles(store, "stork") == []
    with store.index() as index:
        index.refresh()
        assert [row.status for row in index.list()] == ["running"]
        assert [place.seq for place in index.numbered(0, 10)] == [1, 2, 3]
    log.close()
    with store.index() as index:
        index.refresh()
        assert [row.status for row in index.list()] == ["interrupted"]


async def test_a_deleted_session_is_forgotten_and_one_in_its_place_is_read_anew(known: Cluster) -> None:
    store = known.store()
    await begin(store, "first")
    assert titles(store) == ["first"]
    store.delete(SESSION)
    assert titles(store) == []
    await begin(store, "second")
    assert titles(store) == ["second"]
    store.delete(SESSION)
    await begin(store, "third", "with more events")  # without a look in between
    assert titles(store) == ["third"]
    assert titles(store, "second") == []


async def test_events_are_found_by_place_and_deleted_ones_are_left_out(known: Cluster) -> None:
    store = known.store()
    await begin(store, "one")
    await begin(store, "two", session=OTHER)
    with store.index() as index:
        index.refresh()
        places = index.numbered(0, 10)
        found = [event.message.text for _, event in index.events(places) if isinstance(event, InputReceived)]
        assert sorted(found) == ["one", "two"]
        store.delete(OTHER)
        assert {place.session for place, _ in index.events(places)} == {SESSION}


async def test_each_workspace_has_an_index_of_its_own_that_can_be_deleted(known: Cluster) -> None:
    one, two = known.store("one"), known.store("two")
    await begin(one, "mine")
    assert (titles(one), titles(two)) == (["mine"], [])
    files = list((known.data / "cluster").glob("*.db"))
    assert len(files) == 2
    for file in (known.data / "cluster").iterdir():
        file.unlink()
    assert titles(one) == ["mine"]


async def test_a_tail_notices_events_a_deletion_and_a_new_session_in_the_place(known: Cluster) -> None:
    store = known.store()
    tail = known.store().tail(SESSION)
    assert (tail.read(), tail.is_gone) == ([], True)
    await begin(store, "one")
    while not (found := tail.read() if tail.has_news else []):
        await tail.wait(5)
    assert [event.seq for event in found] == [1, 2]
    assert not tail.is_gone
    store.delete(SESSION)
    while not tail.is_gone:
        assert (tail.read() if tail.has_news else []) == []
        await tail.wait(5)


async def test_left_work_is_free_only_once_the_process_that_has_its_session_is_dead(known: Cluster) -> None:
    owner, other = known.store(beat=1000), known.store()
    log = owner.create(SESSION)
    await log.append(opening())
    await log.append(InputReceived(message=user("work"), delivery="submit", origin=InputOrigin("web", "1")))
    for store in (owner, other):
        assert [row.session for row in unattended(store)] == [SESSION]
        assert unattended(store, free=True) == []
    known.age()
    assert [row.session for row in unattended(other, free=True)] == [SESSION]
    log.close()
    assert [row.session for row in unattended(other, free=True)] == [SESSION]


async def next_numbers(tail: ClusterTail) -> list[int]:
    """Return the numbers of the next events, which must arrive sooner than a tail looks by itself."""
    with anyio.fail_after(LOOK / 2):
        while not (found := tail.read() if tail.has_news else []):
            await tail.wait(LOOK)
    return [event.seq for event in found]


async def test_only_events_of_sessions_that_a_process_watches_send_notifications(known: Cluster) -> None:
    with psycopg.connect(known.url, autocommit=True) as ear:
        ear.execute(f"LISTEN {EVENTS}".encode())
        log = known.store().create(SESSION)
        await log.append(opening())
        await log.append(said("unwatched"))
        tail = known.store().tail(SESSION)
        assert [event.seq for event in tail.read()] == [1, 2]
        await log.append(said("watched"))
        known.sql("UPDATE session SET watched = clock_timestamp() - interval '1 second'")
        await log.append(said("unwatched again"))
        heard = [note.payload.split()[0] for note in ear.notifies(timeout=0.5)]
    assert heard == ["1", "3"]


async def test_a_tail_asks_again_before_its_notifications_end(known: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    log = known.store().create(SESSION)
    await log.append(opening())
    tail = known.store().tail(SESSION)
    assert [event.seq for event in tail.read()] == [1]
    known.sql("UPDATE session SET watched = clock_timestamp() - interval '1 second'")
    monkeypatch.setattr("lmagent.cluster.tail.LOOK", 0.1)
    await anyio.sleep(0.2)
    assert tail.has_news
    assert tail.read() == []
    monkeypatch.undo()
    await log.append(said("one"))
    assert await next_numbers(tail) == [2]


@pytest.mark.parametrize("how", ["deleted", "begun anew"])
async def test_a_tail_hears_of_each_event_of_a_session_that_took_the_place_of_its_own(known: Cluster, how: str) -> None:
    store = known.store()
    log = store.create(SESSION)
    await log.append(opening())
    await log.append(said("old"))
    tail = known.store().tail(SESSION, 2)
    assert tail.read() == []
    log.close()
    if how == "deleted":
        store.delete(SESSION)
        tail.after = 0
        log = store.create(SESSION)
        await log.append(opening())
        expected = 1
    else:
        store.begin_anew(SESSION, OTHER, opening())
        log = store.open(SESSION)
        expected = 3
    assert await next_numbers(tail) == [expected]
    await log.append(said("new"))
    assert await next_numbers(tail) == [expected + 1]
