"""Models: the lists of servers, the model of new sessions; loading, unloading and downloading."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct

from lmagent.app.host import Host
from lmagent.app.servers.downloads import Download, Into
from lmagent.app.servers.found import running_server
from lmagent.app.servers.table import TITLES, full_name, provider_named, usable
from lmagent.config.files import read_small, write_private
from lmagent.core.commands import SetModel
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, LmagentError, ProviderError
from lmagent.core.events import ModelChanged, SessionCreated
from lmagent.core.model import split_name
from lmagent.engine.session import Session
from lmagent.gateway.http.access import Done
from lmagent.gateway.http.errors import Refusal, refusing
from lmagent.gateway.http.route import Call, Routes
from lmagent.providers.concealed import shown
from lmagent.providers.loading import Action, actions, change

ROUTES = Routes()

USUAL = "usual"  # the configured server, as the name of a provider


class ModelsQuery(Struct, frozen=True):
    """A provider; empty for the one of `current`, `usual` for the configured server."""

    provider: Annotated[str, Meta(max_length=100)] = ""


class SearchQuery(ModelsQuery, frozen=True):
    q: Annotated[str, Meta(max_length=200)] = ""


class Select(Struct, frozen=True):
    """The model to use."""

    model_id: Annotated[str, Meta(min_length=1, max_length=300)]  # its name
    # may be left out for the configured server, and if the name includes it
    provider: Annotated[str, Meta(max_length=100)] = ""
    sessions: Literal["all", "new"] = "all"  # `all` also switches existing sessions, `new` leaves them their models


class ModelRow(Struct, frozen=True):
    """A model. None means that the server does not report it."""

    id: str  # the name to ask for
    loaded: bool | None = None
    context: int | None = None  # tokens of its window
    vision: bool | None = None
    embeddings: bool = False  # makes embeddings and cannot chat
    tools: bool | None = None
    thinking: bool | None = None
    quant: str = ""  # its quantisation, as the server names it
    size: str = ""  # number of parameters, as the server writes it
    bytes: int | None = None  # size of its file or its memory


class ProviderRow(Struct, frozen=True):
    """A server that can be chosen: `id` is the name to ask for, `title` its usual name."""

    id: str
    title: str


class Models(Struct, frozen=True):
    """A server's models."""

    models: tuple[ModelRow, ...]
    current: str  # the model of new sessions; empty for the server's choice
    provider: str  # the kind of server
    endpoint: str
    vanished: bool  # the server does not list `current` any more
    listed: str  # the provider that `models` are of; `usual` for the configured server
    providers: tuple[ProviderRow, ...]  # the available ones, the configured server first
    actions: tuple[Action, ...]  # the operations on models that the server supports


class FoundModels(Struct, frozen=True):
    models: tuple[ModelRow, ...]
    query: str


class Selected(Struct, frozen=True):
    """The model of new sessions from now on."""

    ok: bool
    model: str
    provider: str


@ROUTES.get("/api/models", "The models of a server")
async def list_models(call: Call, query: ModelsQuery) -> Models:
    host, current = call.gateway.host, call.gateway.host.agent.model
    listed = provider_of(query.provider) if query.provider else split_name(current)[0]
    rows, dialect = await _listed(host, listed)
    vanished = bool(current and rows) and split_name(current)[0] == listed and not _has(rows, current)
    endpoint, _ = host.served.at(f"{listed}:" if listed else "")
    others = tuple(ProviderRow(name, TITLES[name]) for name in usable(host.settings))
    providers = (ProviderRow(USUAL, shown(host.settings.endpoint)), *others)
    can = tuple(sorted(actions(dialect)))
    return Models(rows, current, dialect, shown(endpoint.url), vanished, listed or USUAL, providers, can)


@ROUTES.get("/api/models/search", "Models by name")
async def search_models(call: Call, query: SearchQuery) -> FoundModels:
    host, wanted = call.gateway.host, query.provider
    rows, _ = await _listed(host, provider_of(wanted) if wanted else split_name(host.agent.model)[0])
    words = query.q.lower().split()
    return FoundModels(tuple(row for row in rows if all(word in row.id.lower() for word in words)), query.q)


