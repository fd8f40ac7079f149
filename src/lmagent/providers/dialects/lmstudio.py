"""LM Studio: `GET /api/v1/models` (0.4) and `GET /api/v0/models` (0.3.6) list the loaded models and their windows.

A model may be loaded several times; each instance has a window of its own, and a request by the model's key goes to
one of them. `max_context_length` is the model's, not the served one; a model that is not loaded is loaded by the first
request, with a window that is not stated beforehand. Slots (`parallel`) share one window, so nothing is divided.
It answers unknown routes with 200 and an object with `error`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import Dialect, ModelFacts, Seen, ServerFacts, chosen
from lmagent.providers.dialects.fields import entries, flag, mapping, number, text, window, words

V1 = "/api/v1/models"
V0 = "/api/v0/models"


class LMStudio(Dialect):
    routes = (V1, V0)

    def claims(self, seen: Seen) -> bool:
        """Recognise it by fields that only its lists have."""
        new, old = entries(seen.answers.get(V1), "models"), entries(seen.answers.get(V0), "data")
        return any("loaded_instances" in entry for entry in new) or any(
            "compatibility_type" in entry or "loaded_context_length" in entry for entry in old
        )

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        """Read both lists; the newer one wins."""
        models: dict[str, ModelFacts] = {}
        parallel: dict[str, int] = {}
        for entry in entries(seen.answers.get(V1), "models"):
            for facts in _new(entry):
                models.setdefault(facts.id, facts)
            for instance in entries(entry, "loaded_instances"):
                if slots := number(instance, "config", "parallel"):
                    parallel[text(entry, "key")] = slots
        for entry in entries(seen.answers.get(V0), "data"):
            facts = _old(entry)
            known = models.get(facts.id)
            if facts.id and (known is None or (facts.served and not known.served)):
                models[facts.id] = facts
        listed = tuple(models.values())
        asked = chosen(listed, model)
        return self.facts(listed, asked, slots=parallel.get(asked.id) if asked else None)


def _new(entry: dict[str, Any]) -> list[ModelFacts]:
    """Return a model by its key, and each instance that has another name (`key:2`)."""
    windows = {
        text(instance, "id"): window(instance, "config", "context_length")
        for instance in entries(entry, "loaded_instances")
    }
    capabilities = mapping(entry, "capabilities")
    known = ModelFacts(
        id=text(entry, "key"),
        loaded=bool(windows),
        # The instance that serves a request by the model's key is unknown: the smallest one is safe.
        served=min((size for size in windows.values() if size), default=None),
        maximum=window(entry, "max_context_length"),
        vision=flag(capabilities, "vision"),
        embeddings=text(entry, "type").startswith("embedding"),
        tools=flag(capabilities, "trained_for_tool_use"),
        thinking=bool(mapping(capabilities, "reasoning")) or flag(capabilities, "reasoning"),
        quant=text(entry, "quantization", "name"),
        size=text(entry, "params_string"),
        bytes=number(entry, "size_bytes"),
    )
    instances = [replace(known, id=name, served=served) for name, served in windows.items() if name != known.id]
    return [facts for facts in (known, *instances) if facts.id]


def _old(entry: dict[str, Any]) -> ModelFacts:
    loaded = text(entry, "state") == "loaded" if "state" in entry else None
    kind = text(entry, "type")
    return ModelFacts(
        id=text(entry, "id"),
        loaded=loaded,
        served=window(entry, "loaded_context_length") if loaded is not False else None,
        maximum=window(entry, "max_context_length"),
        vision=kind == "vlm" if kind else None,
        embeddings=kind == "embeddings",
        tools="tool_use" in words(entry, "capabilities") if "capabilities" in entry else None,
        quant=text(entry, "quantization"),
    )
