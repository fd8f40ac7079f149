"""Settings with their origins, and the parts that are missing before the agent can work."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from anyio import to_thread
from msgspec import Meta, Struct

from lmagent.app.host import Host
from lmagent.app.servers.found import best_here, is_installed, running_server
from lmagent.app.servers.table import TITLES
from lmagent.app.settings import Changed, SettingRow, change_setting, setting_rows
from lmagent.config.installed import install_command
from lmagent.config.loader import ConfigWarning
from lmagent.core.errors import ProviderError
from lmagent.core.model import split_name
from lmagent.gateway.http.route import Call, Routes
from lmagent.identity.files import find_identity, nested_instructions
from lmagent.providers.concealed import shown

ROUTES = Routes()


class SettingList(Struct, frozen=True):
    """The settings in the current files; changes go to `config_file`, the user's own file."""

    settings: tuple[SettingRow, ...]
    config_file: str
    warnings: tuple[ConfigWarning, ...]


class SettingChange(Struct, frozen=True):
    """A new value, as text; None removes the setting from the user's configuration."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    value: Annotated[str, Meta(max_length=10_000)] | None


@ROUTES.get("/api/settings", "Settings with their origins")
def list_settings(call: Call) -> SettingList:
    """Return all settings with their origins; of secrets only whether they are set."""
    rows, loaded = setting_rows(call.gateway.host)
    return SettingList(rows, str(loaded.config_file), loaded.warnings)


@ROUTES.post("/api/settings", "Change a setting of the user", place="machine")
def change(call: Call, body: SettingChange) -> Changed:
    """Change a setting; it is on disk before the answer, which says when it takes effect."""
    return change_setting(call.gateway.host, body.name, body.value)


# --- identity ---------------------------------------------------------------------------------------------------------


class IdentityRow(Struct, frozen=True):
    """A file that each session begins with; `advice` warns if it is large or not sent."""

    kind: str
    name: str
    size: int
    advice: str


class IdentityList(Struct, frozen=True):
    """The files about the agent, the user and the project; `nested` are those of folders, which are only named."""

    files: tuple[IdentityRow, ...]
    nested: tuple[str, ...]


@ROUTES.get("/api/identity", "Files about the agent, the user and the project")
def show_identity(call: Call) -> IdentityList:
    workspace = call.gateway.host.workspace
    rows = (IdentityRow(file.kind, file.name, file.size, file.advice) for file in find_identity(workspace))
    return IdentityList(tuple(rows), tuple(nested_instructions(workspace)))


# --- setup ------------------------------------------------------------------------------------------------------------


class LookedAt(Struct, frozen=True):
    """A usual server of this machine; `provider` is its name in `PROVIDER:NAME`."""

    provider: str
    title: str
    url: str
    answers: bool = False
    models: tuple[str, ...] = ()


class ServerState(Struct, frozen=True):
    """The model server of new sessions, and other places where one may be."""

    state: Literal["ready", "empty", "silent"]
    endpoint: str
    problem: str = ""
    fix: str = ""
    looked_at: tuple[LookedAt, ...] = ()


class Suggested(Struct, frozen=True):
    """A model that fits this machine; `gb` is the size of the download."""

    name: str
    gb: float
    text: str


class OwnEngine(Struct, frozen=True):
    """lmagent's own model server: the command that installs it, its best model for this machine, one to download."""

    installed: bool
    install: str
    running: bool
    model: str = ""
    suggested: Suggested | None = None


class SandboxState(Struct, frozen=True):
    """The sandbox of commands; if the name is empty, commands do not run, and `fix` says how to enable them."""

    name: str
    fix: str = ""


class Setup(Struct, frozen=True):
    """The environment of new sessions."""

    server: ServerState
    own: OwnEngine | None  # lmagent's own server; None if the server is ready
    model: str  # the model of new sessions; empty for the server's choice
    models: int  # how many the server lists
    sandbox: SandboxState
    workspace: str
    writable: bool  # files in the workspace can be created and changed
    complete: bool  # nothing is missing or weaker than it could be; the page then hides the setup


@ROUTES.get("/api/setup", "Parts that are missing before the agent can work")
async def show_setup(call: Call) -> Setup:
    """Return the state of the setup, without loading a model or running the user's commands."""
    host = call.gateway.host
    server, count = await _server(host)
    own = None if server.state == "ready" else await to_thread.run_sync(_own, host)
    confined = host.registry.confined
    name, fix = (confined.expected, "") if confined.expected else await confined.outlook()  # `outlook` starts a program
    writable = await to_thread.run_sync(os.access, host.workspace, os.R_OK | os.W_OK | os.X_OK)
    chosen = bool(host.agent.model) or count <= 1
    complete = server.state == "ready" and chosen and name not in ("", "off", "landlock") and writable
    sandbox = SandboxState(name, fix)
    return Setup(server, own, host.agent.model, count, sandbox, str(host.workspace), writable, complete)


async def _server(host: Host) -> tuple[ServerState, int]:
    provider = split_name(host.agent.model)[0]
    endpoint = shown(host.settings.endpoint)
    try:
        endpoint = shown(host.served.at(f"{provider}:" if provider else "")[0].url)
        listed = await host.models(provider)
    except ProviderError as error:
        return ServerState("silent", endpoint, error.message, error.fix, await _looked_at(host)), 0
    if listed or host.replay is not None:
        return ServerState("ready", endpoint), len(listed)
    return ServerState("empty", endpoint, looked_at=await _looked_at(host)), 0


async def _looked_at(host: Host) -> tuple[LookedAt, ...]:
    from lmagent.providers.discovery import Candidate, discover, usual

    candidates = usual(os.environ)
    providers = {title: provider for provider, title in TITLES.items()}
    found = {server.base_url: server for server in await discover(host.transport, candidates)}

    def looked_at(candidate: Candidate) -> LookedAt:
        provider, url = providers[candidate.name], candidate.base_url
        if (server := found.get(url)) is None:
            return LookedAt(provider, candidate.name, url)
        return LookedAt(provider, server.name, url, True, server.models[:50])

    return tuple(map(looked_at, candidates))


def _own(host: Host) -> OwnEngine:
    settings = host.settings
    running = running_server(settings) is not None
    if not is_installed():
        return OwnEngine(False, install_command("local"), running)
    from lmagent.modelserver.library.suggestions import recommended
    from lmagent.modelserver.pool.machine import machine_memory

    best, fitting = best_here(settings), recommended(machine_memory().total)
    suggested = Suggested(fitting[0].name, fitting[0].download, fitting[0].text) if fitting else None
    return OwnEngine(True, "", running, best.name if best is not None else "", suggested)
