"""Discovery: finds the model servers of this machine, and their lists of models. `dialects` identifies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import anyio
from msgspec import Struct

from lmagent.core.errors import ConfigError
from lmagent.providers import failures, jsontext
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.fields import at, entries, text
from lmagent.providers.dialects.probe import DIALECTS, OLLAMA_PORT
from lmagent.providers.transport import Timeouts, Transport, TransportError, json_headers, read_all
from lmagent.providers.urls import api_root, server_root

_BODY = 8 * 1024 * 1024
_QUICK = Timeouts(connect=0.5, first_byte=2.0, idle=2.0)


class Candidate(Struct, frozen=True):
    name: str
    base_url: str


class FoundServer(Struct, frozen=True):
    name: str
    base_url: str
    models: tuple[str, ...]


DEFAULT = (
    Candidate("LM Studio", "http://127.0.0.1:1234/v1"),
    Candidate("Ollama", f"http://127.0.0.1:{OLLAMA_PORT}/v1"),
    Candidate("llama.cpp", "http://127.0.0.1:8080/v1"),
    Candidate("vLLM", "http://127.0.0.1:8000/v1"),
)
"""The default ports of the usual servers."""


def usual(env: Mapping[str, str]) -> tuple[Candidate, ...]:
    """Return the usual servers; Ollama at the address that its own variable `OLLAMA_HOST` names, if it is set."""
    named = env.get("OLLAMA_HOST", "").strip()
    try:
        root = urlsplit(server_root(named)) if named else None
    except ConfigError:
        root = None
    if root is None:
        return DEFAULT
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(root.hostname or "", root.hostname or "")
    host = f"[{host}]" if ":" in host else host
    port = root.port or (OLLAMA_PORT if "://" not in named else 443 if root.scheme == "https" else 80)
    ollama = Candidate("Ollama", f"{root.scheme}://{host}:{port}/v1")
    return tuple(ollama if candidate.name == "Ollama" else candidate for candidate in DEFAULT)


async def discover(
    transport: Transport, candidates: Sequence[Candidate] = DEFAULT, timeouts: Timeouts = _QUICK
) -> list[FoundServer]:
    """Return the candidates that answer like a model server, in the order given. Never raises for the others."""
    found: dict[int, FoundServer] = {}

    async def probe(number: int, candidate: Candidate) -> None:
        answer = await Ask(transport, candidate.base_url, timeouts=timeouts).models()
        if (names := _names(answer)) is not None:
            listed = entries(answer, "data")
            owner = text(listed[0] if listed else answer, "owned_by")
            label = next((label for _, label, owners in DIALECTS.values() if owner in owners), "")
            found[number] = FoundServer(label or candidate.name, candidate.base_url, names)

    async with anyio.create_task_group() as group:
        for number, candidate in enumerate(candidates):
            group.start_soon(probe, number, candidate)
    return [found[number] for number in sorted(found)]


async def models(
    base_url: str, api_key: str = "", *, transport: Transport, timeouts: Timeouts = _QUICK
) -> tuple[str, ...]:
    """Return the names of the models that a server lists. Raise ProviderError if it lists none."""
    url = f"{api_root(base_url)}/models"
    try:
        async with await transport.send("GET", url, json_headers(api_key), b"", timeouts) as response:
            body = await read_all(response, _BODY)
    except TransportError as error:
        raise failures.from_transport(error, url=url, timeouts=timeouts) from error
    if response.status != 200:
        raise failures.from_response(response.status, response.headers, body, url=url, model="")
    names = _names(jsontext.loads_or_none(body))
    if names is None:
        raise failures.wrong_address(f"{url} answered with something that is no list of models")
    return names


def _names(answer: object) -> tuple[str, ...] | None:
    if not isinstance(at(answer, "data"), list):
        return None
    return tuple(name for entry in entries(answer, "data") if (name := text(entry, "id")))