@ROUTES.post("/api/models/select", "Use another model, also of another server", place="machine")
async def select_model(call: Call, body: Select) -> Selected:
    """Switch the model, now and after a restart; existing sessions process their conversations once more for it."""
    host = call.gateway.host
    provider = "" if body.provider.lower() == USUAL else body.provider
    with refusing(ConfigError, 404, "no_such_provider"), refusing(ProviderError, 409, "provider_not_ready"):
        model = await full_name(host, provider, body.model_id)
    rows, dialect = await _listed(host, split_name(model)[0])
    if rows and not _has(rows, model):
        text = f"the server has no model {body.model_id!r}"
        raise Refusal(404, "model_not_found", text, fix="GET /api/models lists them")
    with refusing(ConfigError, 507, "not_kept"):
        await to_thread.run_sync(partial(choose, host, model, moves=body.sessions == "all"))
    await host.offer_vision()
    await move(host)
    return Selected(True, model, dialect)


def provider_of(name: str) -> str:
    """Return the provider of a query; empty for the configured server."""
    with refusing(ConfigError, 404, "no_such_provider"):
        return "" if name in ("", USUAL) else provider_named(name)


async def _listed(host: Host, provider: str) -> tuple[tuple[ModelRow, ...], str]:
    """Return a provider's models, and its server's kind."""
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


# --- loading and downloading ------------------------------------------------------------------------------------------

Name = Annotated[str, Meta(min_length=1, max_length=300)]
Provider = Annotated[str, Meta(max_length=100)]


class ModelNamed(Struct, frozen=True):
    """A model, by the name that `GET /api/models` lists."""

    model_id: Name


class Resident(Struct, frozen=True):
    """Whether the model is in memory now."""

    ok: bool
    model: str
    loaded: bool


class Wanted(Struct, frozen=True):
    """A model to download."""

    # for `library`: `OWNER/REPO`, `OWNER/REPO:QUANT`, an address, or a short name; else as the server names it
    name: Name
    into: Into  # lmagent's own library, or the connected server
    provider: Provider = ""  # whose server; empty for the usual one


class DownloadList(Struct, frozen=True):
    """The downloads, newest first, including unfinished ones of earlier processes."""

    downloads: tuple[Download, ...]


class OwnServerAddress(Struct, frozen=True):
    """The address of lmagent's own running model server."""

    ok: bool
    url: str


@ROUTES.post("/api/models/load", "Load a model into memory", place="machine")
async def load_model(call: Call, body: ModelNamed) -> Resident:
    await _change(call.gateway.host, "load", body.model_id)
    return Resident(True, body.model_id, True)


@ROUTES.post("/api/models/unload", "Take a model out of memory", place="machine")
async def unload_model(call: Call, body: ModelNamed) -> Resident:
    """Unload a model; refused while a session here uses it."""
    host, model = call.gateway.host, body.model_id
    running = [session.state.model or host.agent.model for session in host.sessions.values() if session.running]
    if model in running:
        raise Refusal(409, "in_use", f"a session is working with {model}", fix="wait until it is done, or stop it")
    await _change(host, "unload", model)
    return Resident(True, model, False)


async def _change(host: Host, action: Action, model: str) -> None:
    provider = provider_of(split_name(model)[0])
    with refusing(ProviderError, 409, "provider_not_ready"):
        endpoint, name = host.served.at(model)
    dialect = await _able(host, provider, action)
    await change(host.transport, endpoint, dialect, action, name)
    host.served.forget(model)


async def _able(host: Host, provider: str, action: Action) -> str:
    """Return the dialect of the provider's server if it supports the action."""
    facts = await host.served.facts(f"{provider}:" if provider else "")
    if action not in actions(facts.dialect):
        server = facts.label or "this model server"
        fix = "do it in the server's own window or on its command line"
        raise Refusal(409, "not_supported", f"{server} cannot be asked to {action} models", fix=fix)
    return facts.dialect


@ROUTES.get("/api/models/downloads", "Downloads of models")
async def list_downloads(call: Call) -> DownloadList:
    return DownloadList(tuple(await to_thread.run_sync(call.gateway.downloads.rows)))


@ROUTES.post("/api/models/downloads", "Download a model, or resume that", status=202, place="machine")
async def start_download(call: Call, body: Wanted) -> Download:
    """Start or resume a download, which continues after the answer."""
    provider = provider_of(body.provider)
    if body.into == "server":
        await _able(call.gateway.host, provider, "download")
    with refusing(LmagentError, 400, "bad_name"):
        return call.gateway.downloads.start(body.name.strip(), body.into, provider)


