"""The events of all sessions in one order, which is the same for all processes of the cluster."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest
from cluster_kit import Cluster

from lmagent.cluster.log import ClusterLog
from lmagent.cluster.store import ClusterStore
from lmagent.core.events import SessionCreated, SessionForked
from lmagent.core.ids import new_id
from lmagent.testing.conformance.store import OTHER, SESSION, opening, said

pytestmark = pytest.mark.anyio


async def begin(store: ClusterStore, *texts: str, session: str = SESSION) -> ClusterLog:
    log = store.create(session)
    await log.append(opening(session))
    for text in texts:
        await log.append(said(text))
    return log


def read(store: ClusterStore, after: int = 0, limit: int = 1000) -> list[tuple[int, str, int]]:
    """Return number, session and `seq` of the events after a number, read `limit` at a time."""
    found: list[tuple[int, str, int]] = []
    with store.feed() as feed:
        feed.refresh()
        while places := feed.numbered(after, limit):
            assert len(places) <= limit
            found += [(place.number, place.session, event.seq) for place, event in feed.events(places)]
            after = places[-1].number
    return found


def last(store: ClusterStore) -> tuple[str, int]:
    with store.feed() as feed:
        feed.refresh()
        return feed.numbering()


async def test_events_keep_their_numbers_in_all_processes(known: Cluster) -> None:
    one, two = known.store(), known.store()
    first = await begin(one, "a", "b")
    second = await begin(two, "c", session=OTHER)
    before = read(one)
    assert sorted(event[1:] for event in before) == [(SESSION, 1), (SESSION, 2), (SESSION, 3), (OTHER, 1), (OTHER, 2)]
    assert read(two) == before
    for log, text in ((second, "d"), (first, "e"), (second, "f")):
        await log.append(said(text))
    assert read(two, before[-1][0]) == read(one, before[-1][0])
    assert read(one)[: len(before)] == before
    assert last(one) == last(two)
    assert last(one)[1] == read(one)[-1][0]
    first.close()
    second.close()


async def test_the_events_are_the_same_however_many_are_read_at_a_time(known: Cluster) -> None:
    store = known.store()
    for number in range(5):
        log = await begin(store, *"abcdefg"[:number], session=f"{number}{SESSION}")
        read(store)
        await log.append(said("later"))
        log.close()
    everything = read(store)
    assert len(everything) == len(set(everything)) == 5 * 2 + 10
    for limit in (1, 2, 3, 7):
        assert read(store, limit=limit) == everything
        for place, (number, _, _) in enumerate(everything):
            assert read(store, number, limit) == everything[place + 1 :]


async def test_another_workspace_has_a_feed_of_its_own(known: Cluster) -> None:
    one, two = known.store("one"), known.store("two")
    (await begin(one, "mine")).close()
    assert read(two) == []
    assert len(read(one)) == 2
    assert last(one)[0] != last(two)[0]


async def test_a_deleted_session_leaves_its_numbers_unused(known: Cluster) -> None:
    store = known.store()
    (await begin(store, "gone")).close()
    end = read(store)[-1][0]
    store.delete(SESSION)
    assert (read(store), last(store)[1]) == ([], end)
    (await begin(store, "new")).close()
    assert read(store, end) == [(end + 1, SESSION, 1), (end + 2, SESSION, 2)]


async def test_a_copy_and_a_session_that_begins_anew_are_read_whole(known: Cluster) -> None:
    store = known.store()
    (await begin(store, "one", "two")).close()
    end = read(store)[-1][0]
    await store.fork(SESSION, OTHER)
    copied = read(store, end)
    assert [event[1:] for event in copied] == [(OTHER, 1), (OTHER, 2), (OTHER, 3), (OTHER, 4)]
    aside = new_id()
    store.begin_anew(SESSION, aside, opening(SESSION))
    with store.feed() as feed:
        feed.refresh()
        events = {place.session: event for place, event in feed.events(feed.numbered(copied[-1][0], 9))}
    assert {session: type(event) for session, event in events.items()} == {
        SESSION: SessionCreated,
        aside: SessionForked,
    }


async def test_readers_miss_no_event_while_others_write_number_and_delete(known: Cluster) -> None:
    """Each reader goes on from its last number; so an event with a smaller number that appears later would be lost."""
    stores = [known.store() for _ in range(3)]
    ends = threading.Event()
    seen: list[list[tuple[int, str, int]]] = [[], []]
    failures: list[BaseException] = []

    def watch(store: ClusterStore, into: list[tuple[int, str, int]]) -> None:
        try:
            is_last = False
            while not is_last:
                is_last = ends.is_set()
                into += read(store, into[-1][0] if into else 0, 3)
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=watch, args=(store, into)) for store, into in zip(stores, seen, strict=False)]
    for thread in threads:
        thread.start()
    logs = [await begin(stores[2], session=f"{number}{SESSION}") for number in range(4)]
    for turn in range(40):
        for log in logs:
            await log.append(said(str(turn)))
        (await begin(stores[2], "short", session=OTHER)).close()
        stores[2].delete(OTHER)
    ends.set()
    for thread in threads:
        thread.join(60)
    assert failures == []
    for found in seen:
        kept: dict[str, list[int]] = defaultdict(list)
        for _, session, seq in found:
            kept[session].append(seq)
        kept.pop(OTHER, None)
        assert kept == {f"{number}{SESSION}": list(range(1, 42)) for number in range(4)}
        assert [event[0] for event in found] == sorted({event[0] for event in found})
    for log in logs:
        log.close()
