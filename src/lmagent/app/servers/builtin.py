"""Built-in: the agent's own model server, for a machine where no other server runs and the library has a model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lmagent.config.settings import Settings
from lmagent.core.errors import ConfigError, LmagentError

if TYPE_CHECKING:
    from lmagent.app.servers.ownserver import OwnServer
    from lmagent.modelserver.library.library import Library
    from lmagent.modelserver.spec import ModelEntry

SMALLEST = 64 << 20  # bytes below which a model is too small to work as an agent


def running_server(settings: Settings) -> Settings | None:
    """Return settings that name the server of `lmagent server start`; None if it does not run."""
    from lmagent.modelserver.http.daemon import kept_key, state_of

    folder = settings.agent_data_dir / "server"
    state = state_of(folder)
    if state is None:
        return None
    return replace(settings, llm_url=f"{state.url}/v1", llm_api_key=kept_key(folder) or settings.llm_api_key)


def is_installed() -> bool:
    return find_spec("xllamacpp") is not None


def best_here(settings: Settings) -> ModelEntry | None:
    """Return the best model of this machine that the built-in engine runs; see `best_of`."""
    from lmagent.modelserver.pool.machine import machine_memory

    return best_of(_library(settings).entries(), machine_memory().free)


def in_library(settings: Settings) -> bool:
    """Return whether the built-in engine is installed and its library has the model that the settings name."""
    if is_installed():
        with suppress(LmagentError):
            return not _library(settings).find(settings.llm_model).broken
    return False


def _library(settings: Settings) -> Library:
    from lmagent.modelserver.library.library import Library
    from lmagent.modelserver.opening import demo_entries

    return Library(settings.agent_data_dir / "models", extra=demo_entries())


async def builtin_server(settings: Settings) -> tuple[Settings, OwnServer] | None:
    """Return our own model server, and settings that name it; None if the engine or a model is missing."""
    if not is_installed():
        return None
    from lmagent.app.servers.ownserver import OwnServer

    library = _library(settings)
    try:
        chosen = library.find(settings.llm_model) if settings.llm_model else best_here(settings)
    except LmagentError as error:
        text = f"no model server runs, and {error.message}"
        raise ConfigError(text, fix=error.fix, terminal=error.terminal) from error
    if chosen is None:
        return None
    server = OwnServer(library.folder)
    await server.start()
    return replace(settings, llm_url=server.url, llm_api_key=server.key, llm_model=chosen.name), server


def best_of(entries: Sequence[ModelEntry], free: int) -> ModelEntry | None:
    """Return the largest chat model that fits into `free` bytes, else the smallest; None if no model can chat."""
    able = [
        entry
        for entry in entries
        if entry.engine == "llama" and not entry.broken and not entry.settings.embedding and entry.size >= SMALLEST
    ]
    fitting = [entry for entry in able if entry.needed <= free]
    if fitting:
        return max(fitting, key=lambda entry: entry.size)
    return min(able, key=lambda entry: entry.needed, default=None)
