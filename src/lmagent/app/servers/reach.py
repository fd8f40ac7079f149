"""Reach: whether the configured model server answers, and which server of this machine could take its place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from lmagent.config.layers import Origin
from lmagent.config.loader import Loaded
from lmagent.core.errors import LmagentError
from lmagent.providers.concealed import shown

if TYPE_CHECKING:
    from lmagent.providers.discovery import FoundServer


class StandIn(Struct, frozen=True):
    """A server that answers, offered in place of the configured one (`silent`: its address, without secrets)."""

    silent: str
    origin: Origin
    server: FoundServer

    def __str__(self) -> str:
        """Return the state of both servers, without a full stop."""
        port = urlsplit(self.server.base_url).port
        return f"{self.silent} ({self.origin}) does not answer, but {self.server.name} answers on port {port}"

    @property
    def fix(self) -> str:
        """Return the remedy for a program without a terminal."""
        return f"use it for this run with --base-url {self.server.base_url}, or change {self.origin}"


async def stand_in(loaded: Loaded) -> StandIn | None:
    """Return the server to offer in place of the configured one, which is silent; None if no other one answers."""
    found = await answering()
    if not found:
        return None
    settings = loaded.settings
    return StandIn(shown(settings.given_endpoint), endpoint_origin(loaded), preferred(found, settings.llm_model))


def keep(loaded: Loaded, found: StandIn) -> str:
    """Save the new address where the silent one was saved; return a sentence for the user.

    Only the user's own `.env` is rewritten: variables, options and the files of a folder are not ours to change.
    """
    if found.origin.layer != "user .env":
        return f"Using {found.server.base_url} for this run. To keep it, change {found.origin}."
    from lmagent.config.files import save_env

    try:
        save_env(loaded.env_file, {found.origin.name: found.server.base_url})
    except LmagentError as failure:
        return f"Using {found.server.base_url} for this run; it was not saved: {failure}"
    return f"Saved {found.server.base_url} as {found.origin}."


async def answering() -> list[FoundServer]:
    """Return the model servers that answer on the usual ports of this machine."""
    from lmagent.providers.discovery import discover, usual
    from lmagent.providers.transport import HttpTransport

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
