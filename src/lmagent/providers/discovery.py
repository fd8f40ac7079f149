"""Discovery: finds the model servers of this machine, and their lists of models. `dialects` identifies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
from msgspec import Struct

from lmagent.core.errors import ConfigError, ProviderError
from lmagent.providers import failures, jsontext
from lmagent.providers.transport import Timeouts, Transport, TransportError, read_all
from lmagent.providers.urls import api_root, server_root

OLLAMA_PORT = 11434
_BODY = 8 * 1024 * 1024
_QUICK = Timeouts(connect=0.5, first_byte=2.0, idle=2.0)


class Candidate(Struct, frozen=True):
    """A server that may run."""

    name: str
    base_url: str


class FoundServer(Struct, frozen=True):
    """A running server, and the names of its models."""

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

_OWNERS = {
    "lmagent": "lmagent's model server",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "library": "Ollama",
    "organization_owner": "LM Studio",
}


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

    async def probe(at: int, candidate: Candidate) -> None:
        answer = await _get(transport, f"{api_root(candidate.base_url)}/models", {}, timeouts)
        entries = _entries(answer, "data")
        if entries is None:
            return
        owner = _OWNERS.get(str((entries[0] if entries else answer).get("owned_by")), "")
        found[at] = FoundServer(owner or candidate.name, candidate.base_url, _names(entries))

    async with anyio.create_task_group() as group:
        for at, candidate in enumerate(candidates):
            group.start_soon(probe, at, candidate)
    return [found[at] for at in sorted(found)]


async def models(
    base_url: str, api_key: str = "", *, transport: Transport, timeouts: Timeouts = _QUICK
) -> tuple[str, ...]:
    """Return the names of the models that a server lists.

    Raises:
        ProviderError: it cannot be reached, refuses the key, or is no model server.
        ConfigError: `base_url` is no URL.
    """
    return await model_names(transport, f"{api_root(base_url)}/models", _headers(api_key), timeouts)


async def model_names(
    transport: Transport, url: str, headers: Mapping[str, str], timeouts: Timeouts
) -> tuple[str, ...]:
    try:
        status, fields, body = await _fetch(transport, url, headers, timeouts)
    except TransportError as error:
        raise failures.from_transport(error, url=url, timeouts=timeouts) from error
    if status != 200:
        raise failures.from_response(status, fields, body, url=url, model="")
    entries = _entries(_json(body), "data")
    if entries is None:
        raise failures.wrong_address(f"{url} answered with something that is no list of models")
    return _names(entries)


def _entries(answer: Any, key: str) -> list[dict[str, Any]] | None:
    """Return the list of objects under `key`; None if the answer has no such list."""
    if not isinstance(answer, dict):
        return None
    listed = cast("dict[str, Any]", answer).get(key)
    if not isinstance(listed, list):
        return None
    return [cast("dict[str, Any]", entry) for entry in cast("list[Any]", listed) if isinstance(entry, dict)]


def _names(entries: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(entry["id"] for entry in entries if isinstance(entry.get("id"), str))


def _headers(api_key: str) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": "lmagent"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return headers


async def _fetch(
    transport: Transport, url: str, headers: Mapping[str, str], timeouts: Timeouts
) -> tuple[int, Mapping[str, str], bytes]:
    response = await transport.send("GET", url, headers, b"", timeouts)
    try:
        return response.status, response.headers, await read_all(response, _BODY)
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()


async def _get(transport: Transport, url: str, headers: Mapping[str, str], timeouts: Timeouts) -> Any:
    """Return the JSON at `url`; None for other answers."""
    try:
        with anyio.move_on_after(timeouts.connect + 2 * timeouts.first_byte):
            status, _, body = await _fetch(transport, url, headers, timeouts)
            return _json(body) if status == 200 else None
    except (TransportError, ProviderError):
        pass
    return None


def _json(body: bytes) -> Any:
    try:
        return jsontext.loads(body)
    except ValueError:
        return None
