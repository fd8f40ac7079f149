"""LM Studio: `GET /api/v1/models` (0.4) and `GET /api/v0/models` (0.3.6) list the loaded models and their windows.

A model may be loaded several times; each instance has a window of its own, and a request by the model's key goes to
one of them. `max_context_length` is the model's, not the served one; a model that is not loaded is loaded by the first
request, with a window that is not stated beforehand. Slots (`parallel`) share one window, so nothing is divided.
It answers unknown routes with 200 and an object with `error`.
"""

from __future__ import annotations

from typing import Any

from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import ModelFacts, RequestOptions, Seen, ServerFacts, chosen, response_format
from lmagent.providers.dialects.fields import entries, flag, mapping, number, text, window, words

V1 = "/api/v1/models"
V0 = "/api/v0/models"


class LMStudio:
    name = "lmstudio"
    label = "LM Studio"
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
            if facts.id and (known is None or (facts.trusted and not known.trusted)):
                models[facts.id] = facts
        listed = tuple(models.values())
        asked = chosen(listed, model)
        return ServerFacts(
            dialect=self.name,
            label=self.label,
            root=seen.root,
            reached=True,
            model=asked,
            models=listed,
            slots=parallel.get(asked.id) if asked else None,
            usage=True,
            json_schema=True,
        )

    def extras(self, request: ModelRequest, facts: ServerFacts, options: RequestOptions) -> dict[str, Any]:
        """Send `ttl`: LM Studio's name for how long a model stays loaded, in seconds."""
        fields: dict[str, Any] = {}
        if options.schema is not None:
            fields["response_format"] = response_format(options.schema)
        if (ttl := _seconds(options.keep_alive)) is not None:
            fields["ttl"] = ttl
        if isinstance(options.think, str):
            fields["reasoning_effort"] = options.think
        return fields

    async def count(self, ask: Ask, facts: ServerFacts, subject: str | ModelRequest, model: str) -> int | None:
        """Return None: it has no route that counts."""
        return None


def _new(entry: dict[str, Any]) -> list[ModelFacts]:
    """Return a model by its key, and each instance that has another name (`key:2`)."""
    windows = {
        text(instance, "id"): window(instance, "config", "context_length")
        for instance in entries(entry, "loaded_instances")
    }
    stated = [size for size in windows.values() if size]
    capabilities = mapping(entry, "capabilities")
    reasons = bool(mapping(capabilities, "reasoning")) or flag(capabilities, "reasoning")

    def facts(name: str, loaded: bool, served: int | None) -> ModelFacts:
        maximum = window(entry, "max_context_length")
        return ModelFacts(
            id=name,
            loaded=loaded,
            window=served or maximum,
            proof="loaded" if served else "maximum" if maximum else "none",
            maximum=maximum,
            vision=flag(capabilities, "vision"),
            embeddings=text(entry, "type").startswith("embedding"),
            tools=flag(capabilities, "trained_for_tool_use"),
            thinking=reasons,
            quant=text(entry, "quantization", "name"),
            size=text(entry, "params_string"),
            bytes=number(entry, "size_bytes"),
        )

    key = text(entry, "key")
    # The instance that serves a request by the model's key is unknown: the smallest one is safe.
    by_key = [facts(key, bool(windows), min(stated) if stated else None)] if key else []
    return by_key + [facts(name, True, served) for name, served in windows.items() if name and name != key]


def _old(entry: dict[str, Any]) -> ModelFacts:
    served, maximum = window(entry, "loaded_context_length"), window(entry, "max_context_length")
    loaded = text(entry, "state") == "loaded" if "state" in entry else None
    if loaded is False:
        served = None
    capabilities = words(entry, "capabilities")
    return ModelFacts(
        id=text(entry, "id"),
        loaded=loaded,
        window=served or maximum,
        proof="loaded" if served else "maximum" if maximum else "none",
        maximum=maximum,
        vision=text(entry, "type") == "vlm" if text(entry, "type") else None,
        embeddings=text(entry, "type") == "embeddings",
        tools="tool_use" in capabilities if "capabilities" in entry else None,
        quant=text(entry, "quantization"),
    )


def _seconds(given: str | int | None) -> int | None:
    """Return `30m`, `90`, `1h` in seconds; None for an empty text, for ever, and other texts."""
    if isinstance(given, str):
        unit = {"s": 1, "m": 60, "h": 3600}.get(given[-1:], 0)
        figure = given[:-1] if unit else given
        given = int(figure) * (unit or 1) if figure.isascii() and figure.isdigit() else None
    return given if given is not None and given > 0 else None
