"""Life: what the pool knows of a model, of one life of its worker, and of a request that waits for it."""

from __future__ import annotations

import anyio
from msgspec.structs import replace

from lmagent.modelserver.engine.cause import Cause
from lmagent.modelserver.library.library import Library
from lmagent.modelserver.pool.admission import Phase, ResidentModel, Want
from lmagent.modelserver.pool.health import Health, quarantined
from lmagent.modelserver.pool.machine import compute_threads
from lmagent.modelserver.pool.process import ProcessWorker
from lmagent.modelserver.spec import (
    DEFAULT_CONTEXT,
    ModelEntry,
    ModelServerError,
    ModelState,
    ModelStatus,
    RunningModel,
    WorkerSpec,
)

SLEEP_MARGIN = 1.0  # seconds after the engine's own time of sleep until it surely sleeps


class WorkerRun:
    """One life of a worker, from its start to its end."""

    def __init__(self, entry: ModelEntry, now: float) -> None:
        self.entry = entry
        self.worker: ProcessWorker | None = None
        self.phase: Phase = "loading"
        self.active = 0
        self.used = now  # when a request last got it, or it became idle
        self.memory = needed(entry)  # bytes counted for it; while it is awake, the most that was measured
        self.awake_memory = self.memory
        self.fresh = False  # loaded, and not yet used
        self.leaving = False  # ends as soon as it is idle
        self.crash: Cause | None = None  # why it ended by itself
        self.ended = anyio.Event()

    @property
    def dead(self) -> bool:
        """Tell whether its process died, also before the end was handled."""
        return self.worker is not None and not self.worker.alive()

    @property
    def stopping(self) -> bool:
        return self.phase == "stopping"

    def measure(self, now: float) -> None:
        """Measure its memory, and notice that it has gone to sleep by itself."""
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
        """Note that it is ready: from here on the measured memory counts, not the estimate."""
        assert self.worker is not None
        self.phase, self.fresh, self.used = "ready", True, now
        self.memory = self.worker.memory() or self.memory

    def wake(self) -> None:
        """Count its whole memory again, because a request wakes it."""
        self.phase, self.memory = "ready", max(self.memory, self.awake_memory)

    def give(self, now: float) -> RunningModel:
        assert self.worker is not None
        self.active, self.used, self.fresh = self.active + 1, now, False
        # `transformers serve` knows the model by its folder, beside which it runs.
        name = self.entry.path.name if self.entry.engine == "transformers" else self.entry.name
        return RunningModel(self.entry, self.worker.address, self.worker.key, name)

    def shown(self) -> ResidentModel:
        """Return the view of it that decisions use."""
        closed = self.phase in ("ready", "sleeping") and (self.dead or (self.leaving and not self.fresh))
        phase: Phase = "stopping" if closed else self.phase
        return ResidentModel(
            self.entry.name, phase, self.memory, max(self.memory, self.awake_memory), self.active, self.used, self.fresh
        )


class Model:
    """The facts about a model for as long as the server runs."""

    def __init__(self, entry: ModelEntry) -> None:
        self.entry = entry
        self.run: WorkerRun | None = None
        self.health = Health()
        self.requests = 0
        self.active = 0
        self.used: float | None = None
        self.loaded_s = 0.0
        self.loads = 0

    def state(self, now: float) -> ModelState:
        if self.run is not None:
            return self.run.phase
        if quarantined(self.health, now):
            return "quarantined"
        return "ready" if self.entry.engine == "upstream" else "unloaded"

    def status(self, now: float, waiting: int) -> ModelStatus:
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
            loads=self.loads,
            reason=str(cause) if cause and failing else "",
        )


class Waiter:
    """A request that waits for `decided`; then `running` or `error` is set."""

    def __init__(self, ticket: int, model: Model) -> None:
        self.ticket = ticket
        self.model = model
        self.running: RunningModel | None = None
        self.run: WorkerRun | None = None
        self.error: ModelServerError | None = None
        self.decided = anyio.Event()

    def shown(self) -> Want:
        return Want(self.ticket, self.model.entry.name, needed(self.model.entry))

    def answer(self, error: ModelServerError) -> None:
        self.error = error
        self.decided.set()


def needed(entry: ModelEntry) -> int:
    """Return the estimated bytes of a model, at least 1."""
    return max(entry.needed or entry.size, 1)


def spec_of(entry: ModelEntry, catalogue: Library) -> WorkerSpec:
    """Return the model for its worker, with every default of its settings filled in."""
    settings = entry.settings
    draft = str(catalogue.find(settings.draft).path.absolute()) if settings.draft else ""
    context, threads = settings.context or DEFAULT_CONTEXT, settings.threads or compute_threads()
    settings = replace(settings, context=context, threads=threads)
    return WorkerSpec(str(entry.path.absolute()), entry.name, "", settings, draft)
