"""OpenRouter: its public list of models states window, modalities and parameters of each; no other question is asked.

`top_provider.context_length` is the usual provider's window; `context_length` the largest of any provider. A variant
(`:free`, `:nitro`) is the same model, listed without the suffix or with another window. For models of 8,192 tokens and
less it cuts the middle out of prompts that do not fit, unless its plugin for that is switched off.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import Dialect, ModelFacts, Seen, ServerFacts, chosen
from lmagent.providers.dialects.fields import text, window, words

WHOLE = {"id": "context-compression", "enabled": False}
"""The plugin that cuts prompts, switched off."""


class OpenRouter(Dialect):
    def claims(self, seen: Seen) -> bool:
        """Recognise it by its host, or, through a proxy, by the fields that only its list has."""
        host = urlsplit(seen.root).hostname or ""
        if host == "openrouter.ai" or host.endswith(".openrouter.ai"):
            return True
        return bool(seen.listed) and all(
            "top_provider" in entry and "supported_parameters" in entry for entry in seen.listed
        )

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        models = tuple(map(_facts, seen.listed))
        base, _, variant = model.rpartition(":")
        asked = chosen(models, model) if model else None  # of hundreds, none is meant
        asked = asked or (chosen(models, base) if base and variant else None)
        return self.facts(models, asked, reached=seen.listing is not None)

    def extras(self, request: ModelRequest, facts: ServerFacts, slot: int | None) -> dict[str, Any]:
        """Ask for usage with costs and cached tokens, and forbid cuts of the prompt."""
        fields: dict[str, Any] = {"usage": {"include": True}, "plugins": [WHOLE]}
        if request.response_schema is not None:
            # otherwise it may choose a provider that ignores the schema
            fields["provider"] = {"require_parameters": True}
        return fields


def _facts(entry: dict[str, Any]) -> ModelFacts:
    parameters = words(entry, "supported_parameters")
    modalities = words(entry, "architecture", "input_modalities")
    said = text(entry, "architecture", "modality").partition("->")
    if not modalities and said[0]:
        modalities = tuple(said[0].split("+"))
    outputs = words(entry, "architecture", "output_modalities") or tuple(said[2].split("+")) if said[2] else ()
    return ModelFacts(
        id=text(entry, "id"),
        served=window(entry, "top_provider", "context_length"),
        maximum=window(entry, "context_length"),
        vision="image" in modalities if modalities else None,
        embeddings=outputs == ("embeddings",),
        tools="tools" in parameters if parameters else None,
        thinking=("reasoning" in parameters or "include_reasoning" in parameters) if parameters else None,
    )
