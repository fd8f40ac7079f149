"""Life: a worker from its start to its end, and what its end means."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.to_thread
from msgspec.structs import replace

from lmagent.core.plurals import plural
from lmagent.core.ports import Clock
from lmagent.modelserver import health
from lmagent.modelserver.announcer import Announcer
from lmagent.modelserver.cause import Cause
from lmagent.modelserver.facts import read_facts
from lmagent.modelserver.measure import compute_threads
from lmagent.modelserver.memory import context_of
from lmagent.modelserver.process import StartError, Workers
from lmagent.modelserver.refusals import size
from lmagent.modelserver.resident import Model, Run
from lmagent.modelserver.spec import DEFAULT_CONTEXT, Catalogue, ModelEntry, ModelServerError, ModelSettings, WorkerSpec


class Life:
    """Lives of workers.

    Args:
        catalogue: where draft models are looked up.
        workers: starts them.
        clock: time.
        announcer: is told what happens.
        changed: called behind every change.
    """

    def __init__(
        self, catalogue: Catalogue, workers: Workers, clock: Clock, announcer: Announcer, changed: Callable[[], None]
    ) -> None:
        self._catalogue = catalogue
        self._workers = workers
        self._clock = clock
        self._announcer = announcer
        self._changed = changed

    async def live(self, model: Model, run: Run) -> None:
        """A worker's whole life. Nothing of it is left when this returns, also when it is cancelled."""
        try:
            cause = await self._load(model, run)
            if cause is None:
                assert run.worker is not None
                cause = await run.worker.ended()
                self._crashed(model, run, cause)
            elif not run.stopping:
                model.health = health.failed(model.health, self._clock.monotonic(), cause)
                self._say(f"{run.entry.name}: could not be loaded: {cause}")
        finally:
            run.phase = "stopping"
            if run.worker is not None:
                with anyio.CancelScope(shield=True):
                    await run.worker.stop()
            model.run = None
            run.ended.set()
        self._changed()

    async def _load(self, model: Model, run: Run) -> Cause | None:
        """Start it and wait until it is ready; otherwise the cause."""
        began = self._clock.monotonic()
        self._say(f"{run.entry.name}: loading")
        try:
            spec = await anyio.to_thread.run_sync(spec_of, run.entry, self._catalogue)
            if run.stopping:
                return Cause("it was unloaded while it was loading")
            run.worker = self._workers.start(run.entry, spec)
            await run.worker.ready()
        except StartError as error:
            return error.cause
        except ModelServerError as error:
            return Cause(error.message, error.fix)
        except OSError as error:
            return Cause(str(error))
        now = self._clock.monotonic()
        if run.stopping:
            return Cause("it was unloaded while it was loading")
        model.loaded_s = now - began
        model.health = health.loaded(model.health)
        run.loaded(now)
        self._say(f"{run.entry.name}: ready after {model.loaded_s:.1f} s, {size(run.memory)}")
        self._changed()
        return None

    def _crashed(self, model: Model, run: Run, cause: Cause) -> None:
        if run.stopping:
            self._say(f"{run.entry.name}: unloaded")
            return
        now = self._clock.monotonic()
        run.crash = cause
        model.health = health.crashed(model.health, now, cause)
        pause = model.health.quarantined_until - now
        kept = f"; not started again for {pause:.0f} s" if health.quarantined(model.health, now) else ""
        self._say(f"{run.entry.name}: crashed, {plural(run.active, 'request')} lost: {cause}{kept}")

    def _say(self, text: str) -> None:
        self._announcer.say(self._clock.now(), text)


def spec_of(entry: ModelEntry, catalogue: Catalogue) -> WorkerSpec:
    """What the worker of a model is told.

    Args:
        entry: the model.
        catalogue: where a draft model is looked up.

    Raises:
        ModelServerError: the draft model is not there.
    """
    draft = str(catalogue.find(entry.settings.draft).path.absolute()) if entry.settings.draft else ""
    return WorkerSpec(str(entry.path.absolute()), entry.name, "", filled(entry), draft)


def filled(entry: ModelEntry) -> ModelSettings:
    """A model's settings with every default filled in."""
    settings = entry.settings
    context = settings.context
    if not context and entry.engine == "llama":
        try:
            context = context_of(read_facts(entry.path), settings)
        except (ModelServerError, OSError, ValueError):
            context = DEFAULT_CONTEXT  # the engine will say what is wrong with the file
    return replace(settings, context=context or DEFAULT_CONTEXT, threads=settings.threads or compute_threads())
