"""Ollama: `GET /api/ps` states the window of a loaded model; before that it is unknown.

`POST /api/show` states the model's maximum (`model_info["<architecture>.context_length"]`), its abilities, and a
`num_ctx` that its Modelfile fixes. The server's own default (`OLLAMA_CONTEXT_LENGTH`, else 4,096, 32,768 or 262,144 by
the memory of the graphics cards) is not stated.

Two traps. The common route (`/v1/chat/completions`) has no field for the window: a prompt that does not fit loses its
front, with status 200. And a request whose window differs from the loaded one's reloads the model: the first request on
the common route replaces a window that another program's `num_ctx` had set. So use the native route (`ollama_chat.py`)
with one `num_ctx` for a whole session, and never both routes.
"""

from __future__ import annotations

from typing import Any

from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import ModelFacts, RequestOptions, Seen, ServerFacts, chosen, response_format
from lmagent.providers.dialects.fields import entries, mapping, named, number, text, window, words

VERSION = "/api/version"
PS = "/api/ps"
TAGS = "/api/tags"

DEFAULT_WINDOW = 4096
"""Ollama's window without any setting, on a machine with less than 23 GiB of graphics memory."""


class Ollama:
    name = "ollama"
    label = "Ollama"
    routes = (VERSION, PS, TAGS)

    def claims(self, seen: Seen) -> bool:
        """Recognise it by its version, or its models' owner; KoboldCpp imitates it, but has its own route."""
        if text(seen.answers.get("/api/extra/version"), "result"):
            return False
        lists = [mapping(seen.answers.get(path)).get("models") for path in (PS, TAGS)]
        named = text(seen.answers.get(VERSION), "version") or seen.owner() == "library"
        return bool(named) and any(isinstance(found, list) for found in lists)

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        """Read the lists, and ask once more about the chosen model."""
        running = entries(seen.answers.get(PS), "models")
        tags = entries(seen.answers.get(TAGS), "models")
        names = [text(entry, "name") or text(entry, "model") for entry in tags]
        names += [text(entry, "id") for entry in entries(seen.listing, "data")] if not names else []
        models = tuple(_facts(name, named(tags, name, "name", "model"), running) for name in names if name)
        asked = chosen(models, model)
        if asked is None and model:
            asked = ModelFacts(id=model)  # it may have been created since, or be pulled on demand
        if asked is not None:
            asked = _shown(asked, await ask.post("/api/show", {"model": asked.id}), running)
            models = tuple(asked if known.id == asked.id else known for known in models)
        return ServerFacts(
            dialect=self.name,
            label=self.label,
            root=seen.root,
            version=text(seen.answers.get(VERSION), "version"),
            reached=True,
            model=asked,
            models=models,
            usage=True,
            json_schema=True,
            native_chat=True,
            cuts=True,
        )

    def extras(self, request: ModelRequest, facts: ServerFacts, options: RequestOptions) -> dict[str, Any]:
        """Return the fields for the common route, which knows neither `num_ctx` nor `keep_alive`."""
        fields: dict[str, Any] = {}
        if options.schema is not None:
            fields["response_format"] = response_format(options.schema)
        if options.think is not None and facts.model is not None and facts.model.thinking:
            level = options.think if isinstance(options.think, str) else "medium" if options.think else "none"
            fields["reasoning_effort"] = level
        return fields

    async def count(self, ask: Ask, facts: ServerFacts, subject: str | ModelRequest, model: str) -> int | None:
        """Return None: it has no route that counts."""
        return None


def native_extras(request: ModelRequest, facts: ServerFacts, options: RequestOptions) -> dict[str, Any]:
    """Return the fields for the native route (`/api/chat`), without `options`: see `ollama_chat.py`.

    `truncate` and `shift` make it refuse a prompt that does not fit, with the figures, instead of cutting it.
    """
    fields: dict[str, Any] = {"truncate": False, "shift": False}
    schema = options.schema if options.schema is not None else request.response_schema
    if schema is not None:
        fields["format"] = schema
    if options.think is not None and facts.model is not None and facts.model.thinking:
        fields["think"] = options.think  # a model that cannot think refuses the field
    if options.keep_alive is not None:
        fields["keep_alive"] = options.keep_alive
    return fields


def choose_window(model: ModelFacts | None, wanted: int) -> int:
    """Return the `num_ctx` for a session: the loaded window if it is large enough, since another one reloads the
    model; else the wanted window, up to the model's maximum."""
    if model is None:
        return wanted
    if model.loaded and model.proof == "loaded" and model.window and model.window >= wanted:
        return model.window
    return min(wanted, model.maximum or wanted)


def _facts(name: str, tag: dict[str, Any] | None, running: list[dict[str, Any]]) -> ModelFacts:
    entry = named(running, name, "name", "model")
    served = window(entry, "context_length")
    capabilities = words(tag, "capabilities")
    return ModelFacts(
        id=name,
        loaded=entry is not None,
        window=served,
        proof="loaded" if served else "none",
        embeddings=_only_embeddings(capabilities),
        vision="vision" in capabilities if capabilities else None,
        tools="tools" in capabilities if capabilities else None,
        thinking="thinking" in capabilities if capabilities else None,
        quant=text(tag, "details", "quantization_level"),
        size=text(tag, "details", "parameter_size"),
        bytes=number(tag, "size"),
    )


def _shown(known: ModelFacts, shown: Any, running: list[dict[str, Any]]) -> ModelFacts:
    """Return `known`, completed from `/api/show`."""
    capabilities = words(shown, "capabilities")
    said = bool(capabilities)
    info = mapping(shown, "model_info")
    maximum = window(info, f"{text(info, 'general.architecture')}.context_length")
    if maximum is None:
        lengths = [window(info, key) for key in info if key.endswith(".context_length")]
        maximum = next((length for length in lengths if length), None)
    fixed = _parameter(text(shown, "parameters"), "num_ctx")
    if known.proof != "loaded":
        entry = named(running, known.id, "name", "model")
        served = window(entry, "context_length")
        if fixed and maximum:
            fixed = min(fixed, maximum)
        proof = "loaded" if served else "setting" if fixed else "maximum" if maximum else "none"
        known = ModelFacts(
            id=known.id, loaded=entry is not None, window=served or fixed or maximum, proof=proof, quant=known.quant,
            size=known.size, bytes=known.bytes, embeddings=known.embeddings,
        )  # fmt: skip
    return ModelFacts(
        id=known.id,
        loaded=known.loaded,
        window=known.window,
        proof=known.proof,
        maximum=maximum,
        vision="vision" in capabilities if said else None,
        embeddings=_only_embeddings(capabilities) if said else known.embeddings,
        tools="tools" in capabilities if said else None,
        thinking="thinking" in capabilities if said else None,
        quant=text(shown, "details", "quantization_level") or known.quant,
        size=text(shown, "details", "parameter_size") or known.size,
        bytes=known.bytes,
    )


def _only_embeddings(capabilities: tuple[str, ...]) -> bool:
    return "embedding" in capabilities and "completion" not in capabilities


def _parameter(lines: str, name: str) -> int | None:
    """Return a number in the Modelfile's parameters: lines of a name, blanks and a value."""
    for line in lines.splitlines():
        key, _, value = line.strip().partition(" ")
        figure = value.strip()
        if key == name and figure.isascii() and figure.isdigit() and len(figure) < 10:
            return window(int(figure))
    return None
