"""Retention: which sessions of a cluster are deleted after some days."""

from __future__ import annotations

import pytest
from cluster_kit import Cluster
from msgspec.structs import replace

from lmagent.cluster.store import ClusterStore
from lmagent.core.events import DurableEvent, SessionMarked, TurnFinished
from lmagent.core.memory import MemoryItem
from lmagent.core.ports import SessionLog
from lmagent.core.work import Parent
from lmagent.memory.search.postgres import PostgresMemoryIndex
from lmagent.testing.conformance.store import opening, said

pytestmark = pytest.mark.anyio


async def begin(store: ClusterStore, session: str, *events: DurableEvent, parent: str = "") -> SessionLog:
    log = store.create(session)
    first = replace(opening(session), parent=Parent(parent, "call") if parent else None)
    for event in (first, *events):
        await log.append(event)
    return log


def age(known: Cluster, days: int) -> None:
    known.sql(f"UPDATE session SET changed = changed - interval '{days} days'")


async def test_idle_sessions_end_after_the_days_and_those_with_work_or_a_pin_stay(known: Cluster) -> None:
    store = known.store(days=30)
    (await begin(store, "idle")).close()
    (await begin(store, "archived", SessionMarked(archived=True))).close()
    (await begin(store, "pinned", SessionMarked(pinned=True))).close()
    (await begin(store, "interrupted", said("work"))).close()
    (await begin(store, "waiting", TurnFinished(turn=1, outcome="waiting", until=4e9))).close()
    opened = await begin(store, "opened")
    age(known, 29)
    assert store.prune() == []
    age(known, 2)
    (await begin(store, "young")).close()
    assert store.prune() == ["archived", "idle"]
    assert store.sessions() == ["interrupted", "opened", "pinned", "waiting", "young"]
    opened.close()


async def test_without_the_setting_all_sessions_stay(known: Cluster) -> None:
    store = known.store()
    (await begin(store, "idle")).close()
    age(known, 10_000)
    assert store.prune() == []
    assert store.sessions() == ["idle"]


async def test_sub_agents_end_with_their_parent_and_not_before(known: Cluster) -> None:
    store = known.store(days=30)
    (await begin(store, "kept", SessionMarked(pinned=True))).close()
    (await begin(store, "kept-a", parent="kept")).close()
    (await begin(store, "kept-a-a", parent="kept-a")).close()
    (await begin(store, "old")).close()
    (await begin(store, "old-a", said("cut off"), parent="old")).close()
    (await begin(store, "old-a-a", parent="old-a")).close()
    (await begin(store, "old-b", SessionMarked(pinned=True), parent="old")).close()
    (await begin(store, "circle-a", parent="circle-b")).close()
    (await begin(store, "circle-b", parent="circle-a")).close()
    age(known, 31)
    assert store.prune() == ["old", "old-a", "old-a-a"]
    assert store.sessions() == ["circle-a", "circle-b", "kept", "kept-a", "kept-a-a", "old-b"]


async def test_at_most_so_many_sessions_are_deleted_at_a_time(known: Cluster) -> None:
    store = known.store(days=30)
    for name in ("a", "b", "c"):
        (await begin(store, name)).close()
    age(known, 31)
    assert [store.prune(2), store.prune(2), store.prune(2)] == [["a", "b"], ["c"], []]


async def test_a_session_that_is_written_while_others_are_deleted_stays(known: Cluster) -> None:
    store = known.store(days=30)
    (await begin(store, "a")).close()
    (await begin(store, "b")).close()
    age(known, 31)
    known.sql(
        "CREATE FUNCTION write_b() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " UPDATE session SET changed = clock_timestamp() WHERE id = 'b'; RETURN NULL; END $$;"
        " CREATE TRIGGER write_b AFTER DELETE ON session FOR EACH ROW EXECUTE FUNCTION write_b()"
    )
    assert store.prune() == ["a"]
    assert store.sessions() == ["b"]


async def test_the_upkeep_of_an_hour_is_done_by_one_process_for_each_workspace(known: Cluster) -> None:
    first, second, elsewhere = known.store(), known.store(), known.store("elsewhere")
    assert [store.begins_upkeep() for store in (first, second, first, elsewhere)] == [True, False, False, True]
    known.sql("UPDATE job SET id = 'upkeep 2020010100'")
    assert [store.begins_upkeep() for store in (second, first, elsewhere)] == [True, False, True]


async def test_the_texts_of_a_deleted_session_leave_the_index_of_the_memory(known: Cluster) -> None:
    store = known.store(days=30)
    index = PostgresMemoryIndex(store.database, store.workspace, None, lambda _: None)
    for name in ("pruned", "deleted", "kept"):
        (await begin(store, name)).close()
        index.take(name, "1:1", [MemoryItem(name, f"the password is {name}", session=name)], whole=True)
    known.sql("UPDATE session SET changed = changed - interval '31 days' WHERE id = 'pruned'")
    store.prune()
    store.delete("deleted")
    assert (index.count(), index.marks()) == (1, {"kept": "1:1"})
