"""lmagent's own model server: its list of models has all the facts, also of models that are not loaded.

`context_length` is one slot's window, of the loaded model or of the model when it is loaded. The engine determines the
fields of a request: llama.cpp gets its own unchanged; other engines get none of them.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import Dialect, ModelFacts, Seen, ServerFacts, chosen
from lmagent.providers.dialects.fields import mapping, number, text, window, words
from lmagent.providers.dialects.llamacpp import count_by_template, engine_extras

OWNER = "lmagent"


class Lmagent(Dialect):
    def claims(self, seen: Seen) -> bool:
        return seen.owner() == OWNER

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        """Read the list; a known model that is not in it is requested by its name."""
        listed = seen.listed
        if model and not any(text(entry, "id") == model for entry in listed):
            named = mapping(await ask.get(f"/v1/models/{quote(model, safe='')}"))
            listed += [named] if text(named, "id") else []
        models = tuple(map(_facts, listed))
        asked = chosen(models, model) if model else _best(models, listed)
        entry = listed[models.index(asked)] if asked is not None else {}
        ours = text(entry, "engine") == "llama"
        return self.facts(models, asked, slots=number(entry, "parallel"), tokenizer=ours, id_slot=ours)

    def extras(self, request: ModelRequest, facts: ServerFacts, slot: int | None) -> dict[str, Any]:
        return engine_extras(facts, slot) if facts.tokenizer else {}

    async def count(self, ask: Ask, request: ModelRequest) -> int | None:
        return await count_by_template(ask, request, {"model": request.model})


def _best(models: tuple[ModelFacts, ...], listed: list[dict[str, Any]]) -> ModelFacts | None:
    """Choose a model if the user named none: a loaded one, else the largest; none that fails or is a toy."""
    unfit = {text(entry, "id") for entry in listed if text(entry, "reason") or text(entry, "source") == "demo"}
    able = [known for known in models if not known.embeddings and known.id not in unfit]
    return max(able, key=lambda known: (known.loaded, known.bytes or 0), default=None)


def _facts(entry: dict[str, Any]) -> ModelFacts:
    able = words(entry, "capabilities")
    return ModelFacts(
        id=text(entry, "id"),
        loaded=text(entry, "state") == "loaded",
        served=window(entry, "context_length"),
        maximum=window(entry, "max_context_length"),
        vision="vision" in able,
        embeddings="embeddings" in able,
        tools="tool_use" in able,
        quant=text(entry, "quantization"),
        bytes=number(entry, "size"),
    )
