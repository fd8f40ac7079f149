"""Resident: what the pool knows of a model, and of its worker while there is one."""

from __future__ import annotations

import anyio

from lmagent.modelserver.admission import Phase, Resident, Want
from lmagent.modelserver.cause import Cause
from lmagent.modelserver.health import Health, quarantined
from lmagent.modelserver.process import Worker
from lmagent.modelserver.spec import ModelEntry, ModelServerError, ModelStatus, Running, State

SLEEP_MARGIN = 1.0
"""Seconds behind the engine's own time of sleep after which it surely sleeps."""


class Run:
    """One life of a worker, from its start to its end.

    Args:
        entry: the model, as it was when the worker was started.
        now: monotonic seconds.

    Attributes:
        worker: the process; None while it is being started.
        phase: see `admission.Phase`.
        active: requests that have it.
        used: when it was last given to a request, or became idle.
        memory: bytes that are counted for it; while it is awake, the most that was measured.
        fresh: loaded, and nobody had it yet.
        leaving: it ends as soon as it is idle.
        crash: why it ended, where nobody asked it to.
        ended: it is gone.
    """

    def __init__(self, entry: ModelEntry, now: float) -> None:
        self.entry = entry
        self.worker: Worker | None = None
        self.phase: Phase = "loading"
        self.active = 0
        self.used = now
        self.memory = needed(entry)
        self.awake_memory = self.memory
        self.fresh = False
        self.leaving = False
        self.crash: Cause | None = None
        self.ended = anyio.Event()

    @property
    def dead(self) -> bool:
        """Whether its process died, also where nobody has taken notice yet."""
        return self.worker is not None and not self.worker.alive()

    @property
    def stopping(self) -> bool:
        """Whether it is on its way out."""
        return self.phase == "stopping"

    def measure(self, now: float) -> None:
        """Look at its memory, and whether it has gone to sleep by itself."""
        if self.worker is None or self.phase not in ("ready", "sleeping"):
            return
        sleep = self.entry.settings.sleep
        if self.phase == "ready" and not self.active and sleep > 0 and now - self.used >= sleep + SLEEP_MARGIN:
            self.phase, self.awake_memory = "sleeping", self.memory
        if self.phase == "sleeping":
            self.memory = self.worker.memory(awake=False)
        else:
            self.memory = max(self.memory, self.worker.memory())

    def loaded(self, now: float) -> None:
        """It can be asked now: from here on what was measured counts, not what was estimated."""
        assert self.worker is not None
        self.phase, self.fresh, self.used = "ready", True, now
        self.memory = self.worker.memory()

    def wake(self) -> None:
        """A request wakes it: it takes its memory again."""
        self.phase, self.memory = "ready", max(self.memory, self.awake_memory)

    def give(self, now: float) -> Running:
        """Have it for a request."""
        assert self.worker is not None
        self.active, self.used, self.fresh = self.active + 1, now, False
        return Running(self.entry, self.worker.address, self.worker.key, self.entry.name)

    def shown(self) -> Resident:
        """It, as decisions see it."""
        closed = self.phase in ("ready", "sleeping") and (self.dead or (self.leaving and not self.fresh))
        phase: Phase = "stopping" if closed else self.phase
        return Resident(
            self.entry.name, phase, self.memory, max(self.memory, self.awake_memory), self.active, self.used, self.fresh
        )


class Model:
    """What is known of a model for as long as the server runs.

    Attributes:
        entry: as the library last had it.
        run: its worker's life; None while it has none.
        health: its past.
        requests: so far.
        active: requests that run; only counted here for what has no worker.
        used: when it was last asked for or became idle; None if it never was.
        loaded_s: seconds that the last load took.
    """

    def __init__(self, entry: ModelEntry) -> None:
        self.entry = entry
        self.run: Run | None = None
        self.health = Health()
        self.requests = 0
        self.active = 0
        self.used: float | None = None
        self.loaded_s = 0.0

    def state(self, now: float) -> State:
        """Its state as others see it."""
        if self.run is not None:
            return self.run.phase
        if quarantined(self.health, now):
            return "quarantined"
        return "ready" if self.entry.engine == "upstream" else "unloaded"

    def status(self, now: float, waiting: int) -> ModelStatus:
        """It as others see it.

        Args:
            now: monotonic seconds.
            waiting: requests that wait for it.
        """
        run = self.run
        state = self.state(now)
        active = run.active if run else self.active
        cause = self.health.cause
        failing = state == "quarantined" or (run is None and self.health.failures > 0)
        return ModelStatus(
            self.entry,
            state,
            pid=run.worker.pid if run and run.worker else 0,
            memory=run.worker.memory(awake=state == "ready") if run and run.worker else 0,
            active=active,
            waiting=waiting,
            requests=self.requests,
            crashes=self.health.total,
            idle_s=0.0 if active or self.used is None else max(0.0, now - self.used),
            loaded_s=self.loaded_s,
            reason=str(cause) if cause and failing else "",
        )


class Waiter:
    """A request that waits.

    Attributes:
        ticket: its number.
        model: what it waits for.
        running: what it got.
        run: whose.
        error: why it gets nothing.
        decided: one of them is set.
    """

    def __init__(self, ticket: int, model: Model) -> None:
        self.ticket = ticket
        self.model = model
        self.running: Running | None = None
        self.run: Run | None = None
        self.error: ModelServerError | None = None
        self.decided = anyio.Event()

    def shown(self, now: float) -> Want:
        """It, as decisions see it."""
        entry = self.model.entry
        return Want(self.ticket, entry.name, needed(entry), held=now < self.model.health.start_at)

    def answer(self, error: ModelServerError) -> None:
        """It gets nothing."""
        self.error = error
        self.decided.set()


def needed(entry: ModelEntry) -> int:
    """Bytes that the model is taken to need: never nothing."""
    return max(entry.needed or entry.size, 1)
