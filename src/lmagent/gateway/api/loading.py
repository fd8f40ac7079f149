"""Loading: load, unload and download models on the model server, and start lmagent's own."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated, Literal

from anyio import to_thread
from msgspec import Meta, Struct

from lmagent.app.host import Host
from lmagent.app.servers.downloads import Download, Into
from lmagent.app.servers.found import running_server
from lmagent.core.errors import LmagentError, ProviderError
from lmagent.core.model import split_name
from lmagent.gateway.api.models import provider_of
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route
from lmagent.providers.concealed import shown
from lmagent.providers.loading import Action, actions, change

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
    """A model to download.

    Attributes:
        name: for `library`: `OWNER/REPO`, `OWNER/REPO:QUANT`, an address, or a short name; else as the server names it.
        into: lmagent's own library, or the connected server.
        provider: whose server; empty for the usual one.
    """

    name: Name
    into: Into
    provider: Provider = ""


class DownloadRow(Struct, frozen=True):
    """A download; see `app.downloads.Download`."""

    id: str
    name: str
    into: Into
    provider: str
    state: Literal["running", "done", "stopped", "failed"]
    have: int
    total: int
    text: str
    model: str
    problem: str
    fix: str


class DownloadList(Struct, frozen=True):
    """The downloads, newest first, including unfinished ones of earlier processes."""

    downloads: tuple[DownloadRow, ...]


class Removed(Struct, frozen=True):
    """The download was removed, with its unfinished files."""

    ok: bool


class OwnServerAddress(Struct, frozen=True):
    """The address of lmagent's own running model server."""

    ok: bool
    url: str


async def load_model(call: Call) -> Resident:
    await _change(call.gateway.host, "load", call.body.model_id)
    return Resident(True, call.body.model_id, True)


async def unload_model(call: Call) -> Resident:
    """Unload a model; refused while a session here uses it."""
    host, model = call.gateway.host, call.body.model_id
    if any(
        session.running and (session.state.model or host.agent.model) == model for session in host.sessions.values()
    ):
        raise Refusal(409, "in_use", f"a session is working with {model}", fix="wait until it is done, or stop it")
    await _change(host, "unload", model)
    return Resident(True, model, False)


async def _change(host: Host, action: Action, model: str) -> None:
    provider = provider_of(split_name(model)[0])
    try:
        endpoint, name = host.served.at(model)
    except ProviderError as error:
        raise Refusal(409, "provider_not_ready", error.message, fix=error.fix) from None
    dialect = await _able(host, provider, action)
    await change(host.transport, endpoint, dialect, action, name)
    host.served.forget(model)


async def _able(host: Host, provider: str, action: Action) -> str:
    """Return the dialect of the provider's server if it supports the action.

    Raises:
        Refusal: it does not.
    """
    facts = await host.served.facts(f"{provider}:" if provider else "")
    if action not in actions(facts.dialect):
        server = facts.label or "this model server"
        fix = "do it in the server's own window or on its command line"
        raise Refusal(409, "not_supported", f"{server} cannot be asked to {action} models", fix=fix)
    return facts.dialect


async def list_downloads(call: Call) -> DownloadList:
    rows = await to_thread.run_sync(call.gateway.downloads.rows)
    return DownloadList(tuple(map(_row, rows)))


async def start_download(call: Call) -> DownloadRow:
    """Start or resume a download, which continues after the answer."""
    wanted, gateway = call.body, call.gateway
    provider = provider_of(wanted.provider)
    if wanted.into == "server":
        await _able(gateway.host, provider, "download")
    try:
        return _row(gateway.downloads.start(wanted.name.strip(), wanted.into, provider))
    except LmagentError as error:
        raise Refusal(400, "bad_name", error.message, fix=error.fix) from None


async def stop_download(call: Call) -> DownloadRow:
    """Stop a download; its parts are kept, so that it can be resumed."""
    row = call.gateway.downloads.stop(call.path["id"])
    if row is None:
        raise Refusal(404, "not_found", "no such download runs here", fix="GET /api/models/downloads lists them")
    return _row(row)


async def remove_download(call: Call) -> Removed:
    if not await to_thread.run_sync(call.gateway.downloads.forget, call.path["id"]):
        fix = "stop it first; GET /api/models/downloads lists them"
        raise Refusal(409, "running", "there is no download of that id that has ended", fix=fix)
    return Removed(True)


async def start_server(call: Call) -> OwnServerAddress:
    """Start lmagent's own model server in the background, as `lmagent server start` does, unless it runs."""
    settings = call.gateway.host.settings
    if (running := running_server(settings)) is not None:
        return OwnServerAddress(True, shown(running.llm_url))
    from lmagent.modelserver.http.daemon import start_detached
    from lmagent.modelserver.http.listening import ServerError

    env = {**os.environ, "AGENT_DATA_DIR": str(settings.agent_data_dir)}
    begin = partial(start_detached, settings.agent_data_dir / "server", ("--port", "0", "--bind", "127.0.0.1"), env)
    try:
        state = await to_thread.run_sync(begin)
    except ServerError as error:
        raise Refusal(503, "not_started", f"the model server did not start: {error.message}", fix=error.fix) from None
    return OwnServerAddress(True, state.url)


def _row(row: Download) -> DownloadRow:
    return DownloadRow(
        row.id, row.name, row.into, row.provider, row.state, row.have, row.total, row.text, row.model, row.problem,
        row.fix,
    )  # fmt: skip


ROUTES = (
    Route(
        "POST", "/api/models/load", load_model, "Load a model into memory", body=ModelNamed, answer=Resident,
        errors=(404, 409, 502),
    ),
    Route(
        "POST", "/api/models/unload", unload_model, "Take a model out of memory", body=ModelNamed, answer=Resident,
        errors=(404, 409, 502),
    ),
    Route("GET", "/api/models/downloads", list_downloads, "Downloads of models", answer=DownloadList),
    Route(
        "POST", "/api/models/downloads", start_download, "Download a model, or resume that", body=Wanted,
        answer=DownloadRow, status=202, errors=(404, 409, 502),
    ),
    Route(
        "POST", "/api/models/downloads/{id}/stop", stop_download, "Stop a download and keep its parts",
        answer=DownloadRow, errors=(404,),
    ),
    Route(
        "DELETE", "/api/models/downloads/{id}", remove_download, "Forget a download and delete its parts",
        answer=Removed, errors=(409,),
    ),
    Route(
        "POST", "/api/models/server", start_server, "Start lmagent's own model server", answer=OwnServerAddress,
        errors=(503,),
    ),
)  # fmt: skip
