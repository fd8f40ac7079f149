"""lmagent's own model server: its list of models has all the facts, also of models that are not loaded.

`context_length` is one slot's window, of the loaded model or of the model when it is loaded. The engine determines the
fields of a request: llama.cpp gets its own unchanged; other engines get none of them.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import ModelFacts, RequestOptions, Seen, ServerFacts, chosen
from lmagent.providers.dialects.fields import entries, mapping, number, text, window, words
from lmagent.providers.dialects.llamacpp import LlamaCpp
from lmagent.providers.dialects.wirebody import chat_body

OWNER = "lmagent"


class Lmagent:
    name = "lmagent"
    label = "lmagent's model server"
    routes = ()

    def __init__(self) -> None:
        self._engine = LlamaCpp()

    def claims(self, seen: Seen) -> bool:
        return seen.owner() == OWNER

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        """Read the list; a known model that is not in it is requested by its name."""
        listed = entries(seen.listing, "data")
        if model and not any(text(entry, "id") == model for entry in listed):
            named = mapping(await ask.get(f"/v1/models/{quote(model, safe='')}"))
            listed = [*listed, named] if text(named, "id") else listed
        models = tuple(_facts(entry) for entry in listed if text(entry, "id"))
        asked = chosen(models, model) or (None if model else _best(models, listed))
        entry: dict[str, Any] = {}
        if asked is not None:
            entry = next(entry for entry in listed if text(entry, "id") == asked.id)
        ours = text(entry, "engine") == "llama"
        return ServerFacts(
            dialect=self.name,
            label=self.label,
            root=seen.root,
            reached=True,
            model=asked,
            models=models,
            slots=number(entry, "parallel"),
            usage=True,
            progress=ours,
            timings=ours,
            json_schema=ours or None,
            grammar=ours,
            tokenizer=ours,
            id_slot=ours,
            cache_prompt=ours,
            cuts=False if ours else None,
        )

    def extras(self, request: ModelRequest, facts: ServerFacts, options: RequestOptions) -> dict[str, Any]:
        return self._engine.extras(request, facts, options) if facts.cache_prompt else {}

    async def count(self, ask: Ask, facts: ServerFacts, subject: str | ModelRequest, model: str) -> int | None:
        """Count a request by `/apply-template`, a text by `/tokenize` of the model's engine."""
        if not isinstance(subject, str):
            subject = text(await ask.post("/apply-template", chat_body(subject) | {"model": model}), "prompt")
            if not subject:
                return None
        body = {"model": model, "content": subject, "add_special": False, "parse_special": True}
        tokens = mapping(await ask.post("/tokenize", body)).get("tokens")
        return len(tokens) if isinstance(tokens, list) else None  # pyright: ignore[reportUnknownArgumentType]


def _best(models: tuple[ModelFacts, ...], listed: list[dict[str, Any]]) -> ModelFacts | None:
    """Choose a model if the user named none: a loaded one, else the largest; none that fails or is a toy.

    Without a name the server would refuse the request, and the first of its list may be a damaged file.
    """
    unfit = {text(entry, "id") for entry in listed if text(entry, "reason") or text(entry, "source") == "demo"}
    able = [known for known in models if not known.embeddings and known.id not in unfit]
    return max(able, key=lambda known: (known.loaded, known.bytes or 0), default=None)


def _facts(entry: dict[str, Any]) -> ModelFacts:
    served = window(entry, "context_length")
    loaded = text(entry, "state") == "loaded"
    able = words(entry, "capabilities")
    return ModelFacts(
        id=text(entry, "id"),
        loaded=loaded,
        window=served,
        proof=("loaded" if loaded else "setting") if served else "none",
        maximum=window(entry, "max_context_length"),
        vision="vision" in able,
        embeddings="embeddings" in able,
        tools="tool_use" in able,
        quant=text(entry, "quantization"),
        bytes=number(entry, "size"),
    )
