"""Admission: decides which requests run, which models are loaded, and which are ended. A pure function of a snapshot.

The rules:

- A request whose model is ready runs, together with all requests that wait for that model.
- A request whose model has to be loaded (or woken) starts that as soon as the memory is free. The first request without
  enough memory is *blocked*: the models that have to go for it, the least recently used first and idle ones before busy
  ones, take no more requests, and are ended once they are idle. So it waits only for requests that run already, and no
  request starves.
- After a blocked request, others run if their model is ready and need not go, and load if they take no memory that the
  blocked one waits for.
- A model that was just loaded serves all requests that wait for it before anything else is decided. So two models that
  take turns in a memory for one are swapped once for every batch, not once for every request.
- A model that would not fit if it were alone is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Phase = Literal["loading", "ready", "sleeping", "stopping"]


class ResidentModel(Struct, frozen=True):
    """A model that has a worker."""

    name: str  # the model's
    phase: Phase  # `loading`: not to be asked yet; `stopping`: takes no more requests, and its memory comes back
    memory: int  # bytes that are counted for it
    needed: int = 0  # bytes that it takes when it is awake; looked at while it sleeps
    active: int = 0  # requests that run
    used: float = 0.0  # when it was last given to a request (while some run), or last became idle
    fresh: bool = False  # just loaded, and not yet used


class Want(Struct, frozen=True):
    """A request that waits."""

    ticket: int  # its number; later ones have higher numbers
    name: str  # the model that it wants
    needed: int  # bytes that this model takes


class PoolSnapshot(Struct, frozen=True):
    budget: int  # bytes for all models together
    residents: Sequence[ResidentModel] = ()  # those that have a worker
    queue: Sequence[Want] = ()  # those who wait, by ticket


class PoolDecision(Struct):
    """The changes to make, all at once."""

    grants: list[int] = []  # tickets of requests that run now
    wakes: list[str] = []  # models that sleep and were granted; they take their whole memory again
    starts: list[str] = []  # models to load
    evictions: list[str] = []  # models to end; they are idle
    refusals: list[int] = []  # tickets of requests whose model can never fit


def decide(snapshot: PoolSnapshot) -> PoolDecision:
    plan = _PoolPlan(snapshot)
    for resident in snapshot.residents:
        if resident.fresh and resident.phase == "ready":
            plan.grant(resident.name)
    for want in snapshot.queue:
        plan.consider(want)
    return plan.decision


class _PoolPlan:
    """A decision in the making."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self.decision = PoolDecision()
        self._budget = snapshot.budget
        self._queue = snapshot.queue
        self._residents = {resident.name: resident for resident in snapshot.residents}
        self._served: set[str] = set()
        self._closed: set[str] = set()
        self._free = snapshot.budget - sum(resident.memory for resident in snapshot.residents)
        self._later: int | None = None
        """Bytes that are free once the blocked request is served; None while no request is blocked."""

    def grant(self, name: str) -> None:
        """Let all requests run that wait for a model."""
        tickets = [want.ticket for want in self._queue if want.name == name]
        if tickets:
            self._served.add(name)
            self.decision.grants += tickets

    def consider(self, want: Want) -> None:
        """Decide about one request; those before it in the queue were considered."""
        name = want.name
        resident = self._residents.get(name)
        if name in self._served or name in self.decision.starts or name in self._closed:
            return
        if resident is not None and resident.phase == "ready":
            self.grant(name)
        elif resident is not None and resident.phase == "sleeping":
            # One that has grown beyond the budget while it was alone may have it alone again.
            self._make(want, max(0, min(resident.needed, self._budget) - resident.memory))
        elif resident is None and want.needed > self._budget:
            self.decision.refusals.append(want.ticket)
        elif resident is None:
            self._make(want, want.needed)

    def _make(self, want: Want, needed: int) -> None:
        """Load or wake the model if it fits, or make room for it."""
        if self._later is not None:
            if needed <= min(self._free, self._later):
                self._later -= needed
                self._begin(want.name, needed)
        elif needed <= self._free:
            self._begin(want.name, needed)
        else:
            self._block(want.name, needed)

    def _begin(self, name: str, needed: int) -> None:
        self._free -= needed
        if name in self._residents:
            self.decision.wakes.append(name)
            self.grant(name)
        else:
            self.decision.starts.append(name)

    def _block(self, name: str, needed: int) -> None:
        """Let the request wait, and choose the models that go for it."""
        coming = sum(resident.memory for resident in self._residents.values() if resident.phase == "stopping")
        victims = self._victims(name, needed - self._free - coming)
        self._later = self._free + coming + sum(victim.memory for victim in victims) - needed
        self._closed |= {victim.name for victim in victims}
        self.decision.evictions += [victim.name for victim in victims if self._idle(victim)]

    def _victims(self, name: str, missing: int) -> list[ResidentModel]:
        """Return the least recently used models that free the missing bytes; all candidates if they are not enough."""
        could = [r for r in self._residents.values() if r.phase in ("ready", "sleeping") and r.name != name]
        could.sort(key=lambda resident: (not self._idle(resident), resident.used, resident.name))
        chosen: list[ResidentModel] = []
        for resident in could:
            if missing <= 0:
                break
            chosen.append(resident)
            missing -= resident.memory
        for resident in reversed(chosen[:-1]):  # later ones may have made it needless
            if missing + resident.memory <= 0:
                chosen.remove(resident)
                missing += resident.memory
        return chosen

    def _idle(self, resident: ResidentModel) -> bool:
        return resident.active == 0 and resident.name not in self._served
