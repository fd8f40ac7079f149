"""Retention: which sessions of a cluster are deleted after some days."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_kit import Cluster, cluster

from lmagent.cluster.store import ClusterStore
from lmagent.core.events import DurableEvent, SessionMarked, TurnFinished
from lmagent.core.ports import SessionLog
from lmagent.testing.conformance.store import opening, said

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(name="known")
def _cluster() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


async def begin(store: ClusterStore, session: str, *events: DurableEvent) -> SessionLog:
    log = store.create(session)
    for event in (opening(session), *events):
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
