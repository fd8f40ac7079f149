"""Models: the list of a server's models with their properties, and the model of new sessions."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from anyio import to_thread
from msgspec import Meta, Struct

from lmagent.app.host import Host
from lmagent.app.servers.table import TITLES, full_name, provider_named, usable
from lmagent.core.errors import ConfigError, ProviderError
from lmagent.core.model import split_name
from lmagent.gateway.chosen import choose, move
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route
from lmagent.providers.concealed import shown
from lmagent.providers.loading import Action, actions

USUAL = "usual"
"""The configured server, as the name of a provider."""


class ModelsQuery(Struct, frozen=True):
    """A provider; empty for the one of `current`, `usual` for the configured server."""

    provider: Annotated[str, Meta(max_length=100)] = ""


class SearchQuery(ModelsQuery, frozen=True):
    q: Annotated[str, Meta(max_length=200)] = ""


class Select(Struct, frozen=True):
    """The model to use.

    Attributes:
        model_id: its name.
        provider: may be left out for the configured server, and if the name includes it.
        sessions: `all` also switches existing sessions, `new` leaves them their models.
    """

    model_id: Annotated[str, Meta(min_length=1, max_length=300)]
    provider: Annotated[str, Meta(max_length=100)] = ""
    sessions: Literal["all", "new"] = "all"


class ModelRow(Struct, frozen=True):
    """A model. None means that the server does not report it.

    Attributes:
        id: the name to ask for.
        loaded: in memory.
        context: tokens of its window.
        vision: accepts images.
        embeddings: makes embeddings and cannot chat.
        tools: supports tool calls.
        thinking: can think before it answers.
        quant: its quantisation, as the server names it.
        size: number of parameters, as the server writes it.
        bytes: size of its file or its memory.
    """

    id: str
    loaded: bool | None = None
    context: int | None = None
    vision: bool | None = None
    embeddings: bool = False
    tools: bool | None = None
    thinking: bool | None = None
    quant: str = ""
    size: str = ""
    bytes: int | None = None


class ProviderRow(Struct, frozen=True):
    """A server that can be chosen: `id` is the name to ask for, `title` its usual name."""

    id: str
    title: str


class Models(Struct, frozen=True):
    """A server's models.

    Attributes:
        models: in the server's order.
        current: the model of new sessions; empty for the server's choice.
        provider: the kind of server.
        endpoint: its address.
        vanished: the server does not list `current` any more.
        listed: the provider that `models` are of; `usual` for the configured server.
        providers: the available ones, the configured server first.
        actions: the operations on models that the server supports.
    """

    models: tuple[ModelRow, ...]
    current: str
    provider: str
    endpoint: str
    vanished: bool
    listed: str
    providers: tuple[ProviderRow, ...]
    actions: tuple[Action, ...]


class FoundModels(Struct, frozen=True):
    """Models whose names have all the words of the query."""

    models: tuple[ModelRow, ...]
    query: str


class Selected(Struct, frozen=True):
    """The model of new sessions from now on."""

    ok: bool
    model: str
    provider: str


async def list_models(call: Call) -> Models:
    host, current = call.gateway.host, call.gateway.host.agent.model
    listed = provider_of(call.query.provider) if call.query.provider else split_name(current)[0]
    rows, dialect = await _listed(host, listed)
    vanished = bool(current and rows) and split_name(current)[0] == listed and not _has(rows, current)
    endpoint, _ = host.served.at(f"{listed}:" if listed else "")
    others = tuple(ProviderRow(name, TITLES[name]) for name in usable(host.settings))
    providers = (ProviderRow(USUAL, shown(host.settings.endpoint)), *others)
    can = tuple(sorted(actions(dialect)))
    return Models(rows, current, dialect, shown(endpoint.url), vanished, listed or USUAL, providers, can)


async def search_models(call: Call) -> FoundModels:
    host, wanted = call.gateway.host, call.query.provider
    rows, _ = await _listed(host, provider_of(wanted) if wanted else split_name(host.agent.model)[0])
    words = call.query.q.lower().split()
    return FoundModels(tuple(row for row in rows if all(word in row.id.lower() for word in words)), call.query.q)


async def select_model(call: Call) -> Selected:
    """Switch the model, now and after a restart; existing sessions process their conversations once more for it."""
    host, wanted = call.gateway.host, call.body
    provider = "" if wanted.provider.lower() == USUAL else wanted.provider
    try:
        model = await full_name(host, provider, wanted.model_id)
    except ConfigError as error:
        raise Refusal(404, "no_such_provider", error.message, fix=error.fix) from None
    except ProviderError as error:
        raise Refusal(409, "provider_not_ready", error.message, fix=error.fix) from None
    rows, dialect = await _listed(host, split_name(model)[0])
    if rows and not _has(rows, model):
        raise Refusal(
            404, "model_not_found", f"the server has no model {wanted.model_id!r}", fix="GET /api/models lists them"
        )
    try:
        await to_thread.run_sync(partial(choose, host, model, moves=wanted.sessions == "all"))
    except ConfigError as error:
        raise Refusal(507, "not_kept", f"the choice cannot be kept: {error.message}", fix=error.fix) from None
    await host.offer_vision()
    await move(host)
    return Selected(True, model, dialect)


def provider_of(name: str) -> str:
    """Return the provider of a query; empty for the configured server."""
    try:
        return "" if name in ("", USUAL) else provider_named(name)
    except ConfigError as error:
        raise Refusal(404, "no_such_provider", error.message, fix=error.fix) from None


async def _listed(host: Host, provider: str) -> tuple[tuple[ModelRow, ...], str]:
    """Return a provider's models, and its server's kind.

    Raises:
        ProviderError: the server cannot be reached.
    """
    names, current = await host.models(provider), host.agent.model
    if split_name(current)[0] != provider:
        current = f"{provider}:" if provider else ""
    # Loaded models change. A busy server is not queried: a step that begins now would wait for the answers.
    busy = any(session.running for session in host.sessions.values())
    facts = await (host.served.facts(current) if busy else host.served.look_again(current))
    traits = host.traits()

    def row(name: str) -> ModelRow:
        known = facts.of(split_name(name)[1])
        sees = known.vision if known is not None and known.vision is not None else traits.sees(name)
        if known is None:
            return ModelRow(name, vision=sees)
        window = known.window or known.maximum
        facts_of_it = (known.tools, known.thinking, known.quant, known.size, known.bytes)
        return ModelRow(name, known.loaded, window, sees, known.embeddings, *facts_of_it)

    return tuple(map(row, names)), facts.dialect


def _has(rows: tuple[ModelRow, ...], name: str) -> bool:
    """Whether a model is listed; Ollama also accepts a name without its tag."""
    return any(row.id in (name, f"{name}:latest") for row in rows)


ROUTES = (
    Route("GET", "/api/models", list_models, "The models of a server", ModelsQuery, answer=Models, errors=(404, 502)),
    Route(
        "GET", "/api/models/search", search_models, "Models by name", SearchQuery, answer=FoundModels, errors=(404, 502)
    ),
    Route(
        "POST",
        "/api/models/select",
        select_model,
        "Use another model, also of another server",
        body=Select,
        answer=Selected,
        errors=(404, 409, 502, 507),
    ),
)
