"""Models: what the server lists, what is known of each, and which one new sessions begin with."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct

from lmagent.app.host import Host
from lmagent.core.errors import ConfigError
from lmagent.gateway.chosen import choose
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route
from lmagent.providers.concealed import shown

LOCAL = "lmstudio"
"""What earlier clients call the model server that was set up, whatever it is."""

CLOUD = "openrouter"


class SearchQuery(Struct, frozen=True):
    """A part of the name."""

    q: Annotated[str, Meta(max_length=200)] = ""


class Select(Struct, frozen=True):
    """The model for new sessions; `provider` may be left out, there is one server."""

    model_id: Annotated[str, Meta(min_length=1, max_length=300)]
    provider: Annotated[str, Meta(max_length=100)] = ""


class ModelRow(Struct, frozen=True):
    """A model. None means that the server does not say.

    Attributes:
        id: the name to ask for.
        loaded: it is in memory.
        context: tokens of its window.
        vision: it takes images.
        embeddings: it makes embeddings and cannot chat.
    """

    id: str
    loaded: bool | None = None
    context: int | None = None
    vision: bool | None = None
    embeddings: bool = False


class Models(Struct, frozen=True):
    """What the server lists.

    Attributes:
        models: in the server's order.
        current: the model of new sessions; empty for the server's choice.
        provider: what the server is.
        endpoint: where it is.
        vanished: the server does not list `current` any more.
    """

    models: tuple[ModelRow, ...]
    current: str
    provider: str
    endpoint: str
    vanished: bool


class FoundModels(Struct, frozen=True):
    """Models whose names have all the words of the query."""

    models: tuple[ModelRow, ...]
    query: str


class Selected(Struct, frozen=True):
    """What new sessions begin with from now on."""

    ok: bool
    model: str
    provider: str


async def list_models(call: Call) -> Models:
    """The models that the server has now."""
    host = call.hub.host
    rows, provider = await _listed(host)
    current = host.agent.model
    vanished = bool(current and rows) and not _has(rows, current)
    return Models(rows, current, provider, shown(host.settings.endpoint), vanished)


async def search_models(call: Call) -> FoundModels:
    """Models by words of their names."""
    rows, _ = await _listed(call.hub.host)
    words = call.query.q.lower().split()
    return FoundModels(tuple(row for row in rows if all(word in row.id.lower() for word in words)), call.query.q)


async def select_model(call: Call) -> Selected:
    """Let new sessions begin with another model, now and after a restart; sessions that there are keep theirs."""
    host, wanted = call.hub.host, call.body
    rows, provider = await _listed(host)
    if wanted.provider and wanted.provider.lower() not in _names(provider):
        raise Refusal(
            409,
            "other_provider",
            f"this gateway's model server is {shown(host.settings.endpoint)}, not {wanted.provider!r}",
            fix="start it with --base-url for another one",
        )
    if rows and not _has(rows, wanted.model_id):
        raise Refusal(
            404, "model_not_found", f"the server has no model {wanted.model_id!r}", fix="GET /api/models lists them"
        )
    try:
        await to_thread.run_sync(choose, host, wanted.model_id)
    except ConfigError as error:
        raise Refusal(507, "not_kept", f"the choice cannot be kept: {error.message}", fix=error.fix) from None
    await host.offer_vision()
    return Selected(True, wanted.model_id, provider)


async def _listed(host: Host) -> tuple[tuple[ModelRow, ...], str]:
    """The models, and what the server is.

    Raises:
        ProviderError: it cannot be asked.
    """
    names, current = await host.models(), host.agent.model
    # What is loaded changes. A server at work is not asked: a step that begins now would wait for its answers.
    busy = any(session.running for session in host.sessions.values())
    facts = await (host.served.facts(current) if busy else host.served.look_again(current))
    traits = host.traits()

    def row(name: str) -> ModelRow:
        known = facts.of(name)
        sees = known.vision if known is not None and known.vision is not None else traits.sees(name)
        if known is None:
            return ModelRow(name, vision=sees)
        return ModelRow(name, known.loaded, known.window or known.maximum, sees, known.embeddings)

    return tuple(map(row, names)), facts.dialect


def _has(rows: tuple[ModelRow, ...], name: str) -> bool:
    """Whether a model is listed; Ollama takes a name without its tag, too."""
    return any(row.id in (name, f"{name}:latest") for row in rows)


def _names(provider: str) -> set[str]:
    """What the server may be called by a client."""
    return {CLOUD} if provider == CLOUD else {provider, LOCAL}


ROUTES = (
    Route("GET", "/api/models", list_models, "The models of the server", answer=Models, errors=(502,)),
    Route("GET", "/api/models/search", search_models, "Models by name", SearchQuery, answer=FoundModels, errors=(502,)),
    Route(
        "POST",
        "/api/models/select",
        select_model,
        "The model that new sessions begin with",
        body=Select,
        answer=Selected,
        errors=(404, 409, 502, 507),
    ),
)