@ROUTES.post("/api/models/downloads/{id}/stop", "Stop a download and keep its parts", place="machine")
async def stop_download(call: Call) -> Download:
    """Stop a download; its parts are kept, so that it can be resumed."""
    row = call.gateway.downloads.stop(call.path["id"])
    if row is None:
        raise Refusal(404, "not_found", "no such download runs here", fix="GET /api/models/downloads lists them")
    return row


@ROUTES.delete("/api/models/downloads/{id}", "Forget a download and delete its parts", place="machine")
async def remove_download(call: Call) -> Done:
    if not await to_thread.run_sync(call.gateway.downloads.forget, call.path["id"]):
        fix = "stop it first; GET /api/models/downloads lists them"
        raise Refusal(409, "running", "there is no download of that id that has ended", fix=fix)
    return Done()


@ROUTES.post("/api/models/server", "Start lmagent's own model server", place="machine")
async def start_server(call: Call) -> OwnServerAddress:
    """Start lmagent's own model server in the background, as `lmagent server start` does, unless it runs."""
    settings = call.gateway.host.settings
    if (running := running_server(settings)) is not None:
        return OwnServerAddress(True, shown(running.llm_url))
    from lmagent.modelserver.http.daemon import start_detached
    from lmagent.modelserver.http.listening import ServerError

    env = {**os.environ, "AGENT_DATA_DIR": str(settings.agent_data_dir)}
    begin = partial(start_detached, settings.agent_data_dir / "server", ("--port", "0", "--bind", "127.0.0.1"), env)
    with refusing(ServerError, 503, "not_started"):
        state = await to_thread.run_sync(begin)
    return OwnServerAddress(True, state.url)


# --- the chosen model -------------------------------------------------------------------------------------------------


FILE = "chosen.json"


class ChosenModel(Struct, frozen=True):
    """A picked model, its server, the model that the configuration named then, and whether existing sessions use it."""

    model: str
    endpoint: str
    over: str = ""
    at: float = 0.0
    moves: bool = False


def choose(host: Host, model: str, *, moves: bool) -> None:
    """Use a model for new sessions, now and after a restart; with `moves`, also for existing ones."""
    path = host.settings.agent_data_dir / FILE
    known = _read(host)
    now = host.clock.now()
    known[str(host.workspace)] = ChosenModel(model, host.settings.endpoint, host.settings.llm_model, now, moves)
    write_private(path, msgspec.json.format(msgspec.json.encode(known)).decode())
    _use(host, model)


def restore(host: Host, say: Callable[[str], None]) -> None:
    """Apply the saved choice, unless another server or model has been named since; `say` reports the model."""
    choice, settings = _read(host).get(str(host.workspace)), host.settings
    host.registry.openers.append(partial(_move_opened, host))
    if choice is None or choice.endpoint != settings.endpoint or choice.over != settings.llm_model:
        return
    try:
        host.served.at(choice.model)
    except ProviderError as error:
        say(f"The model {choice.model} was picked in the page and cannot be used: {error}")
        return
    _use(host, choice.model)
    say(f"The model is {choice.model}: it was picked in the page, where it can be changed")


async def move(host: Host) -> None:
    """Switch the open sessions to the chosen model."""
    for session in list(host.sessions.values()):
        await _move_opened(host, session)


async def _move_opened(host: Host, session: Session) -> None:
    choice, state = _read(host).get(str(host.workspace)), session.state
    # An obsolete choice is not the model of new sessions either.
    if choice is None or not choice.moves or choice.model != host.agent.model or state.work.parent is not None:
        return
    if state.model != choice.model and await to_thread.run_sync(_chosen_in, host, state.session) < choice.at:
        await session.send(SetModel(model=choice.model, by="selected"))


def _chosen_in(host: Host, session: str) -> float:
    """Return when the model was last chosen in the session itself."""
    events = host.store.read(session)
    return max((event.ts for event in events if isinstance(event, SessionCreated | ModelChanged)), default=0.0)


def _use(host: Host, model: str) -> None:
    host.use_model(model)
    # The command line's choice is older: reopened sessions keep their model.
    host.initial_commands = tuple(command for command in host.initial_commands if not isinstance(command, SetModel))


def _read(host: Host) -> dict[str, ChosenModel]:
    """Return the saved choices; none if the file is missing or damaged, for the user can pick again."""
    try:
        content = read_small(host.settings.agent_data_dir / FILE)
        return decode_json(content, dict[str, ChosenModel]) if content else {}
    except (ConfigError, msgspec.DecodeError):
        return {}
