"""Servers: the model servers that a session can be switched to while the program runs, by their providers' names.

An address comes from this table, `OLLAMA_HOST` or lmagent's own server; a key from the settings. A request names
neither.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lmagent.app.servers.found import running_server
from lmagent.config.settings import OPENROUTER_URL, PROVIDERS, Settings
from lmagent.core.errors import AuthError, ConfigError, Unreachable
from lmagent.core.model import PROVIDER_NAMES, split_name
from lmagent.providers.discovery import usual
from lmagent.providers.served import Endpoint
from lmagent.providers.urls import api_root, is_near

if TYPE_CHECKING:
    from lmagent.app.host import Host

LOCAL = "lmstudio"  # earlier clients' name for the usual server, of whatever dialect, if it is nearby

TITLES = {
    "lmstudio": "LM Studio",
    "ollama": "Ollama",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "openrouter": "OpenRouter",
    "own": "lmagent's model server",
}


def endpoint_of(settings: Settings, provider: str, env: Mapping[str, str] = os.environ) -> Endpoint:
    """Return the address and the key of a provider."""
    if provider == "own":
        running = running_server(replace(settings, llm_api_key=""))
        if running is None:
            raise Unreachable("lmagent's model server does not run", fix="start it", terminal="lmagent server start")
        return Endpoint(running.llm_url, running.llm_api_key)
    if provider == "openrouter":
        if not settings.openrouter_api_key:
            raise AuthError(
                "OpenRouter needs a key, and none is set",
                fix="put OPENROUTER_API_KEY=… into the environment or ~/.config/lmagent/.env, then start lmagent anew",
            )
        return Endpoint(OPENROUTER_URL, settings.openrouter_api_key)
    usuals = {candidate.name: candidate.base_url for candidate in usual(env)}
    url = usuals.get(TITLES[provider], PROVIDERS[provider])
    # A key goes to the server that it was set for.
    return Endpoint(url, settings.key if _is_usual(settings, url) else "")


def provider_named(provider: str) -> str:
    """Return the provider in the spelling of the table. Raise ConfigError if no provider has this name."""
    name = provider.lower()
    if name not in PROVIDER_NAMES:
        raise ConfigError(f"there is no provider {provider!r}", fix=f"one of {', '.join(PROVIDER_NAMES)}")
    return name


async def full_name(host: Host, provider: str, model: str) -> str:
    """Return the name under which a session asks for a provider's model: the plain one for the usual server."""
    settings = host.settings
    if provider.lower() == LOCAL and is_near(settings.endpoint):
        return model
    if not provider:
        provider, model = split_name(model)
    if not provider:
        return model
    provider = provider_named(provider)
    if provider == await _usual_provider(host):
        return model
    return model if _is_usual(settings, endpoint_of(settings, provider).url) else f"{provider}:{model}"


def usable(settings: Settings) -> tuple[str, ...]:
    """Return the providers to switch to: OpenRouter needs its key; of the local ones, only our own must run."""
    ready = {"openrouter": bool(settings.openrouter_api_key), "own": running_server(settings) is not None}
    return tuple(name for name in PROVIDER_NAMES if ready.get(name, True))


async def _usual_provider(host: Host) -> str:
    """Return the provider of the usual server, by its dialect."""
    model = host.agent.model
    facts = await host.served.facts("" if split_name(model)[0] else model)
    return "own" if facts.dialect == "lmagent" else facts.dialect


def _is_usual(settings: Settings, url: str) -> bool:
    one, other = (api_root(address).replace("//localhost", "//127.0.0.1") for address in (url, settings.endpoint))
    return one == other
