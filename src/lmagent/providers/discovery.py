"""Discovery: which model servers run on this machine, what they serve, and how large a window they really serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import anyio
from msgspec import Struct

from lmagent.core.errors import BadReply, ProviderError
from lmagent.providers import failures, jsontext
from lmagent.providers.transport import Timeouts, Transport, TransportError, read_all
from lmagent.providers.urls import api_root, server_root

_BODY = 8 * 1024 * 1024
_QUICK = Timeouts(connect=0.5, first_byte=2.0, idle=2.0)


class Candidate(Struct, frozen=True):
    """A server that may run."""

    name: str
    base_url: str


class FoundServer(Struct, frozen=True):
    """A server that runs, and the names of its models."""

    name: str
    base_url: str
    models: tuple[str, ...]


DEFAULT = (
    Candidate("LM Studio", "http://127.0.0.1:1234/v1"),
    Candidate("Ollama", "http://127.0.0.1:11434/v1"),
    Candidate("llama.cpp", "http://127.0.0.1:8080/v1"),
    Candidate("vLLM", "http://127.0.0.1:8000/v1"),
)
"""The default ports of the usual servers."""

_OWNERS = {"llamacpp": "llama.cpp", "vllm": "vLLM", "library": "Ollama", "organization_owner": "LM Studio"}


async def discover(
    transport: Transport, candidates: Sequence[Candidate] = DEFAULT, timeouts: Timeouts = _QUICK
) -> list[FoundServer]:
    """The candidates that answer like a model server, in the order given. Never raises for one that does not."""
    found: dict[int, FoundServer] = {}

    async def probe(at: int, candidate: Candidate) -> None:
        answer = await _get(transport, f"{api_root(candidate.base_url)}/models", {}, timeouts)
        entries = _entries(answer, "data")
        if entries is None:
            return
        owner = _OWNERS.get(str(entries[0].get("owned_by")), "") if entries else ""
        found[at] = FoundServer(owner or candidate.name, candidate.base_url, _names(entries))

    async with anyio.create_task_group() as group:
        for at, candidate in enumerate(candidates):
            group.start_soon(probe, at, candidate)
    return [found[at] for at in sorted(found)]


async def models(
    base_url: str, api_key: str = "", *, transport: Transport, timeouts: Timeouts = _QUICK
) -> tuple[str, ...]:
    """Names of the models that a server lists.

    Raises:
        ProviderError: it cannot be reached, refuses the key, or is no model server.
        ConfigError: `base_url` is no URL.
    """
    return await model_names(transport, f"{api_root(base_url)}/models", _headers(api_key), timeouts)


async def model_names(
    transport: Transport, url: str, headers: Mapping[str, str], timeouts: Timeouts
) -> tuple[str, ...]:
    """Names of the models listed at `url`.

    Raises:
        ProviderError: see `models`.
    """
    try:
        status, fields, body = await _fetch(transport, url, headers, timeouts)
    except TransportError as error:
        raise failures.from_transport(error, url=url, timeouts=timeouts) from error
    if status != 200:
        raise failures.from_response(status, fields, body, url=url, model="")
    entries = _entries(_json(body), "data")
    if entries is None:
        raise BadReply(
            f"{url} answered with something that is no list of models",
            fix="check LLM_URL: it should be the server's base URL, for example http://localhost:1234/v1",
        )
    return _names(entries)


async def served_window(
    base_url: str, model: str = "", api_key: str = "", *, transport: Transport, timeouts: Timeouts = _QUICK
) -> int | None:
    """The context window in tokens that the server really serves; None where it does not say.

    Asked in this order, one request at a time on one connection, until one answers: the OpenAI list of models (vLLM's
    `max_model_len`, OpenRouter's `top_provider.context_length`), then, unless it is a public (https) server that does
    not say what it is, LM Studio's loaded instances, llama.cpp's `/props` and Ollama's `/api/ps`.

    Raises:
        ConfigError: `base_url` is no URL.
    """
    headers = _headers(api_key)
    root = server_root(base_url)
    entries = _entries(await _get(transport, f"{api_root(base_url)}/models", headers, timeouts), "data") or []
    entry = _pick(entries, model, ("id",))
    if entry is not None and (stated := _listed_window(entry)):
        return stated
    owner = _OWNERS.get(str(entry.get("owned_by")), "") if entry is not None else ""
    if owner == "vLLM" or (not owner and root.startswith("https:")):
        return None
    routes = [
        ("LM Studio", "/api/v1/models", _lm_studio),
        ("LM Studio", "/api/v0/models", _lm_studio_old),
        ("llama.cpp", "/props", _llama_cpp),
        ("Ollama", "/api/ps", _ollama),
    ]
    for name, path, read in routes:
        if owner in ("", name):
            window = read(await _get(transport, root + path, headers, timeouts), model)
            if window:
                return window
    return None


def _listed_window(entry: dict[str, Any]) -> int | None:
    top = entry.get("top_provider")
    provider = cast("dict[str, Any]", top) if isinstance(top, dict) else {}
    if found := _tokens(entry.get("max_model_len")) or _tokens(provider.get("context_length")):
        return found
    return _tokens(entry.get("context_length")) if "top_provider" in entry else None


def _lm_studio(answer: Any, model: str) -> int | None:
    """LM Studio's REST API v1: `models[].loaded_instances[].config.context_length`."""
    loaded = [
        ({entry.get("key"), instance.get("id")}, instance)
        for entry in _entries(answer, "models") or []
        for instance in _entries(entry, "loaded_instances") or []
    ]
    named = [instance for names, instance in loaded if model in names]
    chosen = named[0] if named else loaded[0][1] if len(loaded) == 1 else None
    config = chosen.get("config") if chosen else None
    return _tokens(cast("dict[str, Any]", config).get("context_length")) if isinstance(config, dict) else None


def _lm_studio_old(answer: Any, model: str) -> int | None:
    """LM Studio's REST API v0: `data[].loaded_context_length`."""
    loaded = [entry for entry in _entries(answer, "data") or [] if entry.get("loaded_context_length")]
    entry = _pick(loaded, model, ("id",))
    return _tokens(entry.get("loaded_context_length")) if entry else None


def _llama_cpp(answer: Any, model: str) -> int | None:
    """llama.cpp's `/props`: the settings' `n_ctx` is one slot's; one beside them is all slots' together."""
    if not isinstance(answer, dict):
        return None
    props = cast("dict[str, Any]", answer)
    settings = props.get("default_generation_settings")
    slot = _tokens(cast("dict[str, Any]", settings).get("n_ctx")) if isinstance(settings, dict) else None
    whole = _tokens(props.get("n_ctx"))
    slots = props.get("total_slots")
    if slot or not whole:
        return slot
    return whole // slots if isinstance(slots, int) and slots > 0 else whole


def _ollama(answer: Any, model: str) -> int | None:
    """Ollama's `/api/ps`: `models[].context_length`; empty until a model is loaded."""
    entry = _pick(_entries(answer, "models") or [], model, ("name", "model"))
    return _tokens(entry.get("context_length")) if entry else None


def _pick(entries: list[dict[str, Any]], model: str, keys: Sequence[str]) -> dict[str, Any] | None:
    """The entry of that name (`:latest` may be left out); without a name, the only one."""
    for entry in entries:
        names = {str(entry.get(key, "")) for key in keys}
        if model and (model in names or f"{model}:latest" in names):
            return entry
    return entries[0] if len(entries) == 1 else None


def _entries(answer: Any, key: str) -> list[dict[str, Any]] | None:
    """The list of objects under `key`; None where the answer has no such list."""
    if not isinstance(answer, dict):
        return None
    listed = cast("dict[str, Any]", answer).get(key)
    if not isinstance(listed, list):
        return None
    return [cast("dict[str, Any]", entry) for entry in cast("list[Any]", listed) if isinstance(entry, dict)]


def _names(entries: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(entry["id"] for entry in entries if isinstance(entry.get("id"), str))


def _tokens(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 16 else None


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
    """The JSON at `url`; None for anything else."""
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
