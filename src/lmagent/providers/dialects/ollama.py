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

import re
from typing import Any

from msgspec.structs import replace

from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import Dialect, ModelFacts, Seen, ServerFacts, chosen
from lmagent.providers.dialects.fields import entries, mapping, named, number, text, window, words

VERSION = "/api/version"
PS = "/api/ps"
TAGS = "/api/tags"


class Ollama(Dialect):
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
        names += [text(entry, "id") for entry in seen.listed] if not names else []
        models = tuple(_facts(name, named(tags, name), running) for name in names if name)
        asked = chosen(models, model)
        if asked is None and model:
            asked = _facts(model, None, running)  # it may have been created since, or be pulled on demand
        if asked is not None:
            asked = _shown(asked, await ask.post("/api/show", {"model": asked.id}))
        return self.facts(models, asked, version=text(seen.answers.get(VERSION), "version"), native_chat=True)


def choose_window(model: ModelFacts | None, wanted: int) -> int:
    """Return the `num_ctx` for a session: the loaded window if it is large enough, since another one reloads the
    model; else the wanted window, up to the model's maximum."""
    if model is None:
        return wanted
    if model.loaded and model.served and model.served >= wanted:
        return model.served
    return min(wanted, model.maximum or wanted)


def _facts(name: str, tag: dict[str, Any] | None, running: list[dict[str, Any]]) -> ModelFacts:
    entry = named(running, name)
    known = ModelFacts(
        id=name,
        loaded=entry is not None,
        served=window(entry, "context_length"),
        quant=text(tag, "details", "quantization_level"),
        size=text(tag, "details", "parameter_size"),
        bytes=number(tag, "size"),
    )
    return _able(known, words(tag, "capabilities"))


def _shown(known: ModelFacts, shown: Any) -> ModelFacts:
    info = mapping(shown, "model_info")
    maximum = window(info, f"{text(info, 'general.architecture')}.context_length")
    if maximum is None:
        lengths = [window(info, key) for key in info if key.endswith(".context_length")]
        maximum = next((length for length in lengths if length), None)
    fixed = _fixed_window(text(shown, "parameters"))
    known = replace(
        known,
        served=known.served or (min(fixed, maximum) if fixed and maximum else fixed),
        maximum=maximum,
        quant=text(shown, "details", "quantization_level") or known.quant,
        size=text(shown, "details", "parameter_size") or known.size,
    )
    return _able(known, words(shown, "capabilities"))


def _able(known: ModelFacts, capabilities: tuple[str, ...]) -> ModelFacts:
    if not capabilities:
        return known
    return replace(
        known,
        vision="vision" in capabilities,
        embeddings="embedding" in capabilities and "completion" not in capabilities,
        tools="tools" in capabilities,
        thinking="thinking" in capabilities,
    )


def _fixed_window(parameters: str) -> int | None:
    found = re.search(r"(?m)^\s*num_ctx\s+(\d{1,9})\s*$", parameters, re.ASCII)
    return window(int(found[1])) if found else None
