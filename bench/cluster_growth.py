"""A cluster that grows to 1,000 workers, simulated on the fake clock: what ends first, and at how many workers.

    python bench/cluster_growth.py [--limits limits.json] [--quick]

The costs are those that `cluster_limits.py` measured (`--limits`, or the ones below). Assumptions:

- The queue always has work: each lane runs one session after the other, and waits for the model between its steps.
- A session has 4 steps of 8.5 events (34, as `cluster_work.py` counts), a model answers after 5 s, and 1 of 50 sessions
  is watched.
- The database has 16 cores as fast as the measuring machine's. Work waits for the first free core, in order.
- A commit that notifies holds PostgreSQL's one lock for that until it is on the disk. Each notification costs CPU for
  each connection that listens in the same database: one of each worker.
- A worker has one workspace, which 4 workers mount and which keeps 1,000 sessions.

`cores` and `lock` are what is asked for: with more than 16 cores, or a lock that is held for more than all of the time,
work waits longer and longer.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace

from lmagent.testing.fakes import FakeClock

STEPS, EVENTS = 4, 8.5  # of a session, of a step
BEAT, LEASE = 2.0, 6.0
SECONDS = 10.0  # that are simulated, after half as many that are not counted
SIZES = (10, 30, 100, 300, 600, 1000)


class Costs(Struct, frozen=True):
    """Milliseconds of the database's CPU, unless another unit is named; as measured on 2026-11-29 on a busy machine."""

    event: float = 0.34
    take: float = 0.75  # of a job, with a long queue
    job: float = 2.04  # its submission, begin and end, without taking it
    tend: float = 0.11
    beat: float = 0.48
    look: float = 0.23  # at the sessions of a workspace
    look_each: float = 0.001  # for each session that it keeps
    wake: float = 0.026  # of a connection that listens, for each notification
    locked: float = 1.5  # for which a commit that notifies holds the lock: not CPU, it waits for the disk
    connection_mb: float = 2.45
    event_kb: float = 1.0
    look_each_kb: float = 0.08


class Cluster(Struct, frozen=True):
    """A cluster and its settings; `poll` is `scheduler_poll_interval`, in seconds."""

    name: str
    workers: int = 0
    lanes: int = 8
    model_s: float = 5.0
    watched: float = 0.02  # share of the sessions
    poll: float = 0.5
    kept: int = 1000
    databases: int = 1  # on one server, each with a share of the workers
    cores: int = 16
    connections: int = 10  # of a worker


class Server:
    """PostgreSQL: cores, and the lock of commits that notify."""

    def __init__(self, cluster: Cluster, costs: Costs, clock: FakeClock) -> None:
        self.cluster, self.costs, self.clock = cluster, costs, clock
        self.listeners = cluster.workers / cluster.databases
        self.free = [0.0] * cluster.cores
        self.lock_free = 0.0
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self.cpu_s = self.wake_s = self.locked_s = self.sent_kb = 0.0
        self.sessions = 0
        self.waits: list[float] = []  # seconds for which a statement waited and ran
        self.late = 0  # beats that arrived after the lease

    async def work(self, ms: float, *, notes: float = 0.0) -> float:
        """Do statements that need so much CPU, with so many notifications among them; return the seconds it took."""
        now = self.clock.monotonic()
        wakes = notes * self.listeners * self.costs.wake / 1000
        core = min(range(len(self.free)), key=self.free.__getitem__)
        ends = self.free[core] = max(now, self.free[core]) + ms / 1000
        if notes:
            held = notes * self.costs.locked / 1000
            ends = self.lock_free = max(ends, self.lock_free) + held
            self.locked_s += held
            for at in range(len(self.free)):  # the listeners' processes are on all cores
                self.free[at] = max(now, self.free[at]) + wakes / len(self.free)
        self.cpu_s += ms / 1000 + wakes
        self.wake_s += wakes
        await self.clock.sleep(ends - now)
        return ends - now


async def lane(server: Server, chance: random.Random) -> None:
    """Run sessions, the first one from its middle."""
    cluster, costs = server.cluster, server.costs
    await server.clock.sleep(chance.uniform(0, cluster.model_s))
    first = chance.randrange(STEPS)
    while True:
        if first == 0:
            await server.work(costs.take + costs.job, notes=1)
        is_watched = chance.random() < cluster.watched
        for step in range(first, STEPS):
            await server.clock.sleep(cluster.model_s * chance.uniform(0.5, 1.5))
            notes = EVENTS if is_watched else float(step == 0)  # the first event of a session always notifies
            took = await server.work(EVENTS * costs.event, notes=notes)
            server.waits.append(took / EVENTS)
            server.sent_kb += EVENTS * costs.event_kb
        server.sessions += 1
        first = 0


