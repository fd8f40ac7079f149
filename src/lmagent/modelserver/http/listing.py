"""Listing: the models in the fields of OpenAI's, LM Studio's and our own API."""

from __future__ import annotations

from typing import Any

from lmagent.modelserver.library.quant import quant_in
from lmagent.modelserver.spec import DEFAULT_CONTEXT, ModelStatus

OWNER = "lmagent"  # whose models these are: clients know the server by it
_STATES = {"ready": "loaded", "sleeping": "loaded", "loading": "loading"}


def is_loaded(status: ModelStatus) -> bool:
    """Tell whether this machine has the model in memory or is loading it; models of other servers never count."""
    return status.entry.engine != "upstream" and status.state in ("ready", "sleeping", "loading")


def model_fields(status: ModelStatus) -> dict[str, Any]:
    """Return an item of `GET /v1/models`, in which there is no path.

    OpenAI's are `id`, `object`, `created` and `owned_by`; `context_length`, `max_context_length`,
    `loaded_context_length`, `type`, `quantization` and `state` are LM Studio's (`/api/v0/models`); the rest is ours.
    """
    entry = status.entry
    context = entry.settings.context or DEFAULT_CONTEXT
    kind = "embeddings" if entry.settings.embedding else "vlm" if entry.settings.mmproj else "llm"
    fields: dict[str, Any] = {
        "id": entry.name,
        "object": "model",
        "created": 0,
        "owned_by": OWNER,
        "type": kind,
        "state": _STATES.get(status.state, "not-loaded"),
        "status": status.state,
        "engine": entry.engine,
        "source": entry.source,
        "size": entry.size,
        "needed": entry.needed,
        "quantization": quant_in(entry.path.stem),
        "capabilities": capabilities(status),
    }
    if entry.engine != "upstream":
        fields |= {"context_length": context, "max_context_length": context, "parallel": entry.settings.parallel}
        if status.state in ("ready", "sleeping"):
            fields["loaded_context_length"] = context
    if entry.broken or status.reason:
        fields["reason"] = entry.broken or status.reason
    return fields


def capabilities(status: ModelStatus) -> list[str]:
    settings, engine = status.entry.settings, status.entry.engine
    if settings.embedding:
        return ["embeddings"]
    found = ["chat", "completions", "tool_use"]
    if engine == "llama":
        found.append("json_schema")
    if settings.mmproj:
        found.append("vision")
    return found


def running_fields(status: ModelStatus) -> dict[str, Any]:
    """Return an item of `GET /api/ps`."""
    entry = status.entry
    same = ("state", "pid", "memory", "active", "waiting", "requests", "crashes")
    return {
        **{name: getattr(entry, name) for name in ("name", "engine", "source")},
        **{name: getattr(status, name) for name in same},
        "context": entry.settings.context or DEFAULT_CONTEXT,
        "gpu_layers": entry.settings.gpu_layers,
        "flash_attention": entry.settings.flash_attention,
        "idle_s": round(status.idle_s, 1),
        "loaded_s": round(status.loaded_s, 2),
        "ttl": entry.settings.ttl,
        "reason": entry.broken or status.reason,
    }
