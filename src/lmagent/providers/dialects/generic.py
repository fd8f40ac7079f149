"""Generic: OpenAI-compatible servers that no other dialect claims.

Known fields of their list of models are read. Three servers get one more question: KoboldCpp
(`/api/extra/true_max_context_length`), TabbyAPI (`/v1/model`), SGLang (`max_model_len` in the list). LocalAI and MLX
servers state no window.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import Dialect, ModelFacts, Seen, ServerFacts, chosen
from lmagent.providers.dialects.fields import flag, mapping, text, window, words

KOBOLD = "/api/extra/version"
TABBY = "/v1/model"

_SERVED = ("max_model_len", "loaded_context_length", "n_ctx")
"""Fields for the served window."""
_POSSIBLE = ("context_length", "context_window", "max_context_length", "max_seq_len", "max_context_window_tokens")
"""Fields for the served window of a hosted model, and the possible one of a local model."""
_LABELS = {"koboldcpp": "KoboldCpp", "tabbyapi": "TabbyAPI", "sglang": "SGLang", "localai": "LocalAI"}


class Generic(Dialect):
    routes = (KOBOLD, TABBY)

    def claims(self, seen: Seen) -> bool:
        return True

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        models = tuple(_facts(entry, local=seen.local) for entry in seen.listed)
        asked = chosen(models, model)
        label = _LABELS.get(seen.owner().lower(), "")
        version, served = "", None
        if text(seen.answers.get(KOBOLD), "result") == "KoboldCpp":
            label, version = "KoboldCpp", text(seen.answers.get(KOBOLD), "version")
            served = window(await ask.get("/api/extra/true_max_context_length"), "value")
            asked = asked or (models[0] if models else None)  # it serves one model, whatever the requested name is
        tabby = mapping(seen.answers.get(TABBY), "parameters")
        if "max_seq_len" in tabby:
            label = label or "TabbyAPI"
            served = window(tabby, "max_seq_len")
            asked = asked or chosen(models, text(seen.answers.get(TABBY), "id"))
        if served:
            asked = replace(asked or ModelFacts(id=model), loaded=True, served=served)
            sees = flag(tabby, "use_vision")
            asked = asked if sees is None else replace(asked, vision=sees)
        return self.facts(models, asked, label=label, version=version, reached=ask.reached)


def _facts(entry: dict[str, Any], *, local: bool) -> ModelFacts:
    served = next((found for key in _SERVED if (found := window(entry, key))), None)
    served = served or window(entry, "top_provider", "context_length")  # a gateway whose list has OpenRouter's form
    possible = next((found for key in _POSSIBLE if (found := window(entry, key))), None)
    name = text(entry, "id")
    modalities = words(entry, "architecture", "input_modalities")
    kind = text(entry, "type").lower()
    return ModelFacts(
        id=name,
        served=served or (None if local else possible),  # a local model is loaded with any window
        maximum=possible,
        vision="image" in modalities if modalities else flag(entry, "capabilities", "vision"),
        embeddings="embed" in kind or "embed" in name.lower(),
        tools=flag(entry, "capabilities", "function_calling"),
    )
