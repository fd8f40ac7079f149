"""Requests through the database: large ones, and both ends when the database or the other end goes away."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest
from cluster_kit import WORKSPACE, Cluster, cluster
from testkit.proxy import CutProxy

from lmagent.cluster.member import Member
from lmagent.cluster.requests import LARGE, UNREAD, RequestEnd, RequestHead, Requests

pytestmark = pytest.mark.anyio

FIRST = {"type": "first"}
HEAD = RequestHead("http")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(name="known")
def _cluster() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


@asynccontextmanager
async def ends(known: Cluster, url: str = "") -> AsyncIterator[tuple[Requests, Requests]]:
    """The requests of a gateway and of a worker, which reaches the database at `url`."""
    members = Member(known.url), Member(url or known.url)
    members[0].presence.kind, members[1].presence.kind = "gateway", "worker"
    try:
        async with anyio.create_task_group() as tasks:
            gateway = Requests(members[0], WORKSPACE)
            worker = Requests(members[1], WORKSPACE, answers=True)
            for end in (gateway, worker):
                tasks.start_soon(end.run)
                await end._join()  # pyright: ignore[reportPrivateUsage]
            yield gateway, worker
            tasks.cancel_scope.cancel()
    finally:
        for member in members:
            member.close()


async def taken(worker: Requests) -> RequestEnd:
    found = await worker.take(others=True)
    assert found is not None
    assert await found[1].receive() == FIRST
    return found[1]


def piece(number: int) -> dict[str, object]:
    return {"type": "piece", "number": number, "body": os.urandom(LARGE)}


async def no_requests(known: Cluster) -> None:
    with anyio.fail_after(20):
        while known.sql("SELECT count(*) FROM request") != "0":  # noqa: ASYNC110 (the database has no event)
            await anyio.sleep(0.05)


@pytest.mark.parametrize("down", [True, False])
async def test_a_sender_waits_for_a_reader_that_is_slow_and_all_arrives_in_order(known: Cluster, down: bool) -> None:
    count = 5 * UNREAD
    async with ends(known) as (gateway, worker), anyio.create_task_group() as tasks:
        client = await gateway.begin(HEAD, FIRST)
        server = await taken(worker)
        sender, reader = (client, server) if down else (server, client)
        sent = 0

        async def send() -> None:
            nonlocal sent
            for number in range(count):
                await sender.send(piece(number))
                sent += 1

        tasks.start_soon(send)
        await anyio.sleep(2)
        assert sent < 3 * UNREAD  # in the table, and in the memory of the reader
        assert [(await reader.receive())["number"] for _ in range(count)] == list(range(count))


@pytest.mark.parametrize("dies", [False, True])
async def test_a_worker_is_not_held_up_by_a_client_that_left_a_long_answer_or_whose_gateway_died(
    known: Cluster, dies: bool
) -> None:
    async with ends(known) as (gateway, worker):
        client = await gateway.begin(HEAD, FIRST)
        server = await taken(worker)
        if dies:
            known.sql("DELETE FROM process WHERE kind = 'gateway'")
        else:
            await gateway.leave(client)
        with anyio.fail_after(20):
            for number in range(3 * UNREAD):
                await server.send(piece(number))
            await worker.finish(server)
        await no_requests(known)


async def test_a_request_that_a_gateway_added_without_knowing_is_withdrawn(known: Cluster) -> None:
    async with ends(known) as (_gateway, worker):
        gateway_id = "(SELECT id FROM process WHERE kind = 'gateway')"
        known.sql(f"SELECT request_add('lost', '{WORKSPACE}', '', false, '', {gateway_id}, '')")
        await no_requests(known)
        assert await worker.take(others=True) is None


async def test_a_request_that_is_given_back_while_the_database_is_away_is_answered_later(known: Cluster) -> None:
    address, _, name = known.url.rpartition("/")
    host, _, port = address.rpartition(":")
    proxy = CutProxy(int(port))
    async with ends(known, f"{host}:{proxy.port}/{name}") as (gateway, worker):
        client = await gateway.begin(HEAD, FIRST)
        server = await taken(worker)
        proxy.close()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.give_back, server)
            await anyio.sleep(1)
            proxy = CutProxy(int(port), proxy.port)
        again = await taken(worker)
        assert again.id == server.id
        await again.send(piece(1))
        await worker.finish(again)
        with anyio.fail_after(20):
            assert (await client.receive())["number"] == 1
    proxy.close()


async def test_a_worker_ends_an_answer_that_its_client_does_not_read(known: Cluster) -> None:
    async with ends(known) as (gateway, worker):
        await gateway.begin(HEAD, FIRST)
        server = await taken(worker)
        with anyio.move_on_after(2):
            while True:
                await server.send(piece(0))
        with anyio.fail_after(20):
            await worker.finish(server)
