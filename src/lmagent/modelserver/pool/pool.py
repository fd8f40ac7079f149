"""Pool: starts, lends, measures and ends workers; `admission` decides which requests are served.

All of its state changes in the thread of the event loop and between two awaits, so a decision and its effects are one
step. A lease has no cancel scope and belongs to no task: it may be taken in one and given back in another.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import LmagentError, ungrouped
from lmagent.core.plurals import plural
from lmagent.core.ports import Clock
from lmagent.modelserver.engine.cause import Cause
from lmagent.modelserver.engine.devices import ask_engine
from lmagent.modelserver.errors import Lost
from lmagent.modelserver.library.library import Library
from lmagent.modelserver.pool import health, refusals
from lmagent.modelserver.pool.admission import PoolSnapshot, decide
from lmagent.modelserver.pool.journal import Journal
from lmagent.modelserver.pool.life import Model, Waiter, WorkerRun, needed, spec_of
from lmagent.modelserver.pool.machine import machine_memory
from lmagent.modelserver.pool.process import Processes, StartError
from lmagent.modelserver.spec import LoadOptions, ModelEntry, ModelServerError, ModelStatus, RunningModel

SHARE = 0.8  # share of the memory that is available at the start which all models together may take
GPU_LIMIT = 20.0  # seconds that the engine has to list the graphics cards when the pool is opened
NOTICE = 0.5  # seconds after a request's failure in which its worker may turn out to be dead


class PoolOptions(Struct, frozen=True):
    budget: int = 0  # bytes that all models together may take; 0 for `SHARE` of the memory that is free at the start
    tick: float = 1.0  # seconds between looks at memory, idle times and pauses that are over
    journal: Path = Path(os.devnull)  # the file with the server's own log


class WorkerPool:
    """The workers, as the router uses them; made by `open_pool`."""

    def __init__(
        self,
        catalogue: Library,
        workers: Processes,
        clock: Clock,
        options: PoolOptions,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self._catalogue = catalogue
        self._workers = workers
        self._clock = clock
        self._options = options
        self._tasks = tasks
        self._models: dict[str, Model] = {}
        self._given: dict[str, LoadOptions] = {}
        self._queue: list[Waiter] = []
        self._tickets = count(1)
        self.journal = Journal(options.journal)
        self.evictions = 0  # models that made room for others
        self._closing = False

    @property
    def budget(self) -> int:
        return self._options.budget

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator[RunningModel]:
        """Lend a model; an error that leaves the block becomes `worker_crashed` if the worker died."""
        running, model, run = await self._acquire(name)
        failure: Exception | None = None
        try:
            yield running
        except Exception as error:  # noqa: BLE001 (raised below, once the model was given back)
            failure = error
        finally:
            self._release(model, run)
        if failure is None:
            return
        ours = isinstance(failure, LmagentError) and not isinstance(failure, Lost)
        if run is not None and not ours:
            with anyio.move_on_after(NOTICE):  # a broken connection is seen before a dead process
                await run.ended.wait()
            if run.crash:
                raise refusals.crashed(run.entry, run.crash, self.log(run.entry.name)) from failure
        raise failure

    def statuses(self) -> Sequence[ModelStatus]:
        known = {entry.name: entry for entry in self._catalogue.entries()}
        for name, model in self._models.items():
            if model.run is not None:
                known.setdefault(name, model.entry)
        now = self._clock.monotonic()
        return [self._status(self._models.get(name) or Model(known[name]), now) for name in sorted(known)]

    async def load(self, name: str, options: LoadOptions | None = None) -> ModelStatus:
        """Load a model now; lifts a quarantine. With options it is loaded anew if it runs with other settings."""
        if options is not None:
            entry = self._catalogue.find(name)
            if entry.engine == "upstream":
                raise refusals.elsewhere(entry)
            self._given[entry.name] = options
        model = self._model(self._find(name))
        model.health = health.lifted(model.health)
        async with self.lease(model.entry.name):
            pass
        return self._status(model, self._clock.monotonic())

    def prefer(self, name: str, options: LoadOptions) -> ModelStatus:
        """Let the next load of a model have these options, but for one that is loaded and one of another server."""
        model = self._model(self._find(name))
        if model.run is None and model.entry.engine != "upstream":
            self._given[model.entry.name] = options
            model = self._model(self._find(model.entry.name))
        return self._status(model, self._clock.monotonic())

    async def unload(self, name: str) -> ModelStatus:
        """Unload a model, whose file may be gone; from then on its own settings hold.

        Requests still waiting for it load it again.
        """
        self._given.pop(name, None)
        model = self._models.get(name)
        if model is None or model.run is None:
            model = self._model(self._find(name))
        if (run := model.run) is not None:
            run.leaving = True
            self.decide()
            await run.ended.wait()
        return self._status(model, self._clock.monotonic())

    def log(self, name: str) -> Path:
        return self._workers.log(name)

    async def _acquire(self, name: str) -> tuple[RunningModel, Model, WorkerRun | None]:
        """Wait until the model can be used; `_release` gives it back."""
        model = self._model(self._find(name))
        self._check(model)
        model.requests += 1
        if model.entry.engine == "upstream":
            model.active += 1
            return upstream(model.entry), model, None
        waiter = Waiter(next(self._tickets), model)
        self._queue.append(waiter)
        self.decide()
        try:
            await waiter.decided.wait()
        except BaseException:
            if waiter.running is not None:
                self._release(model, waiter.run)
            elif waiter in self._queue:
                self._queue.remove(waiter)
                self.decide()
            raise
        if waiter.error is not None:
            raise waiter.error
        assert waiter.running is not None
        return waiter.running, model, waiter.run

    def _release(self, model: Model, run: WorkerRun | None) -> None:
        now = self._clock.monotonic()
        model.used = now
        if run is None:
            model.active -= 1
        else:
            run.active -= 1
            run.used = now if not run.active else run.used
        self.decide()

    def decide(self) -> None:
        """Carry out all that can be done now. Called after every change."""
        now = self._clock.monotonic()
        self._settle(now)
        runs = {model.entry.name: model.run for model in self._models.values() if model.run is not None}
        snapshot = PoolSnapshot(
            self.budget,
            [run.shown() for run in runs.values()],
            [waiter.shown() for waiter in self._queue],
        )
        decision = decide(snapshot)
        for run in runs.values():
            run.fresh = False
        for name in decision.wakes:
            runs[name].wake()
        waiting = {waiter.ticket: waiter for waiter in self._queue}
        for ticket in decision.grants:
            self._grant(waiting[ticket], now)
        for ticket in decision.refusals:
            entry = waiting[ticket].model.entry
            self._answer(waiting[ticket], refusals.too_large(entry, needed(entry), self.budget))
        for name in decision.evictions:
            self.evictions += 1
            self._stop(runs[name], "it makes room")
        for name in decision.starts:
            model = self._models[name]
            model.run = WorkerRun(model.entry, now)
            self._tasks.start_soon(self._live, model, model.run)
        wanted = {waiter.model.run for waiter in self._queue}
        for run in runs.values():
            unused = run.phase in ("ready", "sleeping") or (run.phase == "loading" and run not in wanted)
            if run.leaving and not run.active and unused:
                self._stop(run, "it was asked to")

    async def _live(self, model: Model, run: WorkerRun) -> None:
        """Run a worker's whole life; nothing of it is left after this returns or is cancelled."""
        try:
            cause = await self._load(model, run)
            if cause is None:
                assert run.worker is not None
                self._crashed(model, run, await run.worker.ended())
            elif not run.stopping:
                model.health = health.failed(model.health, self._clock.monotonic(), cause)
                self._say(run, f"could not be loaded: {cause}")
        finally:
            run.phase = "stopping"
            if run.worker is not None:
                with anyio.CancelScope(shield=True):
                    await run.worker.stop()
            model.run = None
            run.ended.set()
        self.decide()

    async def _load(self, model: Model, run: WorkerRun) -> Cause | None:
        """Start the worker and wait until it is ready; return the cause of a failure."""
        began = self._clock.monotonic()
        self._say(run, "loading")
        try:
            spec = await anyio.to_thread.run_sync(spec_of, run.entry, self._catalogue)
            if not run.stopping:
                run.worker = self._workers.start(run.entry, spec)
                await run.worker.ready()
        except StartError as error:
            return error.cause
        except ModelServerError as error:
            return Cause(error.message, error.fix)
        except OSError as error:
            return Cause(str(error))
        if run.stopping:
            return Cause("it was unloaded while it was loading")
        now = self._clock.monotonic()
        model.loaded_s, model.loads = now - began, model.loads + 1
        model.health = health.loaded(model.health)
        run.loaded(now)
        self._say(run, f"ready after {model.loaded_s:.1f} s, {refusals.size(run.memory)}")
        self.decide()
        return None

    def _crashed(self, model: Model, run: WorkerRun, cause: Cause) -> None:
        if run.stopping:
            self._say(run, "unloaded")
            return
        now = self._clock.monotonic()
        run.crash = cause
        model.health = health.crashed(model.health, now, cause)
        pause = model.health.quarantined_until - now
        kept = f"; not started again for {pause:.0f} s" if health.quarantined(model.health, now) else ""
        self._say(run, f"crashed, {plural(run.active, 'request')} lost: {cause}{kept}")

    def _say(self, run: WorkerRun, text: str) -> None:
        self.journal.say(self._clock.now(), f"{run.entry.name}: {text}")

    async def tend(self) -> None:
        """Watch memory, sleep, idle times and pauses, without end."""
        while True:
            await self._clock.sleep(self._options.tick)
            now = self._clock.monotonic()
            for model in self._models.values():
                if (run := model.run) is None or run.worker is None:
                    continue
                run.measure(now)
                run.worker.tidy()
                ttl = run.entry.settings.ttl
                awake = run.phase in ("ready", "sleeping")
                if awake and not run.active and ttl > 0 and now - run.used >= ttl:
                    self._stop(run, f"no request for {ttl:.0f} s")
            self.decide()

    async def close(self) -> None:
        """Refuse new requests, and end all workers."""
        self._closing = True
        for waiter in list(self._queue):
            self._answer(waiter, refusals.closing())
        runs = [model.run for model in self._models.values() if model.run is not None]
        async with anyio.create_task_group() as tasks:
            for run in runs:
                run.phase = "stopping"
                if run.worker is not None:
                    tasks.start_soon(run.worker.stop)

    def _find(self, name: str) -> ModelEntry:
        """Return the model that a name means, with the settings of the last request to load it."""
        entry = self._catalogue.find(name)
        given = self._given.get(entry.name)
        return self._catalogue.adjusted(entry, given) if given is not None else entry

    def _model(self, entry: ModelEntry) -> Model:
        """Return the model with the library's newest entry. A changed one is started anew when it is idle."""
        model = self._models.setdefault(entry.name, Model(entry))
        if model.entry != entry:
            changed = model.entry.path != entry.path or model.entry.settings != entry.settings
            model.entry = entry
            model.health = health.lifted(model.health)
            if changed and model.run is not None:
                model.run.leaving = True
        return model

    def _check(self, model: Model) -> None:
        """Refuse a request that is known to fail."""
        now = self._clock.monotonic()
        entry, past = model.entry, model.health
        if self._closing:
            raise refusals.closing()
        if entry.broken:
            raise refusals.broken(entry)
        if health.quarantined(past, now):
            raise refusals.quarantined(entry, past, now)
        if now < past.refuse_until and past.cause is not None and model.run is None:
            raise refusals.not_loaded(entry, past.cause, self.log(entry.name), past.refuse_until - now)

    def _settle(self, now: float) -> None:
        """Answer the requests whose model failed meanwhile, all with one reason."""
        for waiter in list(self._queue):
            if waiter.model.run is None:
                try:
                    self._check(waiter.model)
                except ModelServerError as error:
                    self._answer(waiter, error)

    def _grant(self, waiter: Waiter, now: float) -> None:
        run = waiter.model.run
        assert run is not None
        self._queue.remove(waiter)
        waiter.run, waiter.running = run, run.give(now)
        waiter.model.used = now
        waiter.decided.set()

    def _answer(self, waiter: Waiter, error: ModelServerError) -> None:
        self._queue.remove(waiter)
        waiter.answer(error)

    def _stop(self, run: WorkerRun, why: str) -> None:
        run.phase = "stopping"
        self._say(run, f"unloading, {why}")
        if run.worker is not None:
            self._tasks.start_soon(run.worker.stop)

    def _status(self, model: Model, now: float) -> ModelStatus:
        return model.status(now, sum(waiter.model is model for waiter in self._queue))


def upstream(entry: ModelEntry) -> RunningModel:
    return RunningModel(entry, entry.url.rstrip("/").removesuffix("/v1"), entry.key, entry.upstream or entry.name)


def _gpu_free() -> int:
    return sum(device.free for device in ask_engine(seconds=GPU_LIMIT).gpus)


@asynccontextmanager
async def open_pool(
    catalogue: Library, workers: Processes, clock: Clock, options: PoolOptions | None = None
) -> AsyncGenerator[WorkerPool]:
    """Open the pool; after the block no worker is left."""
    chosen = options or PoolOptions()
    if chosen.budget <= 0:
        available = machine_memory().free + await anyio.to_thread.run_sync(_gpu_free)
        chosen = replace(chosen, budget=int(available * SHARE))
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            pool = WorkerPool(catalogue, workers, clock, chosen, tasks)
            tasks.start_soon(pool.tend)
            try:
                yield pool
            finally:
                with anyio.CancelScope(shield=True):
                    await pool.close()
                    tasks.cancel_scope.cancel()