async def polls(server: Server, chance: random.Random) -> None:
    """Look at the sessions of the workspace."""
    cost = server.costs.look + server.cluster.kept * server.costs.look_each
    await server.clock.sleep(chance.uniform(0, server.cluster.poll))
    while True:
        await server.work(cost)
        server.sent_kb += server.cluster.kept * server.costs.look_each_kb
        await server.clock.sleep(server.cluster.poll)


async def beats(server: Server, chance: random.Random) -> None:
    """Beat, and tend the queue twice for each beat."""
    await server.clock.sleep(chance.uniform(0, BEAT))
    while True:
        took = await server.work(server.costs.beat + 2 * server.costs.tend)
        server.late += BEAT + took > LEASE
        await server.clock.sleep(BEAT)


async def simulate(cluster: Cluster, costs: Costs) -> dict[str, Any]:
    """Return how much of each resource the cluster uses."""
    clock, chance = FakeClock(), random.Random(22)
    server = Server(cluster, costs, clock)
    async with anyio.create_task_group() as tasks:
        for _ in range(cluster.workers):
            tasks.start_soon(polls, server, chance)
            tasks.start_soon(beats, server, chance)
            for _ in range(cluster.lanes):
                tasks.start_soon(lane, server, chance)
        await clock.advance(SECONDS / 2)
        server.begin()
        await clock.advance(SECONDS)
        tasks.cancel_scope.cancel()
    opened = cluster.connections * cluster.workers
    waits = sorted(server.waits)
    return {
        "cluster": cluster.name,
        "workers": cluster.workers,
        "sessions_per_s": round(server.sessions / SECONDS, 1),
        "cores": round(server.cpu_s / SECONDS, 2),
        "cores_for_wakes": round(server.wake_s / SECONDS, 2),
        "lock": round(server.locked_s / SECONDS, 2),
        "connections": opened,
        "connections_gb": round(opened * costs.connection_mb / 1024, 1),
        "network_mb_per_s": round(server.sent_kb / 1024 / SECONDS, 1),
        "event_ms_95": round(waits[len(waits) * 95 // 100] * 1000, 1) if waits else None,
        "late_beats": server.late,
    }


CLUSTERS = (
    Cluster("each event notifies", watched=1.0),
    Cluster("watched sessions notify"),
    Cluster("and a look each 5 s", poll=5.0),
    Cluster("and 10 databases", poll=5.0, databases=10),
)


def measured(limits: dict[str, Any]) -> Costs:
    """Return the costs that `cluster_limits.py` measured."""
    events, listeners, queue = limits["events"], limits["listeners"], limits["queue"]
    many = max(listeners, key=int)
    alone, heard = (
        listeners[count][place]["watched"]["cpu_ms"] for count, place in (("0", "none"), (many, "other channel"))
    )
    few, kept = (limits["look_at_sessions"][str(count)]["cpu_ms"] for count in (100, 10_000))
    each = (kept - few) / 9_900
    take = queue["10000"]["take, 1 takers"]["cpu_ms"]
    return Costs(
        event=events["16"]["unwatched"]["cpu_ms"],
        take=take,
        job=max(0.0, limits["job"]["cpu_ms"] - queue["0"]["take, 1 takers"]["cpu_ms"]),
        tend=queue["10000"]["tend"]["cpu_ms"],
        beat=limits["heartbeats_of_1000"]["cpu_ms"],
        look=max(0.0, few - 100 * each),
        look_each=each,
        wake=(heard - alone) / int(many),
        locked=1000 / max(found["watched"]["per_s"] for found in events.values()),
        connection_mb=limits["connection"]["used_mb"],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", type=Path, help="the output of cluster_limits.py")
    parser.add_argument("--quick", action="store_true", help="up to 100 workers, within half a minute")
    given = parser.parse_args(arguments)
    costs = measured(json.loads(given.limits.read_text())) if given.limits else Costs()
    print(costs)
    for cluster in CLUSTERS:
        for workers in SIZES[:3] if given.quick else SIZES:
            print(json.dumps(anyio.run(simulate, replace(cluster, workers=workers), costs)), flush=True)


if __name__ == "__main__":
    main()
