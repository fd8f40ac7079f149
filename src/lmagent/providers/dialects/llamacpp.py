"""llama.cpp's server (llama-server, xllamacpp): `GET /props` states what one slot serves.

`default_generation_settings.n_ctx` is one slot's window: the server divides the whole (`-c`) by its slots (`-np`)
itself. Very old builds state the whole instead, as `n_ctx` beside `total_slots`. `n_ctx_train` is the model's maximum.
Each slot keeps its last prompt; a request goes to the slot `id_slot` (a number too large wraps around), else to the
one that holds the longest beginning of it (more than a tenth of the request), else to the one idle for longest.
`/slots` is not asked here: it waits for the model to finish a batch.

As a router (no model of its own) it starts a model for any question that names one, unless `autoload=false`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import Dialect, ModelFacts, Seen, ServerFacts, chosen
from lmagent.providers.dialects.fields import flag, mapping, number, text, window, words
from lmagent.providers.encode import chat_body

PROPS = "/props"


class LlamaCpp(Dialect):
    routes = (PROPS,)

    def claims(self, seen: Seen) -> bool:
        """Recognise it by the owner of its models, or by its properties."""
        props = mapping(seen.answers.get(PROPS))
        telling = isinstance(props.get("default_generation_settings"), dict) or "total_slots" in props
        return seen.owner() == "llamacpp" or telling or (props.get("role") == "router" and "build_info" in props)

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        """Read the properties; a router has those of the model, if that is running."""
        props = seen.answers.get(PROPS)
        router = text(props, "role") == "router"
        models = tuple(map(_listed, seen.listed))
        asked = chosen(models, model)
        if router:
            running = asked is not None and asked.loaded
            props = await ask.get(PROPS, {"model": asked.id, "autoload": "false"}) if asked and running else None
        elif asked is None and len(models) <= 1:
            # One model is served whatever the requested name is.
            asked = models[0] if models else ModelFacts(id=model) if mapping(props) else None
        if asked is not None and mapping(props):
            asked = _served(asked, props)
        slots = number(props, "total_slots")
        return self.facts(
            models or ((asked,) if asked else ()),
            asked,
            version=text(seen.answers.get(PROPS), "build_info"),
            slots=slots or None,
            tokenizer=not router,
            id_slot=bool(slots),
        )

    def extras(self, request: ModelRequest, facts: ServerFacts, slot: int | None) -> dict[str, Any]:
        return engine_extras(facts, slot)

    async def count(self, ask: Ask, request: ModelRequest) -> int | None:
        """Count by the server's own route; older builds render the request and count its text."""
        counted = number(await ask.post("/v1/chat/completions/input_tokens", chat_body(request)), "input_tokens")
        return await count_by_template(ask, request, {}) if counted is None else counted


def engine_extras(facts: ServerFacts, slot: int | None) -> dict[str, Any]:
    """Return the engine's own fields of a request; old builds ignore unknown ones."""
    fields: dict[str, Any] = {"cache_prompt": True, "return_progress": True}
    if slot is not None and facts.slots and 0 <= slot < facts.slots:
        fields["id_slot"] = slot
    return fields


async def count_by_template(ask: Ask, request: ModelRequest, named: dict[str, Any]) -> int | None:
    """Have `/apply-template` render the request, and `/tokenize` count its text."""
    prompt = text(await ask.post("/apply-template", chat_body(request) | named), "prompt")
    if not prompt:
        return None
    body = named | {"content": prompt, "add_special": False, "parse_special": True}
    tokens = mapping(await ask.post("/tokenize", body)).get("tokens")
    return len(tokens) if isinstance(tokens, list) else None  # pyright: ignore[reportUnknownArgumentType]


def _listed(entry: dict[str, Any]) -> ModelFacts:
    """Read an entry of the list of models: `meta` of the running model; `status` if the server is a router."""
    status = text(entry, "status", "value")
    modalities = words(entry, "architecture", "input_modalities")
    return ModelFacts(
        id=text(entry, "id"),
        loaded=status == "loaded" if status else True,
        served=window(entry, "meta", "n_ctx"),
        maximum=window(entry, "meta", "n_ctx_train"),
        vision="image" in modalities if modalities else None,
        quant=text(entry, "meta", "ftype"),
        size=_billions(number(entry, "meta", "n_params")),
        bytes=number(entry, "meta", "size"),
    )


def _served(known: ModelFacts, props: Any) -> ModelFacts:
    served = window(props, "default_generation_settings", "n_ctx")
    if served is None and (whole := window(props, "n_ctx")):
        served = whole // max(1, number(props, "total_slots") or 1)
    caps, template = mapping(props, "chat_template_caps"), text(props, "chat_template")
    tools = flag(caps, "supports_tools"), flag(caps, "supports_tool_calls")
    thinks = flag(caps, "supports_reasoning_effort") or "<think>" in template or "enable_thinking" in template
    return replace(
        known,
        loaded=flag(props, "is_sleeping") is not True,
        served=served or known.served,
        vision=flag(props, "modalities", "vision") if "modalities" in mapping(props) else known.vision,
        tools=any(tools) if any(said is not None for said in tools) else None,
        thinking=True if thinks else None,
        quant=text(props, "model_ftype") or known.quant,
    )


def _billions(parameters: int | None) -> str:
    if not parameters:
        return ""
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e8 else f"{parameters / 1e6:.1f}M"
