"""Found: the model servers of this machine: those that answer, and our own built-in one if no other runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from lmagent.config.layers import Origin
from lmagent.config.loader import Loaded
from lmagent.config.settings import Settings
from lmagent.core.errors import ConfigError, LmagentError, Unreachable
from lmagent.providers.concealed import shown
from lmagent.providers.discovery import discover, usual
from lmagent.providers.transport import HttpTransport, Transport

if TYPE_CHECKING:
    from lmagent.app.servers.ownserver import OwnServer
    from lmagent.modelserver.library.library import Library
    from lmagent.modelserver.spec import ModelEntry
    from lmagent.providers.discovery import FoundServer

SMALLEST = 64 << 20  # bytes below which a model is too small to work as an agent


async def with_found_server(
    settings: Settings, transport: Transport, say: Callable[[str], None]
) -> tuple[Settings, OwnServer | None]:
    """Without a configured model server, use the first usual one that runs, else run our own."""
    found = await discover(transport, usual(os.environ))
    chosen = preferred(found, settings.llm_model) if found else None
    if chosen is not None and (not settings.llm_model or lists(chosen, settings.llm_model) or not in_library(settings)):
        others = ", ".join(one.name for one in found if one is not chosen)
        more = f" ({others} run too; choose with --base-url or LLM_URL)" if others else ""
        say(f"Found {chosen.name} at {chosen.base_url}{more}")
        return replace(settings, llm_url=chosen.base_url), None
    if (running := running_server(settings)) is not None:
        say(f"Found lmagent's model server at {running.llm_url}")
        return running, None
    built = await builtin_server(settings)
    if built is None:
        return settings, None
    say(f"{built[0].llm_model} runs here, on the built-in engine")
    return built


# --- the built-in server ----------------------------------------------------------------------------------------------


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


# --- servers that answer ----------------------------------------------------------------------------------------------


async def stand_in(loaded: Loaded) -> Unreachable | None:
    """Return the error that names a server in place of the configured one, which is silent; None if no other one
    answers."""
    found = await answering()
    if not found:
        return None
    settings, origin = loaded.settings, endpoint_origin(loaded)
    other = preferred(found, settings.llm_model)
    answers = f"{other.name} answers on port {urlsplit(other.base_url).port}"
    return Unreachable(
        f"{shown(settings.given_endpoint)} ({origin}) does not answer, but {answers}",
        fix=f"use it for this run with --base-url {other.base_url}, or change {origin}",
    )


async def answering() -> list[FoundServer]:
    """Return the model servers that answer on the usual ports of this machine."""
    transport = HttpTransport()
    try:
        return await discover(transport, usual(os.environ))
    finally:
        await transport.aclose()


def endpoint_origin(loaded: Loaded) -> Origin:
    settings = loaded.settings
    named = "llm_url" if settings.llm_url else "llm_base_url" if settings.llm_base_url else "openrouter_api_key"
    return loaded.origins[named]


def preferred(found: Sequence[FoundServer], model: str) -> FoundServer:
    """Return the first server that lists the model; the first of all if none does."""
    return next((server for server in found if lists(server, model)), found[0])


def lists(server: FoundServer, model: str) -> bool:
    """Return whether a server lists a model; `:latest` may be left out."""
    return not {model, f"{model}:latest"}.isdisjoint(server.models)
