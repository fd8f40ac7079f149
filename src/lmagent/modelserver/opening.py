"""Opening: the parts of the model server, put together."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from lmagent.core.errors import LmagentError
from lmagent.core.ports import Clock
from lmagent.demo import model_path
from lmagent.modelserver.http.guard import AccessRules
from lmagent.modelserver.http.router import Router
from lmagent.modelserver.http.serving import ServerSettings
from lmagent.modelserver.library.library import Library
from lmagent.modelserver.pool.pool import PoolOptions, open_pool
from lmagent.modelserver.pool.process import Processes
from lmagent.modelserver.spec import ModelEntry, ModelSettings

DEMO = "lmagent-demo"  # name of the model that comes along. It is only used by who asks for it
DEMO_NEEDS = 200 << 20  # bytes of memory: its weights are next to nothing, its cache and the engine are not


def demo_entries() -> tuple[ModelEntry, ...]:
    """Return the demo model; empty if its file is damaged or missing, which `lmagent demo` reports."""
    try:
        path = model_path()
    except LmagentError:
        return ()
    size = path.stat().st_size
    settings = ModelSettings(context=32_768, threads=1, ttl=300.0)
    return (ModelEntry(DEMO, "llama", path, settings, source="demo", size=size, needed=DEMO_NEEDS),)


@asynccontextmanager
async def open_server(settings: ServerSettings, clock: Clock) -> AsyncGenerator[Router]:
    """Open the router with its models and workers; after the block no worker is left."""
    models = settings.models_dir or settings.folder.parent / "models"
    catalogue = Library(models, os.environ, extra=demo_entries(), ttl=settings.ttl)
    logs = settings.folder / "logs"
    workers = Processes(logs, keyed=bool(settings.key))
    options = PoolOptions(settings.memory, journal=logs / "server.log")
    rules = AccessRules(settings.bind, settings.key, settings.cors, settings.origins)
    async with open_pool(catalogue, workers, clock, options) as pool:
        yield Router(catalogue, pool, rules)
